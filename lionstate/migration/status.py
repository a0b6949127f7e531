"""The queries behind ``status()`` and ``blocked()``: reads in one snapshot, no write lock, no message ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import Connection, func, or_, select

from lionstate.dialects import dialect_of
from lionstate.errors import BlockedCode
from lionstate.migration import candidates
from lionstate.migration.control import ACCEPT_FOREIGN_KEY, get_maintenance_enabled, get_pause, maintenance_order
from lionstate.migration.fence import read_fence
from lionstate.migration.foreign import read_foreign
from lionstate.migration.lane import MOVING_PARTS, read_elsewhere
from lionstate.migration.lease import read_ownership
from lionstate.migration.orders import read_orders, read_ready
from lionstate.migration.progress import held_back, read_amounts, read_progress
from lionstate.migration.report import BlockedProgression, HotProgression, MigrationStatus
from lionstate.migration.scrub_pass import ProofStatus, load_pass
from lionstate.progression.control import COMPAT_READ_KEY, switch_is_on
from lionstate.progression.phases import Phase
from lionstate.schema.conversation import progressions
from lionstate.schema.own import progression_activity, progression_sizes, progression_storage_state

__all__ = ["Counts", "count_phases", "read_blocked", "read_status", "with_progress_held"]

_s = progression_storage_state.c


def completion(phases: Mapping[str, int]) -> float:
    """Share of migratable progressions that are in ``items``: 1 exactly when none is left, an empty store is done."""
    left = phases[Phase.JSON] + phases[Phase.DUAL]
    done = phases[Phase.ITEMS]
    return done / (done + left) if left else 1.0


class Counts(NamedTuple):
    """Progressions by phase (every phase is a key), blocked ones by code, waiting ones by what holds them."""

    phases: Counter[str]
    blocked: Counter[str]
    held: Counter[str]


def count_phases(conn: Connection, /) -> Counts:
    """Count progressions; those without a state row are in ``json``, those being deleted in no phase.

    Cost: one pass over the state rows and an index of the progressions.
    """
    phases: Counter[str] = Counter({phase.value: 0 for phase in Phase})
    blocked: Counter[str] = Counter()
    held: Counter[str] = Counter()
    grouped = select(_s.phase, _s.blocked_reason, _s.held_reason, func.count()).group_by(
        _s.phase, _s.blocked_reason, _s.held_reason
    )
    for phase, reason, holding, count in conn.execute(grouped):
        if phase == Phase.BLOCKED and reason == BlockedCode.DELETING:
            # Answers as missing; its rows are on their way out.
            phases["json"] -= count
            continue
        phases[phase] += count
        if phase == Phase.BLOCKED:
            blocked[str(reason)] += count
        if holding is not None:
            held[holding] += count
    total = conn.execute(select(func.count()).select_from(progressions)).scalar_one()
    phases["json"] += total - sum(phases.values())
    return Counts(phases, blocked, held)


def read_status(
    conn: Connection, /, *, limit: int, seen: Mapping[str, int], process: str, now: float
) -> MigrationStatus:
    """Read the status.

    Args:
        limit: Hottest progressions to name.
        seen: Appends observed in memory and not yet written.
        process: The name of the asking one, as in a lease.

    Cost: one pass over the state rows, the sizes, the activity, the orders and an index of the progressions.
    Contract: ADR-0117 D5 (status).
    """
    phases, blocked, held = count_phases(conn)
    dual = select(func.sum(_s.source_count - _s.backfill_next), func.min(_s.updated_at)).where(
        _s.phase == Phase.DUAL.value
    )
    remaining, oldest = conn.execute(dual).one()
    pause = get_pause(conn, now)
    amounts, kept_back = read_amounts(conn), candidates.kept_back(conn, now=now)
    progress = read_progress(conn, phases, amounts, kept_back, paused=pause is not None, now=now)
    foreign = read_foreign(conn, seen=seen, now=now)
    return MigrationStatus(
        phases=dict(phases),
        remaining_items=None if phases["json"] else int(remaining or 0),
        remaining_admitted_items=int(remaining or 0),
        oldest_updated_at=oldest,
        blocked=dict(blocked),
        held=dict(held),
        hottest=_hottest(conn, limit, seen),
        pause=pause,
        accept_foreign_writers=switch_is_on(conn, ACCEPT_FOREIGN_KEY),
        foreign_sessions=len(foreign.sessions),
        foreign_progressions=len(foreign.progressions),
        foreign_sighted_at=foreign.sighted_at,
        compat_read_everywhere=switch_is_on(conn, COMPAT_READ_KEY),
        sizes_measured=amounts.sized,
        sizes_measured_at=amounts.measured_at,
        completion=completion(phases),
        measured_at=now,
        owner=read_ownership(conn, process),
        fence=read_fence(conn),
        orders=read_orders(conn, now=now),
        ready=read_ready(conn),
        progress=progress,
        maintenance_enabled=get_maintenance_enabled(conn),
        maintenance_order=maintenance_order(conn),
        proof=ProofStatus.of(load_pass(conn)),
        elsewhere=read_elsewhere(conn, process, now),
    )


def with_progress_held(found: MigrationStatus, *, keeps_lease: bool) -> MigrationStatus:
    """The status with neither a rate nor a time left while nothing can move, as the asked process knows. Pure.

    Args:
        keeps_lease: Of the asked process; one that was disabled has the lease until its next tick.
    """
    # How long the store stays under load, or an error lasts, is not known.
    held = (
        found.throttle.throttled
        or found.not_ready is not None
        or found.owner.owner is None
        or any(one.part in MOVING_PARTS for one in found.failing)
        or (keeps_lease and found.automatic is False)
    )
    return replace(found, progress=held_back(found.progress, held=held))


def _hottest(conn: Connection, limit: int, seen: Mapping[str, int]) -> tuple[HotProgression, ...]:
    """Merge what is kept with what is in memory; a progression counts while its JSON takes the appends."""
    dialect = dialect_of(conn)
    kept = progression_activity.c
    query = (
        select(kept.progression_id, kept.appends, progression_sizes.c.bytes, progression_sizes.c.measured_at)
        .select_from(
            progression_activity.outerjoin(
                progression_storage_state, _s.progression_id == kept.progression_id
            ).outerjoin(progression_sizes, progression_sizes.c.progression_id == kept.progression_id)
        )
        .where(or_(_s.authority.is_(None), _s.authority == "json"))
    )
    top = query.order_by(kept.appends.desc(), kept.progression_id).limit(limit)
    found = {row[0]: (row[1], row[2], row[3]) for row in conn.execute(top)}
    fresh = [pid for pid, _ in Counter(dict(seen)).most_common(limit) if pid not in found]
    if fresh:
        states = select(_s.progression_id).where(_s.authority != "json")
        cut = states.where(dialect.among(_s.progression_id, "ids"))
        left = set(conn.execute(cut, {"ids": dialect.bind_ids(fresh)}).scalars())
        fresh = [pid for pid in fresh if pid not in left]
        rows = conn.execute(query.where(dialect.among(kept.progression_id, "ids")), {"ids": dialect.bind_ids(fresh)})
        known = {row[0]: (row[1], row[2], row[3]) for row in rows}
        found.update({pid: known.get(pid, (0, None, None)) for pid in fresh})
    hot = [
        HotProgression(pid, appends + seen.get(pid, 0), size, measured_at)
        for pid, (appends, size, measured_at) in found.items()
    ]
    return tuple(sorted(hot, key=lambda one: (-one.appends, one.progression_id))[:limit])


def read_blocked(conn: Connection, /, *, limit: int) -> tuple[BlockedProgression, ...]:
    """Blocked progressions, those blocked longest first; tombstones left out. Cost: one index range."""
    query = (
        select(_s.progression_id, _s.blocked_reason, _s.authority, _s.next_ordinal, _s.compat_read, _s.updated_at)
        .where(_s.phase == Phase.BLOCKED.value)
        .where(_s.blocked_reason != BlockedCode.DELETING.value)
        .order_by(_s.updated_at, _s.progression_id)
        .limit(limit)
    )
    return tuple(BlockedProgression(r[0], r[1], r[2], r[3], bool(r[4]), r[5]) for r in conn.execute(query))
