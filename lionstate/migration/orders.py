"""What an operator orders: cutovers by command only, and for single progressions hold, exclude, prioritize."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, bindparam, case, delete, exists, func, or_, select

from lionstate.audit import record_event
from lionstate.dialects import Statement, dialect_of
from lionstate.errors import NotFoundError
from lionstate.progression.control import COMPAT_READ_KEY, switch_is_on
from lionstate.progression.phases import Phase
from lionstate.progression.storage_state import lock_many
from lionstate.schema.own import migration_control, progression_orders, progression_proofs, progression_storage_state

__all__ = [
    "HOLD_ALL_KEY",
    "Order",
    "OrderKind",
    "Orders",
    "Ready",
    "clear_order",
    "compat_everywhere",
    "drop_finished",
    "hold_all",
    "in_force",
    "is_ready",
    "keep_order",
    "keep_proof",
    "kept_order",
    "orders_of",
    "proof_of",
    "read_orders",
    "read_ready",
    "set_order",
    "take_back",
]

HOLD_ALL_KEY: Final = "hold_all"

_o = progression_orders.c
_p = progression_proofs.c
_s = progression_storage_state.c


class OrderKind(StrEnum):
    """An order for one progression: a closed set, stored in ``kind``."""

    PRIORITIZE = "prioritize"
    EXCLUDE = "exclude"
    HOLD = "hold"
    # A progression's own compat read: the switch is on its state row, who and why and until when is here.
    COMPAT_READ = "compat_read"


_PASSED = (OrderKind.PRIORITIZE, OrderKind.EXCLUDE, OrderKind.HOLD)


@dataclass(frozen=True, slots=True)
class Order:
    """Who ordered what, why, since when and until when (epoch seconds); without a progression for all of them."""

    kind: str
    actor: str
    reason: str | None
    since: float
    expires_at: float | None
    progression_id: str | None = None


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders in force.

    Attributes:
        hold_all: Cutovers happen by command only; None when they happen by themselves.
        counts: Orders for single progressions, by kind.
        newest: The newest of them, at most 20.
    """

    hold_all: Order | None
    counts: dict[str, int]
    newest: tuple[Order, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """Progressions at stage ``ready``: copied, proved, and waiting for ``cutover`` or ``release``.

    Attributes:
        oldest_proved_at: Oldest proof of them, epoch seconds; None if there is none.
        waiting: Those that nothing else holds: a command, or the end of the hold, is all that they wait for.
        appended: Those that have been appended to since; ``cutover`` proves every one of them again.
    """

    count: int = 0
    oldest_proved_at: float | None = None
    waiting: int = 0
    appended: int = 0


def in_force(table_progression_id: ColumnElement[Any], kind: OrderKind) -> ColumnElement[bool]:
    """Build the test whether a progression has an order of this kind; bind ``now``."""
    # Under a name of its own: the query around it may be one of the orders.
    given = progression_orders.alias().c
    mine = (given.progression_id == table_progression_id) & (given.kind == kind.value)
    return exists().where(mine, or_(given.expires_at.is_(None), given.expires_at > bindparam("now")))


_OF = Statement(
    select(_o.kind, _o.actor, _o.reason, _o.updated_at, _o.expires_at)
    .where(_o.progression_id == bindparam("pid"))
    .order_by(_o.kind)
)
_OF_ALL = Statement(
    select(
        migration_control.c.actor,
        migration_control.c.reason,
        migration_control.c.updated_at,
        migration_control.c.expires_at,
    ).where(migration_control.c.key == bindparam("key"))
)


def orders_of(conn: Connection, /, progression_id: str, now: float) -> dict[str, Order]:
    """The orders in force for one progression, by kind. Cost: one range of the primary key."""
    orders = _kept(conn, progression_id)
    return {order.kind: order for order in orders if order.expires_at is None or order.expires_at > now}


def kept_order(conn: Connection, /, progression_id: str, kind: OrderKind) -> Order | None:
    """One order for one progression, also when its end is past. Cost: one range of the primary key."""
    return next((order for order in _kept(conn, progression_id) if order.kind == kind), None)


def _kept(conn: Connection, progression_id: str) -> Iterator[Order]:
    for kind, actor, reason, since, end in _OF.rows(conn, {"pid": progression_id}):
        yield Order(kind, actor, reason, since, end, progression_id)


def hold_all(conn: Connection, /, now: float) -> Order | None:
    """The order that cutovers happen by command only; None when they happen by themselves. Cost: one seek."""
    return _of_all(conn, HOLD_ALL_KEY, OrderKind.HOLD, now)


def compat_everywhere(conn: Connection, /, now: float) -> Order | None:
    """Who switched the global compatibility read on, and why; None while it is off. Cost: two seeks."""
    if not switch_is_on(conn, COMPAT_READ_KEY):
        return None
    return _of_all(conn, COMPAT_READ_KEY, OrderKind.COMPAT_READ, now)


def _of_all(conn: Connection, key: str, kind: OrderKind, now: float) -> Order | None:
    for row in _OF_ALL.rows(conn, {"key": key}):
        if row[3] is None or row[3] > now:
            return Order(kind.value, *row)
    return None


def read_orders(conn: Connection, /, *, now: float, limit: int = 20) -> Orders:
    """All orders in force. Cost: one pass over the orders, of which there are as many as an operator gave."""
    valid = or_(_o.expires_at.is_(None), _o.expires_at > now)
    counts = select(_o.kind, func.count()).where(valid).group_by(_o.kind)
    newest = (
        select(_o.kind, _o.actor, _o.reason, _o.updated_at, _o.expires_at, _o.progression_id)
        .where(valid)
        .order_by(_o.updated_at.desc(), _o.progression_id, _o.kind)
        .limit(limit)
    )
    return Orders(
        hold_all(conn, now),
        {row[0]: row[1] for row in conn.execute(counts)},
        tuple(Order(*row) for row in conn.execute(newest)),
    )


def read_ready(conn: Connection, /) -> Ready:
    """How many progressions are at stage ``ready``. Cost: one pass over the kept proofs, one seek each."""
    grown: ColumnElement[Any] = func.sum(case((_s.next_ordinal > _p.item_count, 1), else_=0))
    waiting: ColumnElement[Any] = func.sum(case((_s.held_reason.is_(None), 1), else_=0))
    joined = progression_proofs.join(progression_storage_state, _s.progression_id == _p.progression_id)
    query = select(func.count(), func.min(_p.proved_at), waiting, grown).select_from(joined).where(is_ready())
    count, oldest, free, appended = conn.execute(query).one()
    return Ready(count, oldest, int(free or 0), int(appended or 0))


def is_ready() -> ColumnElement[bool]:
    """Build the test whether a kept proof, joined with its state row, still stands for its generation."""
    return (_s.phase == Phase.DUAL.value) & (_s.generation == _p.generation) & (_s.backfill_next == _s.source_count)


def proof_of(conn: Connection, /, progression_id: str, generation: int) -> tuple[int, float] | None:
    """Items and time of the kept proof of this generation; None if there is none. Cost: one seek."""
    query = select(_p.item_count, _p.proved_at).where(_p.progression_id == progression_id, _p.generation == generation)
    found = conn.execute(query).one_or_none()
    return None if found is None else (found[0], found[1])


def keep_proof(conn: Connection, /, progression_id: str, *, generation: int, items: int, now: float) -> None:
    """Keep that a complete dual progression was proved."""
    row = {"progression_id": progression_id, "generation": generation, "item_count": items, "proved_at": now}
    upsert = dialect_of(conn).upsert(progression_proofs, ["progression_id"], ["generation", "item_count", "proved_at"])
    conn.execute(upsert, row)


def drop_finished(conn: Connection, /, progression_id: str) -> None:
    """Forget the proof of a progression that is cut over, and the orders that are done with it."""
    conn.execute(delete(progression_proofs).where(_p.progression_id == progression_id))
    done = [kind.value for kind in _PASSED]
    conn.execute(delete(progression_orders).where(_o.progression_id == progression_id, _o.kind.in_(done)))


def set_order(
    conn: Connection,
    /,
    progression_id: str,
    kind: OrderKind,
    *,
    actor: str,
    reason: str | None,
    now: float,
    expires_at: float | None,
) -> None:
    """Give an order for one progression; replaces the one of that kind.

    Under the progression's lock, so that no stage that looked before it ends after it.

    Raises:
        NotFoundError: There is no such progression.

    Contract: design decision 26.
    """
    _lock(conn, progression_id)
    keep_order(conn, progression_id, kind, actor=actor, reason=reason, now=now, expires_at=expires_at)
    details = {"reason": reason, "expires_at": expires_at}
    record_event(conn, f"progression_migrate.{kind}", target_id=progression_id, details=details, actor=actor, now=now)


def keep_order(
    conn: Connection,
    /,
    progression_id: str,
    kind: OrderKind,
    *,
    actor: str,
    reason: str | None,
    now: float,
    expires_at: float | None,
) -> None:
    """Write an order of a locked progression, for callers that audit more than that."""
    row = {
        "progression_id": progression_id,
        "kind": kind.value,
        "actor": actor,
        "reason": reason,
        "updated_at": now,
        "expires_at": expires_at,
    }
    keys = ["progression_id", "kind"]
    conn.execute(dialect_of(conn).upsert(progression_orders, keys, [name for name in row if name not in keys]), row)


def clear_order(
    conn: Connection, /, progression_id: str, kind: OrderKind, *, actor: str, reason: str | None, now: float
) -> bool:
    """Take an order back; return whether there was one.

    Raises:
        NotFoundError: There is no such progression.

    Contract: design decision 26.
    """
    _lock(conn, progression_id)
    found = take_back(conn, progression_id, kind)
    if found:
        details = {"cleared": True, "reason": reason}
        record_event(
            conn, f"progression_migrate.{kind}", target_id=progression_id, details=details, actor=actor, now=now
        )
    return found


def take_back(conn: Connection, /, progression_id: str, kind: OrderKind) -> bool:
    """Remove an order of a locked progression, for callers that audit more than that."""
    mine = delete(progression_orders).where(_o.progression_id == progression_id, _o.kind == kind.value)
    return conn.execute(mine).rowcount > 0


def _lock(conn: Connection, progression_id: str) -> None:
    locked = lock_many(conn, [progression_id]).get(progression_id)
    if locked is None or (locked.state is not None and locked.state.is_tombstone):
        raise NotFoundError("there is no such progression")
