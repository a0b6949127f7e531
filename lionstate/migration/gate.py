"""What may forbid a stage, looked at under its lock: another owner, a pause, an order of the operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, bindparam, cast, null, or_, select, union_all

from lionstate.dialects import Statement
from lionstate.errors import HeldReason
from lionstate.migration.control import PAUSE_KEY
from lionstate.migration.lease import LEASE_NAME
from lionstate.migration.orders import HOLD_ALL_KEY, OrderKind
from lionstate.migration.report import Stage, StageOutcome
from lionstate.schema.own import migration_control, migration_lease, progression_orders
from lionstate.schema.types import Seconds

__all__ = ["CUTOVER", "MOVE", "REMOVE", "Permit", "holds", "refusal"]

REMOVE: Final[frozenset[str]] = frozenset()
"""The orders that forbid the removal of rows which no phase reads: none."""

MOVE: Final[frozenset[str]] = frozenset((OrderKind.EXCLUDE.value,))
"""Those that forbid admission and copying."""

CUTOVER: Final[frozenset[str]] = MOVE | {OrderKind.HOLD.value, HOLD_ALL_KEY}
"""Those that forbid a cutover."""


@dataclass(frozen=True, slots=True)
class Permit:
    """What a step may do.

    Attributes:
        over: Orders that it goes over, because the operator commanded it.
        owner: Who has the lease of maintenance, and at which epoch; without an owner it is not looked at.
    """

    over: frozenset[str] = frozenset()
    owner: str = ""
    epoch: int = 0


_control, _orders, _lease = migration_control.c, progression_orders.c, migration_lease.c
_IN_FORCE = Statement(
    union_all(
        select(_control.key.label("name"), _control.expires_at).where(
            or_(_control.key == PAUSE_KEY, _control.key == HOLD_ALL_KEY)
        ),
        select(_orders.kind, _orders.expires_at).where(_orders.progression_id == bindparam("pid")),
        # A row only when another process has taken over.
        select(_lease.name, cast(null(), Seconds)).where(
            _lease.name == LEASE_NAME, or_(_lease.owner != bindparam("owner"), _lease.epoch != bindparam("epoch"))
        ),
    )
)


def _in_force(conn: Connection, progression_id: str, permit: Permit, now: float) -> frozenset[str]:
    rows = _IN_FORCE.rows(conn, {"pid": progression_id, "owner": permit.owner, "epoch": permit.epoch})
    return frozenset(name for name, expires_at in rows if expires_at is None or expires_at > now)


def refusal(
    conn: Connection, /, progression_id: str, permit: Permit, now: float, *, orders: frozenset[str] = MOVE
) -> Stage | None:
    """Why a stage may not go on now; None if it may.

    Args:
        orders: Those that forbid this kind of stage.

    Cost: one statement, three seeks and a short range.
    Contract: design decisions 26, 27.
    """
    names = _in_force(conn, progression_id, permit, now)
    if permit.owner and LEASE_NAME in names:
        return Stage(StageOutcome.LOST)
    if PAUSE_KEY in names:
        return Stage(StageOutcome.PAUSED)
    if (names & orders) - permit.over:
        return Stage(StageOutcome.HELD, held=HeldReason.OPERATOR)
    return None


def holds(conn: Connection, /, progression_id: str, permit: Permit, now: float) -> bool:
    """Whether an order keeps a complete progression from its cutover; for a look outside the lock."""
    return bool((_in_force(conn, progression_id, permit, now) & CUTOVER) - permit.over)
