"""``lionstate health``: one question to a daemon, for a container's HEALTHCHECK and for probes of kind exec.

Asks with the standard library alone: it is started every few seconds.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from typing import Annotated, NoReturn
from urllib.parse import urlsplit

import typer

from lionstate.cli.options import Daemon, Token, Url
from lionstate.errors import InvalidInputError

__all__ = ["health"]

_ANSWER_BYTES = 4096


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("lionstated", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def health(
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    ops: Annotated[
        str | None, typer.Option("--ops", envvar="LIONSTATE_OPS", help="Ask http(s)://host:port of listen.ops instead.")
    ] = None,
    ca: Annotated[str | None, typer.Option("--ca", help="PEM file that the certificate is checked with.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Ask whether it is alive, not whether it is ready.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for the answer.")] = 5.0,
) -> None:
    """Exit with 0 when the daemon is ready (with --live: alive), with 1 when it is not or does not answer."""
    address = ops or _address(url, daemon)
    try:
        connection = _connection(address, ca, timeout)
    except OSError as error:
        raise InvalidInputError(f"--ca cannot be used: {error.strerror or error}") from error
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        connection.request("GET", "/livez" if live else "/readyz", headers=headers)
        answer = connection.getresponse()
        status, said = answer.status, _said(answer.read(_ANSWER_BYTES))
    except (OSError, http.client.HTTPException) as error:
        _end(1, f"no answer from {address}: {getattr(error, 'strerror', None) or type(error).__name__}")
    finally:
        connection.close()
    _end(0 if status == 200 else 1, said)


def _end(code: int, said: str) -> NoReturn:
    typer.echo(said, err=code != 0)
    raise typer.Exit(code)


def _address(url: str | None, daemon: str | None) -> str:
    """Where the daemon's socket is: named, in the daemon's own setting, in its runtime directory, beside the store."""
    if daemon:
        return daemon if "://" in daemon or daemon.startswith("unix:") else f"unix:{daemon}"
    if path := os.environ.get("LIONSTATE_LISTEN__SOCKET"):
        return f"unix:{path}"
    if runtime := os.environ.get("RUNTIME_DIRECTORY"):
        return f"unix:{os.path.join(runtime.split(':')[0], 'lionstated.sock')}"
    if url and "://" not in url:
        return f"unix:{url}.sock"
    raise InvalidInputError("no daemon given: pass --daemon unix:/path, --ops http://host:port, or --url FILE")


def _connection(address: str, ca: str | None, timeout: float) -> http.client.HTTPConnection:
    if address.startswith("unix:"):
        return _UnixConnection(address.removeprefix("unix:").removeprefix("//"), timeout)
    found = urlsplit(address)
    if found.scheme not in ("http", "https") or not found.hostname:
        raise InvalidInputError("the address must be unix:/path, http://host:port or https://host:port")
    if found.scheme == "http":
        return http.client.HTTPConnection(found.hostname, found.port, timeout=timeout)
    context = ssl.create_default_context(cafile=ca)
    return http.client.HTTPSConnection(found.hostname, found.port, timeout=timeout, context=context)


def _said(body: bytes) -> str:
    try:
        found = json.loads(body)
    except ValueError:
        return "an answer that is not the daemon's"
    if not isinstance(found, dict):
        return "an answer that is not the daemon's"
    words = [str(found[name]) for name in ("state", "reason", "detail") if name in found]
    return ": ".join(words) or ("alive" if found.get("alive") else "not alive")
