"""Who may call: peer credentials on the Unix socket, a bearer token on TCP."""

from __future__ import annotations

import functools
import hmac
import os
import pwd

from starlette.types import Scope

from lionstate.errors import AccessDeniedError

from .problems import HttpProblem, Policy
from .server import Peer, connection_of

__all__ = ["bearer_policy", "caller_of", "peer_policy"]


def bearer_policy(token: str) -> Policy:
    """Let those in who send `Authorization: Bearer <token>`."""
    expected = b"Bearer " + token.encode()

    def check(scope: Scope) -> None:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if not hmac.compare_digest(given, expected):
            raise AccessDeniedError("a valid bearer token is required")

    return check


def caller_of(scope: Scope) -> str:
    """Who asks, as idempotency keys are told apart: the user behind a Unix socket, or who holds the token."""
    peer = _peer(scope)
    return "token" if peer is None else f"uid:{peer.uid}"


def peer_policy(group_id: int | None = None) -> Policy:
    """Let in the daemon's own user, root, and members of the socket's group."""
    own = os.geteuid()

    @functools.lru_cache(maxsize=256)
    def allowed(uid: int, gid: int) -> bool:
        return uid in (0, own) or (group_id is not None and group_id in {gid, *_groups(uid, gid)})

    def check(scope: Scope) -> None:
        peer = _peer(scope)
        if peer is None or not allowed(peer.uid, peer.gid):
            error = AccessDeniedError("this user may not use the socket")
            raise HttpProblem(error, 403)

    return check


def _peer(scope: Scope) -> Peer | None:
    connection = connection_of(scope)
    return connection.peer if connection is not None else None


def _groups(uid: int, gid: int) -> list[int]:
    try:
        return os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    except (KeyError, OSError):
        return []
