"""The persisted switches and knobs of migration: pause, compat read, foreign writers, budget (design decision 26)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, select

from lionstate.audit import record_event
from lionstate.codes import PauseCode
from lionstate.dialects import Statement, dialect_of
from lionstate.errors import NotFoundError, PhaseConflictError
from lionstate.migration.knob_values import read_knobs
from lionstate.migration.knobs import Knobs, with_values
from lionstate.migration.orders import Order, OrderKind, keep_order, kept_order, take_back
from lionstate.progression.control import COMPAT_READ_KEY, switch_is_on
from lionstate.progression.phases import Authority, Phase
from lionstate.progression.storage_state import lock_many, update_state
from lionstate.schema.own import migration_control as table

__all__ = [
    "ACCEPT_FOREIGN_KEY",
    "AUTOMATIC_ACTOR",
    "FENCE_INSTALLED_KEY",
    "MAINTENANCE_ENABLED_KEY",
    "PAUSE_KEY",
    "Controls",
    "Pause",
    "clear_value",
    "get_maintenance_enabled",
    "get_pause",
    "get_row",
    "load",
    "maintenance_order",
    "pause",
    "resume",
    "set_compat_read",
    "set_compat_read_everywhere",
    "set_value",
]

# Who pauses when no person does.
AUTOMATIC_ACTOR: Final = "lionstated"
PAUSE_KEY: Final = "pause"
ACCEPT_FOREIGN_KEY: Final = "accept_foreign_writers"
FENCE_INSTALLED_KEY: Final = "fence.installed"
MAINTENANCE_ENABLED_KEY: Final = "maintenance.enabled"

_ROW = Statement(
    select(table.c.value, table.c.actor, table.c.reason, table.c.updated_at, table.c.expires_at).where(
        table.c.key == bindparam("key")
    )
)


@dataclass(frozen=True, slots=True)
class Pause:
    """Who paused migration, why, when (epoch seconds), and until when; None is until ``resume``.

    Attributes:
        stopped: The lease of maintenance was given back as well.
    """

    actor: str
    reason: str | None
    since: float
    expires_at: float | None
    stopped: bool = False
    code: str = PauseCode.OPERATOR.value


@dataclass(frozen=True, slots=True)
class Controls:
    """What a step obeys, read at its start; the pause is looked at again by every stage."""

    pause: Pause | None
    accept_foreign_writers: bool
    knobs: Knobs


def get_row(conn: Connection, /, key: str) -> Sequence[Any] | None:
    """Value (JSON text), actor, reason, time and expiry of one key; None without it. Cost: one primary-key seek."""
    rows = _ROW.rows(conn, {"key": key})
    return rows[0] if rows else None


def get_pause(conn: Connection, /, now: float) -> Pause | None:
    """The pause in force at ``now``; None when migration may run. Cost: one primary-key seek."""
    row = get_row(conn, PAUSE_KEY)
    if row is None:
        return None
    value, actor, reason, since, expires_at = row
    if expires_at is not None and expires_at <= now:
        return None
    stored: Any = json.loads(value)
    facts = stored if isinstance(stored, dict) else {}
    code = str(facts.get("code") or PauseCode.OPERATOR.value)
    return Pause(actor, reason, since, expires_at, bool(facts.get("stopped")), code)


def get_maintenance_enabled(conn: Connection, /) -> bool | None:
    """Whether the operator has persisted that maintenance runs; None leaves it to the settings (design §8)."""
    return switch_is_on(conn, MAINTENANCE_ENABLED_KEY) if _ROW.rows(conn, {"key": MAINTENANCE_ENABLED_KEY}) else None


def maintenance_order(conn: Connection, /) -> Order | None:
    """Who persisted whether maintenance runs, why and when; None leaves it to the settings. Cost: one seek."""
    row = get_row(conn, MAINTENANCE_ENABLED_KEY)
    return None if row is None else Order("maintenance", *row[1:])


def load(conn: Connection, /, now: float, defaults: Knobs) -> Controls:
    """Read every control that a step obeys. Cost: three seeks and the rows of the knobs that are set.

    Args:
        defaults: Of the knobs that nobody has set.
    """
    values = {name: stored.value for name, stored in read_knobs(conn, now).items()}
    return Controls(get_pause(conn, now), switch_is_on(conn, ACCEPT_FOREIGN_KEY), with_values(defaults, values))


def set_value(
    conn: Connection,
    /,
    key: str,
    value: Any,
    *,
    actor: str,
    reason: str | None,
    now: float,
    expires_at: float | None = None,
) -> None:
    """Set one switch or knob, with its audit row."""
    row = {
        "key": key,
        "value": json.dumps(value),
        "actor": actor,
        "reason": reason,
        "updated_at": now,
        "expires_at": expires_at,
    }
    changed = [name for name in row if name != "key"]
    conn.execute(dialect_of(conn).upsert(table, ["key"], changed), row)
    record_event(
        conn,
        f"progression_migrate.{key}",
        details={"value": value, "reason": reason, "expires_at": expires_at},
        actor=actor,
        now=now,
    )


def clear_value(conn: Connection, /, key: str, *, action: str, actor: str, reason: str | None, now: float) -> bool:
    """Remove one switch, with an audit row if it was there; return whether it was."""
    found = conn.execute(delete(table).where(table.c.key == key)).rowcount > 0
    if found:
        record_event(conn, f"progression_migrate.{action}", details={"reason": reason}, actor=actor, now=now)
    return found


def pause(
    conn: Connection,
    /,
    *,
    actor: str,
    reason: str | None,
    now: float,
    expires_at: float | None = None,
    stopped: bool = False,
    code: PauseCode = PauseCode.OPERATOR,
) -> None:
    """Stop migration after the running chunk; replaces the pause that is there.

    Args:
        stopped: Whoever has the lease of maintenance gives it back.

    Contract: design decision 26.
    """
    value = {"enabled": True, "code": code.value} | ({"stopped": True} if stopped else {})
    set_value(conn, PAUSE_KEY, value, actor=actor, reason=reason, now=now, expires_at=expires_at)


def resume(conn: Connection, /, *, actor: str, reason: str | None, now: float) -> bool:
    """Lift the pause; return whether there was one. Contract: design decision 26."""
    return clear_value(conn, PAUSE_KEY, action="resume", actor=actor, reason=reason, now=now)


def set_compat_read(
    conn: Connection,
    /,
    progression_id: str,
    enabled: bool,
    *,
    actor: str,
    reason: str | None,
    now: float,
    expires_at: float | None = None,
) -> bool:
    """Switch the compatibility read of one progression; return whether that changed anything.

    Args:
        reason: Why; one that is new replaces the one that is kept, as does the end.
        expires_at: Epoch seconds at which it is off again by itself; None is until it is switched off.

    Raises:
        NotFoundError: There is no such progression.
        PhaseConflictError: Its authority is not the items, so there is nothing to switch; or the switch is forced.

    Contract: ADR-0117 D4; design decisions 2, 3.
    """
    locked = lock_many(conn, [progression_id]).get(progression_id)
    if locked is None or (locked.state is not None and locked.state.is_tombstone):
        raise NotFoundError("there is no such progression")
    state = locked.state
    if state is None or state.authority is not Authority.ITEMS:
        raise PhaseConflictError("compat read applies after cutover only: before it the JSON is what is read")
    if state.compat_read == enabled and not _is_new(conn, progression_id, enabled, reason, expires_at):
        return False
    if state.phase is Phase.BLOCKED:
        raise PhaseConflictError(
            f"compat read is fixed while the progression is blocked ({state.blocked_reason}); unblock it first"
        )
    update_state(conn, progression_id, {"compat_read": int(enabled), "updated_at": now})
    if enabled:
        keep_order(
            conn, progression_id, OrderKind.COMPAT_READ, actor=actor, reason=reason, now=now, expires_at=expires_at
        )
    else:
        take_back(conn, progression_id, OrderKind.COMPAT_READ)
    record_event(
        conn,
        "progression_migrate.compat_read",
        target_id=progression_id,
        details={
            "enabled": enabled,
            "reason": reason,
            "expires_at": expires_at,
            "frozen_count": state.frozen_count,
            "next_ordinal": state.next_ordinal,
        },
        actor=actor,
        now=now,
    )
    return True


def _is_new(conn: Connection, progression_id: str, enabled: bool, reason: str | None, expires_at: float | None) -> bool:
    """Whether the order that is kept of a switch says something else than what is asked for now."""
    kept = kept_order(conn, progression_id, OrderKind.COMPAT_READ)
    if not enabled:
        return kept is not None
    return (reason, expires_at) != ((None, None) if kept is None else (kept.reason, kept.expires_at))


def set_compat_read_everywhere(
    conn: Connection, /, enabled: bool, *, actor: str, reason: str | None, now: float, expires_at: float | None = None
) -> None:
    """Switch the global compatibility read, which counts beside each progression's own switch.

    Contract: ADR-0117 D4; design decision 3.
    """
    set_value(conn, COMPAT_READ_KEY, {"enabled": enabled}, actor=actor, reason=reason, now=now, expires_at=expires_at)
