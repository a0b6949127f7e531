"""In whose name the verbs of a service act: that of the service, or of the caller that a daemon acts for."""

from __future__ import annotations

import functools
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Acting", "acting_as", "user_name"]

_ACTING: ContextVar[str] = ContextVar("lionstate_acting_as")


@contextmanager
def acting_as(actor: str) -> Iterator[None]:
    """Name ``actor`` in what is persisted and audited by the verbs called inside, and by the tasks these start."""
    token = _ACTING.set(actor)
    try:
        yield
    finally:
        _ACTING.reset(token)


class Acting:
    """What acts in somebody's name.

    Attributes:
        own_actor: The name where it acts for nobody else.
    """

    own_actor: str

    @property
    def _actor(self) -> str:
        return _ACTING.get(self.own_actor)


@functools.lru_cache(maxsize=256)
def user_name(uid: int) -> str:
    """The name of a user of this machine, for the audit trail; ``uid-N`` where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"
