"""The fence: its state, and the verbs that install and remove it (design decision 21)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, func, select

from lionstate.errors import BackendBusyError, InvalidInputError
from lionstate.migration.acting import Acting
from lionstate.migration.control import FENCE_INSTALLED_KEY, clear_value, get_row, set_value
from lionstate.migration.port import MigrationStore, bound
from lionstate.migration.scrub_pass import load_pass
from lionstate.progression.control import FENCE_OFF_KEY, switch_is_on
from lionstate.progression.phases import Authority, Phase
from lionstate.schema import fence_exists, install_fence, remove_fence
from lionstate.schema.own import progression_storage_state

__all__ = ["FenceStatus", "FenceVerbs", "read_fence"]

_TRIES: Final = 5
_RETRY_SECONDS: Final = 0.3
_s = progression_storage_state.c


@dataclass(frozen=True, slots=True)
class FenceStatus:
    """Whether programs that know only the JSON column are refused where it is no longer read.

    Attributes:
        installed: The trigger is there and fires.
        installed_at: When lionstate installed it last, epoch seconds; None if it never did, or before it kept that.
        off_by: Who turned it off; None while nobody has.
        off_reason: Why.
        off_since: Since when, epoch seconds.
        guarded: Progressions whose JSON is not the authority any more.
        last_full_pass_at: When the scrubber last ended a pass over the whole store, which finds what went past the
            fence, or was written without one; None if it never did.
        notice: What follows from this; None when there is nothing to say.
    """

    installed: bool
    installed_at: float | None
    off_by: str | None
    off_reason: str | None
    off_since: float | None
    guarded: int
    last_full_pass_at: float | None
    notice: str | None


def read_fence(conn: Connection, /) -> FenceStatus:
    """The state of the fence. Cost: one pass over the state rows, four seeks."""
    installed = fence_exists(conn)
    off = get_row(conn, FENCE_OFF_KEY) if switch_is_on(conn, FENCE_OFF_KEY) else None
    made = get_row(conn, FENCE_INSTALLED_KEY)
    beyond = select(func.count()).select_from(progression_storage_state).where(_s.authority != Authority.JSON.value)
    guarded = conn.execute(beyond).scalar_one()
    dual = select(_s.progression_id).where(_s.phase == Phase.DUAL.value).limit(1)
    begun = conn.execute(dual).first() is not None
    return FenceStatus(
        installed,
        None if made is None else made[3],
        None if off is None else off[1],
        None if off is None else off[2],
        None if off is None else off[3],
        guarded,
        load_pass(conn).last_ended_at,
        _notice(installed, off is not None, made is not None or guarded > 0, guarded, begun),
    )


def _notice(installed: bool, is_off: bool, had_one: bool, guarded: int, begun: bool) -> str | None:
    if installed:
        return None
    if is_off and guarded:
        return (
            f"the fence is off: a program that knows only the JSON column can write {guarded} progressions where"
            " nobody reads it; only the scrubber finds that"
        )
    if is_off:
        return "the fence is off: after a cutover a program that knows only the JSON column writes where nobody reads"
    if had_one:
        return "the fence was removed: cutovers wait (held fence_missing) until `fence install`, or `fence remove`"
    if begun:
        return "the first cutover installs the fence: from then on programs that know only the JSON column are refused"
    return None


def _install(conn: Connection, /, *, actor: str, reason: str | None, now: float) -> FenceStatus:
    # The trigger first: it takes the only lock that others may have.
    install_fence(conn)
    set_value(conn, FENCE_INSTALLED_KEY, {"enabled": True}, actor=actor, reason=reason, now=now)
    clear_value(conn, FENCE_OFF_KEY, action="fence.on", actor=actor, reason=reason, now=now)
    return read_fence(conn)


def _remove(conn: Connection, /, *, actor: str, reason: str, now: float) -> FenceStatus:
    remove_fence(conn)
    set_value(conn, FENCE_OFF_KEY, {"enabled": True}, actor=actor, reason=reason, now=now)
    return read_fence(conn)


class FenceVerbs(Acting):
    """What an operator asks and decides about the fence."""

    _store: MigrationStore

    async def fence_status(self) -> FenceStatus:
        """Whether the fence is installed, who turned it off, and what follows from that.

        Contract: design decision 21.
        """
        found: FenceStatus = await self._store.read(read_fence)
        return found

    async def install_fence(self, *, reason: str | None = None) -> FenceStatus:
        """Install the fence, or put the present version in its place; lifts a `remove_fence`.

        Raises:
            BackendBusyError: Writers of ``progressions`` kept it from the lock that it needs (PostgreSQL).

        Contract: design decision 21.
        """
        script = bound(_install, actor=self._actor, reason=reason, now=time.time())
        return await self._patiently("progression_migrate.fence_install", script)

    async def remove_fence(self, *, reason: str) -> FenceStatus:
        """Remove the fence and have cutovers go on without one; what others write then is found by the scrubber only.

        Args:
            reason: Why; kept, shown in `status` and audited.
        Raises:
            InvalidInputError: The reason is empty.
            BackendBusyError: As for `install_fence`.

        Contract: design decision 21.
        """
        if not reason.strip():
            raise InvalidInputError("say why the fence is removed: the reason is kept")
        script = bound(_remove, actor=self._actor, reason=reason, now=time.time())
        return await self._patiently("progression_migrate.fence_remove", script)

    async def _patiently(self, name: str, script: Callable[[Connection], Any]) -> FenceStatus:
        for left in reversed(range(_TRIES)):
            try:
                found: FenceStatus = await self._store.maintain(name, script)
                return found
            except BackendBusyError:
                if not left:
                    raise
                await asyncio.sleep(_RETRY_SECONDS)
        raise AssertionError("unreachable")
