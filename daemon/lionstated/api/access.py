"""Who may call, and what: peer credentials on the Unix socket, bearer tokens with a scope on TCP."""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
import pwd
import re
from collections.abc import Sequence
from typing import NamedTuple

from starlette.types import Scope

from lionstate.errors import AccessDeniedError
from lionstate.migration import user_name

from ..settings import SCOPES, Rights, Token, is_loopback
from .problems import HttpProblem, Policy
from .server import Peer, connection_of

__all__ = ["Bearers", "actor_of", "caller_of", "local_names", "peer_policy", "require"]

_GRANT = "lionstate.grant"
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:]+))(?::\d*)?")


class _Grant(NamedTuple):
    caller: str
    scope: Rights


class Bearers:
    """Lets those in who send `Authorization: Bearer <token>` with a token that it knows; the tokens may change."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        """Take the first tokens."""
        self.replace(tokens)

    def replace(self, tokens: Sequence[Token]) -> None:
        """Know these tokens from the next request on, and no others."""
        self._known = [(_digest(token.secret), _Grant(token.caller, token.scope)) for token in tokens]

    def __call__(self, scope: Scope) -> None:
        """Note in the scope what the token grants; the time it takes tells nothing of the tokens.

        Raises:
            AccessDeniedError: There is no token that it knows, or more than one header that could hold one.
        """
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, secret = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        digest = _digest(secret)
        granted = [grant for known, grant in self._known if hmac.compare_digest(known, digest)]
        if scheme.lower() != b"bearer" or not granted:
            raise AccessDeniedError("a valid bearer token is required")
        scope[_GRANT] = granted[0]


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def caller_of(scope: Scope) -> str:
    """Who asks, as idempotency keys are told apart: the user behind a Unix socket, or the name of the token."""
    grant: _Grant = scope[_GRANT]
    return grant.caller


def actor_of(scope: Scope) -> str:
    """In whose name a verb acts, for people to read: the user behind a Unix socket, or the caller of the token."""
    caller = caller_of(scope)
    kind, _, number = caller.partition(":")
    return user_name(int(number)) if kind == "uid" and number.isdecimal() else caller


def require(scope: Scope, needed: Rights) -> None:
    """Let a request go on whose caller may do that much.

    Raises:
        HttpProblem: 403; the caller may not, or nobody has looked who it is.
    """
    grant: _Grant | None = scope.get(_GRANT)
    if grant is None or SCOPES.index(grant.scope) < SCOPES.index(needed):
        raise HttpProblem(AccessDeniedError(f"this needs a token with scope {needed}"), 403)


def local_names(listening: str) -> Policy:
    """Let in who names this machine: a browser that was led here by a name of somebody else's sends that name.

    For a listener on loopback that asks for no token.

    Args:
        listening: The host of the setting that the listener is of; empty for none.
    """

    def is_here(value: bytes) -> bool:
        found = _HOST.fullmatch(value.decode("latin-1").lower())
        name = "" if found is None else found[1] or found[2]
        return is_loopback(name) or name == listening.lower()

    def check(scope: Scope) -> None:
        given = [value for name, value in scope["headers"] if name == b"host"]
        if not given and scope["http_version"] == "1.0":
            return
        if not given or not all(map(is_here, given)):
            said = (
                "a listener without tokens answers to localhost, loopback addresses and the host of listen.ops; Host is"
            )
            raise HttpProblem(AccessDeniedError(f"{said} {'another' if given else 'missing'}"), 421)

    return check


def peer_policy(group_id: int | None = None) -> Policy:
    """Let in the daemon's own user, root, and members of the socket's group; they may do everything."""
    own = os.geteuid()

    @functools.lru_cache(maxsize=256)
    def allowed(uid: int, gid: int) -> bool:
        return uid in (0, own) or (group_id is not None and group_id in {gid, *_groups(uid, gid)})

    def check(scope: Scope) -> None:
        peer = _peer(scope)
        if peer is None or not allowed(peer.uid, peer.gid):
            error = AccessDeniedError("this user may not use the socket")
            raise HttpProblem(error, 403)
        scope[_GRANT] = _Grant(f"uid:{peer.uid}", "admin")

    return check


def _peer(scope: Scope) -> Peer | None:
    connection = connection_of(scope)
    return connection.peer if connection is not None else None


def _groups(uid: int, gid: int) -> list[int]:
    try:
        return os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    except (KeyError, OSError):
        return []
