"""``explain()``: why one progression is where it is, and what would move it; reads only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sqlalchemy import Connection, select

from lionstate.audit import last_event
from lionstate.dialects import dialect_of
from lionstate.errors import BlockedCode, HeldReason, NotFoundError
from lionstate.migration import candidates
from lionstate.migration.control import Pause, get_maintenance_enabled, get_pause, maintenance_order
from lionstate.migration.cutover import ROLLBACK_ACTION
from lionstate.migration.orders import Order, OrderKind, compat_everywhere, hold_all, orders_of, proof_of
from lionstate.migration.report import ThrottleStatus
from lionstate.migration.runbook import HELD_RUNBOOK, RUNBOOK
from lionstate.migration.throttle import reading
from lionstate.progression.compat import compat_is_on
from lionstate.progression.phases import Authority, Phase
from lionstate.progression.sightings import sighted_at
from lionstate.progression.storage_state import StorageState, get_state
from lionstate.schema.own import progression_activity, progression_sizes

__all__ = ["Explanation", "explain", "load_waits", "store_waits", "turn_waits"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """One progression and what it waits for; holds no message ids.

    Attributes:
        progression_id: The progression.
        phase: Its phase; ``json`` without a state row.
        authority: Which representation counts: ``json``, ``items`` or ``none``.
        waits: Why it does not move now, most decisive first; () when the next step works on it, or it is done.
        blocked_code: With ``blocked``: why.
        held_reason: Why automatic work passes it over.
        held_detail: The figure behind that.
        copied: Elements of the admission prefix that are copied; None outside ``dual``.
        to_copy: Elements of the admission prefix; None outside ``dual``.
        next_ordinal: The allocator; None without a state row.
        frozen_count: Elements of the JSON at its cutover.
        compat_read: Whether it is read from the frozen prefix and the tail now, by its own switch or the global one.
        compat_read_by: Who switched that on; None when a block did.
        compat_read_reason: Why, as it was said then.
        compat_read_until: When its own switch is off again by itself, epoch seconds; None without such an end.
        size_bytes: Bytes of its JSON value when it was measured; None when it was not.
        measured_at: When that was, epoch seconds.
        appends: Appends observed and kept while its JSON took them; None when none were kept.
        updated_at: Last change of its state, epoch seconds.
        cutover_at: When it was cut over.
        orders: What an operator ordered for it, and is in force: who, why, since when and until when.
        ready_since: Stage ``ready``: when it was proved, while its cutover waits for a command; None otherwise.
    """

    progression_id: str
    phase: str
    authority: str
    waits: tuple[str, ...]
    blocked_code: str | None = None
    held_reason: str | None = None
    held_detail: str | None = None
    copied: int | None = None
    to_copy: int | None = None
    next_ordinal: int | None = None
    frozen_count: int | None = None
    compat_read: bool = False
    compat_read_by: str | None = None
    compat_read_reason: str | None = None
    compat_read_until: float | None = None
    size_bytes: int | None = None
    measured_at: float | None = None
    appends: int | None = None
    updated_at: float | None = None
    cutover_at: float | None = None
    ready_since: float | None = None
    orders: tuple[Order, ...] = ()


def explain(conn: Connection, /, progression_id: str, *, now: float, automatic: bool | None = None) -> Explanation:
    """Tell the state of one progression and why it does not move.

    Args:
        automatic: Whether the daemon that is asked migrates by itself; None when none is.
    Raises:
        NotFoundError: There is no such progression.

    Cost: eleven seeks at most; no lock.
    Contract: ADR-0117 D5; design §5.
    """
    state = get_state(conn, progression_id)
    if not dialect_of(conn).existing_progressions(conn, [progression_id]) or (state and state.is_tombstone):
        raise NotFoundError("there is no such progression")
    sizes, activity = progression_sizes.c, progression_activity.c
    size = conn.execute(
        select(sizes.bytes, sizes.measured_at).where(sizes.progression_id == progression_id)
    ).one_or_none()
    seen = conn.execute(select(activity.appends).where(activity.progression_id == progression_id)).one_or_none()
    known = Explanation(
        progression_id,
        Phase.JSON.value,
        Authority.JSON.value,
        (),
        size_bytes=size[0] if size else None,
        measured_at=size[1] if size else None,
        appends=seen[0] if seen else None,
    )
    ordered = orders_of(conn, progression_id, now)
    if state is None:
        waits = [*store_waits(conn, now, automatic), *_order_waits(conn, ordered, None, now)]
        if size is None:
            waits.append("its size has not been measured yet: the next steps do that")
        return replace(known, waits=tuple(waits), orders=tuple(ordered.values()))
    is_dual = state.phase is Phase.DUAL
    compat = ordered.get(OrderKind.COMPAT_READ)
    is_compat = state.authority is Authority.ITEMS and compat_is_on(conn, state)
    everywhere = compat_everywhere(conn, now) if is_compat and state.phase is Phase.ITEMS else None
    switched = compat or everywhere
    proof = proof_of(conn, progression_id, state.generation) if is_dual else None
    ready_since = None if proof is None else proof[1]
    waits = _waits(conn, state, now, automatic)
    if state.phase in (Phase.JSON, Phase.DUAL):
        waits += _order_waits(conn, ordered, None if proof is None else state.next_ordinal - proof[0], now)
    return replace(
        known,
        phase=state.phase.value,
        authority=state.authority.value,
        waits=tuple(waits),
        blocked_code=state.blocked_reason,
        held_reason=state.held_reason,
        held_detail=state.held_detail,
        copied=state.backfill_next if is_dual else None,
        to_copy=state.source_count if is_dual else None,
        next_ordinal=state.next_ordinal,
        frozen_count=state.frozen_count,
        compat_read=is_compat,
        compat_read_by=None if switched is None else switched.actor,
        compat_read_reason=None if switched is None else switched.reason,
        compat_read_until=None if compat is None else compat.expires_at,
        updated_at=state.updated_at,
        cutover_at=state.cutover_at,
        ready_since=ready_since,
        orders=tuple(ordered.values()),
    )


def turn_waits(conn: Connection, found: Explanation, now: float) -> tuple[str, ...]:
    """What goes before it in the order in which migration works; () when it is next, or its size is not known.

    Cost: one pass over the sizes and the copies under way.
    """
    if OrderKind.PRIORITIZE in orders_of(conn, found.progression_id, now):
        return ()
    if found.phase == Phase.DUAL.value and found.copied is not None and found.to_copy is not None:
        copies, smaller = candidates.copies_before(conn, found.progression_id, found.to_copy - found.copied, now=now), 0
    elif found.phase == Phase.JSON.value and found.size_bytes is not None:
        copies = candidates.copies_before(conn, found.progression_id, None, now=now)
        smaller = candidates.smaller_before(conn, found.progression_id, found.size_bytes, now=now)
    else:
        return ()
    if not copies and not smaller:
        return ()
    return (
        f"it waits for its turn: before it are {copies} that are begun and {smaller} smaller JSON values; what is begun"
        " is finished first, then the smallest is taken (prioritize takes it before them)",
    )


def store_waits(conn: Connection, now: float, automatic: bool | None = None) -> list[str]:
    """What keeps the whole store from moving; ``automatic`` is what the settings of the asked daemon say."""
    waits = []
    pause = get_pause(conn, now)
    if pause is not None:
        waits.append(f"migration is paused by {_by(pause)}: resume it{_or_by_itself(pause.expires_at)}")
    persisted = get_maintenance_enabled(conn)
    if persisted is False:
        order = maintenance_order(conn)
        by = "" if order is None else f" by {_by(order)}"
        waits.append(f"automatic migration is disabled{by}: enable it, or step by hand")
    elif persisted is None and automatic is False:
        waits.append(
            "automatic migration is disabled in the daemon's settings (maintenance.enabled): enable it, or step by hand"
        )
    return waits


def load_waits(throttle: ThrottleStatus) -> list[str]:
    """What every progression waits for because the store is under load: each signal, its value, limit and age."""
    return [
        f"throttled: {one.signal} is {reading(one.signal, one.value)},"
        f" its limit is {reading(one.signal, one.limit)}, since {one.age_seconds or 0:.0f} s:"
        " it goes on by itself when that eases"
        for one in throttle.tripped
    ]


def _time(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        # No calendar goes that far.
        return f"epoch second {at:.0f}"


def _by(order: Order | Pause) -> str:
    """Who ordered it, since when, and why."""
    why = "" if order.reason is None else f": {order.reason}"
    return f"{order.actor} (since {_time(order.since)}{why})"


def _or_by_itself(end: float | None) -> str:
    return "" if end is None else f"; it ends by itself at {_time(end)}"


def _order_waits(conn: Connection, ordered: Mapping[str, Order], appended: int | None, now: float) -> list[str]:
    """What orders keep it from; ``appended`` since its proof, None without one."""
    waits = []
    if (order := ordered.get(OrderKind.EXCLUDE)) is not None:
        end = "" if order.expires_at is None else f"{_time(order.expires_at)}, or "
        waits.append(f"excluded by {_by(order)}: automatic work passes over it until {end}exclude --clear")
    held = ordered.get(OrderKind.HOLD) or hold_all(conn, now)
    if held is not None:
        way = "release" if held.progression_id else "release --all"
        waits.append(
            f"its cutover is held by {_by(held)}: cutover it by command, or {way}{_or_by_itself(held.expires_at)}"
        )
    if appended is not None:
        waits.append(f"ready: proved, {appended} appended since; cutover proves it again first")
    return waits


def _waits(conn: Connection, state: StorageState, now: float, automatic: bool | None) -> list[str]:
    if state.phase is Phase.BLOCKED and state.blocked_reason is not None:
        return [f"blocked {state.blocked_reason}: {RUNBOOK[BlockedCode(state.blocked_reason)]}"]
    if state.phase is Phase.ITEMS:
        return []
    waits = store_waits(conn, now, automatic)
    if state.held_reason is not None:
        waits.append(
            f"held {state.held_reason}: {_rolled_back(conn, state)}{HELD_RUNBOOK[HeldReason(state.held_reason)]}"
        )
    if state.phase is Phase.JSON and state.shadow_rows:
        waits.append("rows of its rolled back copy are removed first")
    complete = state.phase is Phase.DUAL and state.backfill_next == state.source_count
    if complete and state.held_reason is None and sighted_at(conn, now) is not None:
        waits.append(HELD_RUNBOOK[HeldReason.FOREIGN_WRITER])
    return waits


def _rolled_back(conn: Connection, state: StorageState) -> str:
    """Who rolled it back, which is what holds in ``json`` by the operator; empty for everything else."""
    if state.phase is not Phase.JSON or state.held_reason != HeldReason.OPERATOR:
        return ""
    event = last_event(conn, ROLLBACK_ACTION, state.progression_id)
    if event is None:
        return ""
    reason = event.details.get("reason")
    return f"rolled back by {_by(Order(ROLLBACK_ACTION, event.actor, reason, event.at, None))}; "
