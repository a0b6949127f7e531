"""Taking lionstate off a store: its triggers, its tables, its key; nothing else (design decisions 21, 32)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, and_, delete, func, inspect, or_, select

from lionstate.audit import record_event
from lionstate.dialects import dialect_of
from lionstate.errors import OwnershipConflictError, PhaseConflictError, UnrecognizedStoreError
from lionstate.migration.lease import process_name, read_ownership
from lionstate.progression.phases import Authority, Phase
from lionstate.schema import OWN_TABLES, StoreKind, inspect_store, metadata, remove_delete_trigger, remove_fence
from lionstate.schema.control import schema_meta
from lionstate.schema.opening import OWN_VERSION_KEY
from lionstate.schema.own import migration_lease, progression_storage_state
from lionstate.schema.triggers import schema_dialect

__all__ = ["Detached", "detach"]

_NAMED: Final = 20
_s = progression_storage_state.c
_BEYOND = or_(
    _s.phase == Phase.ITEMS.value, and_(_s.phase == Phase.BLOCKED.value, _s.authority != Authority.JSON.value)
)


@dataclass(frozen=True, slots=True)
class Detached:
    """What was taken off a store.

    Attributes:
        tables: Own tables dropped.
        given_up: Progressions that were under way or blocked, and are plain JSON values again.
    """

    tables: int
    given_up: int


def detach(conn: Connection, /, *, actor: str, reason: str | None, now: float) -> Detached:
    """Drop the fence and the delete trigger, then the own tables and the own key of ``schema_meta``.

    Every JSON value is whole then, because no progression has left it; what was copied of one is dropped with it.

    Raises:
        PhaseConflictError: Progressions have left their JSON, or there is nothing of lionstate in the store.
        OwnershipConflictError: Another process migrates the store now (PostgreSQL; see `lease`).
        SchemaError: As for an open.

    Contract: design decisions 21, 32.
    """
    schema_dialect(conn).lock_schema(conn)
    if inspect_store(conn) is StoreKind.NEW:
        raise UnrecognizedStoreError("there is no store")
    names = set(inspect(conn).get_table_names())
    own = [table for table in OWN_TABLES if table.name in names]
    if not own:
        raise PhaseConflictError("there is nothing of lionstate in this store")
    # From here on nobody enters or leaves a phase.
    dialect_of(conn).lock_tables(conn, own)
    _refuse_owner(conn, names)
    given_up = _refuse_left_json(conn, names)
    remove_fence(conn)
    remove_delete_trigger(conn)
    metadata.drop_all(conn, tables=own)
    conn.execute(delete(schema_meta).where(schema_meta.c.key == OWN_VERSION_KEY))
    details = {"tables": len(own), "given_up": given_up, "reason": reason}
    record_event(conn, "progression_migrate.detach", details=details, actor=actor, now=now)
    return Detached(len(own), given_up)


def _refuse_owner(conn: Connection, names: set[str]) -> None:
    if migration_lease.name not in names:
        return
    found = read_ownership(conn, process_name())
    if found.owner is not None and not found.is_self:
        seconds = math.ceil(found.left_seconds)
        raise OwnershipConflictError(
            f"{found.owner} migrates this store: stop it first, or if it has died wait {seconds} s until its lease"
            " ends; nothing was changed"
        )


def _refuse_left_json(conn: Connection, names: set[str]) -> int:
    """Refuse when a JSON value is not the authority; return how many state rows go."""
    if progression_storage_state.name not in names:
        return 0
    beyond = select(func.count()).select_from(progression_storage_state).where(_BEYOND)
    count = conn.execute(beyond).scalar_one()
    if count:
        some = select(_s.progression_id).where(_BEYOND).order_by(_s.progression_id).limit(_NAMED)
        named = ", ".join(conn.execute(some).scalars())
        more = ", and others" if count > _NAMED else ""
        raise PhaseConflictError(
            f"{count} progressions have left their JSON: {named}{more}; their newer items are"
            " in lionstate's tables only. Possible instead: keep lionstate on this store, or unblock and step what is"
            " blocked or being deleted; nothing was changed"
        )
    total: int = conn.execute(select(func.count()).select_from(progression_storage_state)).scalar_one()
    return total
