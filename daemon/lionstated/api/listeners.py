"""Which listeners there are, bound or inherited, and what each of them asks of its callers."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass, field
from typing import Literal

from starlette.types import ASGIApp

from lionstate.errors import InvalidInputError

from ..settings import Settings, is_loopback, split_address
from ..sockets import BoundSocket, bind_tcp, bind_unix, group_id_of, inherited_sockets
from .access import bearer_policy, peer_policy
from .problems import Guard, Policy
from .server import ApiServer

__all__ = ["Listener", "Listeners", "check_listeners"]

Kind = Literal["socket", "http", "ops"]


@dataclass(slots=True)
class Listener:
    """One bound address and its rules."""

    kind: Kind
    bound: BoundSocket
    policy: Policy | None = None
    tls: tuple[str, str] | None = None

    @property
    def address(self) -> str:
        """Where clients find it, as `StateClient` takes it."""
        if self.bound.sock.family == socket.AF_UNIX:
            return f"unix:{self.bound.path or self.bound.sock.getsockname()}"
        host, port = self.bound.sock.getsockname()[:2]
        return f"{'https' if self.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    def server(self, app: ASGIApp) -> ApiServer:
        """A server for `app` behind this listener's rules."""
        cert, key = self.tls or (None, None)
        return ApiServer(Guard(app, self.policy), self.bound, tls_cert=cert, tls_key=key)


def check_listeners(settings: Settings) -> str | None:
    """Refuse settings that would let strangers in; the token, if there is one.

    Raises:
        InvalidInputError: `listen.http` without a token, or a listener off loopback without token and TLS.
    """
    listen = settings.listen
    token = settings.token()
    if (listen.tls_cert is None) != (listen.tls_key is None):
        raise InvalidInputError("listen.tls_cert and listen.tls_key go together")
    if listen.http is not None and token is None:
        raise InvalidInputError("listen.http needs auth.token_file")
    for key, address in (("listen.http", listen.http), ("listen.ops", listen.ops)):
        if address is None or is_loopback(split_address(address)[0]):
            continue
        if token is None or listen.tls_cert is None:
            raise InvalidInputError(f"{key} is off loopback and needs auth.token_file and listen.tls_cert")
    return token


@dataclass(slots=True)
class Listeners:
    """All listeners of the process; released together when the start fails."""

    all: list[Listener] = field(default_factory=list)

    @classmethod
    def bind(cls, settings: Settings) -> Listeners:
        """Bind what the settings ask for, or take what the service manager hands over.

        Raises:
            InvalidInputError: See `check_listeners`, `bind_unix`.
            OwnershipConflictError: An address is in use.
            BackendUnavailableError: An address cannot be used.
        """
        token = check_listeners(settings)
        found = cls()
        with contextlib.ExitStack() as undo:
            undo.callback(found.release)
            given = [(_kind(name, sock), BoundSocket(sock)) for name, sock in inherited_sockets()]
            for kind, bound in given:
                found._add(kind, bound, settings, token)
            for tcp, address in (("http", settings.listen.http), ("ops", settings.listen.ops)):
                if address is not None and tcp not in found.kinds():
                    found._add("http" if tcp == "http" else "ops", bind_tcp(*split_address(address)), settings, token)
            # The last one, because a folder may be made for it.
            if "socket" not in found.kinds():
                # Beside a store that is not there yet there may be no folder either.
                unix = bind_unix(
                    settings.socket_path(),
                    group=settings.listen.socket_group,
                    make_folder=settings.listen.socket is None,
                )
                found._add("socket", unix, settings, token)
            undo.pop_all()
        return found

    def kinds(self) -> set[str]:
        """Which kinds are there."""
        return {listener.kind for listener in self.all}

    def release(self) -> None:
        """Close every socket that no server took over."""
        for listener in self.all:
            listener.bound.release()

    def _add(self, kind: Kind, bound: BoundSocket, settings: Settings, token: str | None) -> None:
        listener = Listener(kind, bound)
        self.all.append(listener)
        listen = settings.listen
        tls = (listen.tls_cert, listen.tls_key) if listen.tls_cert and listen.tls_key else None
        if kind == "socket":
            listener.policy = peer_policy(group_id_of(listen.socket_group))
            return
        # What is really bound decides, not what the settings say: an inherited socket may be anywhere.
        local = is_loopback(bound.sock.getsockname()[0])
        if kind == "http" or not local:
            if token is None or (not local and tls is None):
                raise InvalidInputError(f"the {kind} listener needs auth.token_file, and off loopback TLS")
            listener.policy = bearer_policy(token)
            listener.tls = tls


def _kind(name: str, sock: socket.socket) -> Kind:
    if sock.family == socket.AF_UNIX:
        return "socket"
    return "ops" if name == "ops" else "http"
