#!/bin/sh
# Makes ./secrets for prometheus.env: a certificate for the name lionstate, a token to scrape with. Run it as root once:
# the files belong to the user of the container.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 825 -subj /CN=lionstate \
    -addext subjectAltName=DNS:lionstate -keyout secrets/tls.key -out secrets/tls.crt 2>/dev/null
printf '%s' "$(openssl rand -hex 32)" >secrets/scrape-token
printf 'prometheus read %s\n' "$(cat secrets/scrape-token)" >secrets/tokens
chown 10001:10001 secrets secrets/tls.key secrets/tokens
# What Prometheus reads, as a user of its own; nobody else gets into the folder.
chmod 0444 secrets/tls.crt secrets/scrape-token
