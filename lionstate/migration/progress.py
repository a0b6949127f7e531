"""How far migration is and how long it will take: 0 to 1, exactly 1 at the end, unknown where nothing was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from sqlalchemy import Connection, case, func, or_, select

from lionstate.migration.speed import Speed, load_speed, weight_of
from lionstate.progression.phases import Phase
from lionstate.schema.own import progression_sizes, progression_storage_state

__all__ = [
    "LEFT_BYTES",
    "UNDER_WAY",
    "Activity",
    "Amounts",
    "KeptBack",
    "Progress",
    "UnderWay",
    "held_back",
    "progress_of",
    "read_amounts",
    "read_progress",
]

_s = progression_storage_state.c
_bytes = progression_sizes.c.bytes
_share = 1.0 * _s.backfill_next / func.nullif(_s.source_count, 0)
LEFT_BYTES: Final = _bytes * (1.0 - case((_s.phase == Phase.DUAL.value, func.coalesce(_share, 1.0)), else_=0.0))
"""JSON of a sized progression that is not copied, of a join with its state row."""

_SIZED = select(func.count(), func.min(progression_sizes.c.measured_at), func.sum(_bytes))
# Of those that have left the JSON or are on their way, which still may have a size.
_MEASURED = (
    select(
        _s.phase,
        func.count(progression_sizes.c.progression_id),
        func.sum(_bytes),
        func.sum(_bytes * func.coalesce(_share, 1.0)),
        func.sum(func.coalesce(_share, 1.0)),
    )
    .select_from(
        progression_storage_state.outerjoin(progression_sizes, progression_sizes.c.progression_id == _s.progression_id)
    )
    .where(or_(_s.phase == Phase.DUAL.value, _s.phase == Phase.BLOCKED.value))
    .group_by(_s.phase)
)
_FROZEN = select(func.sum(_s.text_bytes)).where(_s.phase == Phase.ITEMS.value)
UNDER_WAY: Final = (
    select(_s.progression_id, _s.backfill_next, _s.source_count)
    .where(_s.phase == Phase.DUAL.value)
    .where(_s.backfill_next < _s.source_count)
    .order_by(_s.updated_at.desc())
    .limit(3)
)
"""The copies that moved last; a range of the phase index, newest first."""


class Activity(StrEnum):
    """What migration is doing, as its status tells it."""

    DONE = "done"
    PAUSED = "paused"
    # Something was moved within the last half minute.
    MOVING = "moving"
    # Nothing moves: nobody migrates, it is not enabled, held, throttled, fails, or has just begun.
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A progression that is being copied: elements of its admission prefix done, and in all."""

    progression_id: str
    copied: int
    to_copy: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far migration is.

    Attributes:
        activity: What it is doing.
        fraction: 0 to 1, exactly 1 when nothing is left to move. By bytes of JSON, one that was not measured counts
            as the mean of the others; by progressions while none was. Blocked ones do not count.
        left: Progressions in ``json`` and ``dual``.
        left_bytes: JSON still to be moved; None until every size has been measured.
        items_per_second: Elements copied lately, waiting between steps included; None when nothing moves.
        eta_seconds: Time left as things go, for what can move; None when paused or throttled, while steps fail or
            nobody migrates, when nothing can move, when it began a moment ago, or when sizes have not been measured.
        under_way: The copies that moved last, at most three.
        kept_back: Of ``left``, those that cannot move now: excluded, held, or ready while an order holds their cutover.
    """

    activity: Activity
    fraction: float
    left: int
    left_bytes: int | None
    items_per_second: float | None
    eta_seconds: float | None
    under_way: tuple[UnderWay, ...]
    kept_back: int = 0


@dataclass(frozen=True, slots=True)
class KeptBack:
    """Of what is in ``json`` and ``dual``, that which automatic work passes over.

    Attributes:
        count: Progressions that are excluded, held, or ready while an order holds their cutover.
        sized: Those of them whose size is known.
        left_bytes: JSON of these that is not copied.
    """

    count: int = 0
    sized: int = 0
    left_bytes: float = 0.0


_NOTHING_KEPT_BACK: Final = KeptBack()


@dataclass(frozen=True, slots=True)
class Amounts:
    """What the tables say of sizes.

    Attributes:
        sized: JSON progressions whose size is known.
        json_bytes: Their bytes.
        dual_sized: Dual ones whose size is known.
        dual_bytes: Their bytes.
        dual_copied_bytes: Bytes of these that are copied, by the share of elements.
        dual_copied: Dual progressions, each counted as the share of it that is copied.
        items_bytes: Bytes of the JSON of those in ``items``.
        measured_at: The oldest measurement.
    """

    sized: int = 0
    json_bytes: int = 0
    dual_sized: int = 0
    dual_bytes: int = 0
    dual_copied_bytes: float = 0.0
    dual_copied: float = 0.0
    items_bytes: int = 0
    measured_at: float | None = None


def progress_of(
    phases: Mapping[str, int],
    amounts: Amounts,
    speed: Speed,
    *,
    paused: bool,
    now: float,
    kept_back: KeptBack = _NOTHING_KEPT_BACK,
    under_way: tuple[UnderWay, ...] = (),
) -> Progress:
    """Put the counts together. Pure."""
    json, dual, done = phases[Phase.JSON], phases[Phase.DUAL], phases[Phase.ITEMS]
    left = json + dual
    if left == 0:
        return Progress(Activity.DONE, 1.0, 0, 0, None, None, ())
    unmeasured = max(0, json - amounts.sized) + max(0, dual - amounts.dual_sized)
    known = amounts.sized + amounts.dual_sized + done
    to_move = max(0.0, amounts.json_bytes + amounts.dual_bytes - amounts.dual_copied_bytes)
    if not unmeasured or known:
        # By bytes whenever there are some: a progression that was made a moment ago must not change the measure.
        mean = (amounts.json_bytes + amounts.dual_bytes + amounts.items_bytes) / max(1, known)
        left_weight = weight_of(to_move + unmeasured * mean, left)
        done_weight = weight_of(amounts.items_bytes + amounts.dual_copied_bytes, done)
    else:
        done_weight = done + amounts.dual_copied
        left_weight = max(0.0, left - amounts.dual_copied)
    all_weight = done_weight + left_weight
    can_move = max(0, left - kept_back.count)
    unmeasured_can_move = max(0, unmeasured - max(0, kept_back.count - kept_back.sized))
    weight_can_move = weight_of(max(0.0, to_move - kept_back.left_bytes), can_move)
    moves = not paused and can_move > 0 and speed.is_fresh(now)
    return Progress(
        activity=Activity.PAUSED if paused else Activity.MOVING if moves else Activity.WAITING,
        # Something is left, however little.
        fraction=max(0.0, min(done_weight / all_weight if all_weight else 0.0, 1 - 1e-9)),
        left=left,
        left_bytes=None if unmeasured else round(to_move),
        items_per_second=speed.items_per_second if moves else None,
        eta_seconds=speed.left_seconds(weight_can_move, now) if moves and not unmeasured_can_move else None,
        under_way=under_way,
        kept_back=left - can_move,
    )


def held_back(progress: Progress, *, held: bool) -> Progress:
    """The same while nothing can move: it has no rate and no time left.

    Args:
        held: Under load, failing, or nobody migrates.
    """
    if not held:
        return progress
    activity = Activity.WAITING if progress.activity is Activity.MOVING else progress.activity
    return replace(progress, activity=activity, items_per_second=None, eta_seconds=None)


def read_amounts(conn: Connection, /) -> Amounts:
    """What the tables say of sizes. Cost: one pass over the sizes and the state rows. Contract: design decision 19."""
    count, measured_at, size = conn.execute(_SIZED).one()
    by_phase = {row[0]: row[1:] for row in conn.execute(_MEASURED)}
    dual = by_phase.get(Phase.DUAL, (0, 0, 0.0, 0.0))
    blocked = by_phase.get(Phase.BLOCKED, (0, 0, 0.0, 0.0))
    return Amounts(
        sized=max(0, count - dual[0] - blocked[0]),
        json_bytes=max(0, int((size or 0) - (dual[1] or 0) - (blocked[1] or 0))),
        dual_sized=dual[0],
        dual_bytes=int(dual[1] or 0),
        dual_copied_bytes=float(dual[2] or 0),
        dual_copied=float(dual[3] or 0),
        items_bytes=int(conn.execute(_FROZEN).scalar_one() or 0),
        measured_at=measured_at,
    )


def read_progress(
    conn: Connection, /, phases: Mapping[str, int], amounts: Amounts, kept_back: KeptBack, *, paused: bool, now: float
) -> Progress:
    """Read how far migration is; counts and amounts are of the same snapshot.

    Args:
        phases: Progressions by phase.

    Cost: one range of the phase index and one seek.
    """
    under_way = tuple(UnderWay(*row) for row in conn.execute(UNDER_WAY))
    speed = load_speed(conn)
    return progress_of(phases, amounts, speed, paused=paused, now=now, kept_back=kept_back, under_way=under_way)
