"""Which listeners there are, bound or inherited, and what each of them asks of its callers."""

from __future__ import annotations

import contextlib
import socket
import ssl
from dataclasses import dataclass, field
from typing import Literal

from starlette.types import ASGIApp

from lionstate.errors import InvalidInputError

from ..settings import Settings, Token, is_loopback, read_named, read_private, split_address
from ..sockets import BoundSocket, bind_tcp, bind_unix, group_id_of, inherited_sockets
from .access import Bearers, local_names, peer_policy
from .problems import Guard, Policy
from .server import ApiServer, ConnectionLimits
from .tracing import AccessLog, Traced

__all__ = ["Listener", "Listeners", "check_listeners"]

Kind = Literal["socket", "http", "ops"]


@dataclass(slots=True)
class Listener:
    """One bound address and its rules."""

    kind: Kind
    bound: BoundSocket
    log: AccessLog
    limits: ConnectionLimits
    policy: Policy | None = None
    tls: tuple[str, str] | None = None
    _servers: list[ApiServer] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Where clients find it, as `StateClient` takes it."""
        if self.bound.sock.family == socket.AF_UNIX:
            return f"unix:{self.bound.path or self.bound.sock.getsockname()}"
        host, port = self.bound.sock.getsockname()[:2]
        return f"{'https' if self.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    def server(self, app: ASGIApp) -> ApiServer:
        """A server for `app` behind this listener's rules."""
        guarded = Traced(Guard(app, self.policy), self.kind, self.log)
        server = ApiServer(guarded, self.bound, self.limits, tls=self.tls)
        self._servers.append(server)
        return server

    def renew(self) -> None:
        """Use what the certificate's files hold now for new connections."""
        for server in self._servers:
            if self.tls is not None and server.config.ssl is not None:
                server.config.ssl.load_cert_chain(*self.tls)


def check_listeners(settings: Settings) -> tuple[Token, ...]:
    """Refuse settings that would let strangers in; the tokens, if there are any.

    Raises:
        InvalidInputError: `listen.http` without a token, a listener off loopback without token and TLS, or a
            certificate or token file that cannot be used.
    """
    listen = settings.listen
    tokens = settings.tokens()
    if (listen.tls_cert is None) != (listen.tls_key is None):
        raise InvalidInputError("listen.tls_cert and listen.tls_key go together")
    if listen.http is not None and not tokens:
        raise InvalidInputError("listen.http needs auth.token_file" + _none_in(settings))
    for key, address in (("listen.http", listen.http), ("listen.ops", listen.ops)):
        if address is None or is_loopback(split_address(address)[0]):
            continue
        if not tokens or listen.tls_cert is None:
            asked = f"{key} is off loopback and needs auth.token_file and listen.tls_cert"
            raise InvalidInputError(asked + _none_in(settings))
    if listen.tls_cert is not None and listen.tls_key is not None:
        _check_certificate(listen.tls_cert, listen.tls_key)
    return tokens


def _none_in(settings: Settings) -> str:
    path = settings.auth.token_file
    return "" if path is None or settings.tokens() else f": {path} holds no token"


def _check_certificate(cert: str, key: str) -> None:
    read_named(cert, "listen.tls_cert")
    read_private(key, "listen.tls_key")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as exc:
        raise InvalidInputError(f"listen.tls_cert and listen.tls_key cannot be used: {cert}, {key}") from exc


def _no_password() -> str:
    # Without it OpenSSL asks the terminal.
    raise ValueError("the key is encrypted")


@dataclass(slots=True)
class Listeners:
    """All listeners of the process; released together when the start fails."""

    all: list[Listener] = field(default_factory=list)
    bearers: Bearers = field(default_factory=lambda: Bearers(()))
    log: AccessLog = field(default_factory=lambda: AccessLog(0.0))
    has_tokens: bool = False

    @classmethod
    def bind(cls, settings: Settings) -> Listeners:
        """Bind what the settings ask for, or take what the service manager hands over.

        Raises:
            InvalidInputError: See `check_listeners`, `bind_unix`.
            OwnershipConflictError: An address is in use.
            BackendUnavailableError: An address cannot be used.
        """
        tokens = check_listeners(settings)
        found = cls(bearers=Bearers(tokens), log=AccessLog(settings.log.access_ratio), has_tokens=bool(tokens))
        with contextlib.ExitStack() as undo:
            undo.callback(found.release)
            given = [(_kind(name, sock), BoundSocket(sock)) for name, sock in inherited_sockets()]
            for kind, bound in given:
                found._add(kind, bound, settings)
            for tcp, address in (("http", settings.listen.http), ("ops", settings.listen.ops)):
                if address is not None and tcp not in found.kinds():
                    found._add("http" if tcp == "http" else "ops", bind_tcp(*split_address(address)), settings)
            # The last one, because a folder may be made for it.
            if "socket" not in found.kinds():
                # Beside a store that is not there yet there may be no folder either.
                unix = bind_unix(
                    settings.socket_path(),
                    group=settings.listen.socket_group,
                    make_folder=settings.listen.socket is None,
                )
                found._add("socket", unix, settings)
            undo.pop_all()
        return found

    def renew(self, settings: Settings) -> int:
        """Read tokens and certificate again; the number of tokens.

        Raises:
            InvalidInputError: They cannot be used; the ones read before stay in force.
        """
        tokens = check_listeners(settings)
        self.bearers.replace(tokens)
        for listener in self.all:
            listener.renew()
        return len(tokens)

    def kinds(self) -> set[str]:
        """Which kinds are there."""
        return {listener.kind for listener in self.all}

    def release(self) -> None:
        """Close every socket that no server took over."""
        for listener in self.all:
            listener.bound.release()

    def _add(self, kind: Kind, bound: BoundSocket, settings: Settings) -> None:
        listen = settings.listen
        limits = ConnectionLimits(
            listen.max_connections, listen.header_seconds, listen.transfer_seconds, listen.idle_seconds
        )
        listener = Listener(kind, bound, self.log, limits)
        self.all.append(listener)
        tls = (listen.tls_cert, listen.tls_key) if listen.tls_cert and listen.tls_key else None
        if kind == "socket":
            listener.policy = peer_policy(group_id_of(listen.socket_group))
            return
        # What is really bound decides, not what the settings say: an inherited socket may be anywhere.
        local = is_loopback(bound.sock.getsockname()[0])
        if kind == "http" or not local:
            if not self.has_tokens or (not local and tls is None):
                asked = f"the {kind} listener needs auth.token_file, and off loopback TLS"
                raise InvalidInputError(asked + _none_in(settings))
            listener.policy = self.bearers
            listener.tls = tls
        else:
            listener.policy = local_names("" if listen.ops is None else split_address(listen.ops)[0])


def _kind(name: str, sock: socket.socket) -> Kind:
    if sock.family == socket.AF_UNIX:
        return "socket"
    return "ops" if name == "ops" else "http"
