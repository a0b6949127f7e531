"""A certificate for loopback that is trusted by nobody but the test that asked for it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificate(NamedTuple):
    cert: Path
    key: Path


def make_certificate(folder: Path, name: str = "tls") -> Certificate:
    """Certificate and private key (0600) for 127.0.0.1, in `folder`."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    form = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -addext subjectAltName=IP:127.0.0.1"
    command = ["openssl", *form.split(), "-subj", f"/CN={name}", "-keyout", str(made.key), "-out", str(made.cert)]
    subprocess.run(command, check=True, capture_output=True)
    made.key.chmod(0o600)
    return made
