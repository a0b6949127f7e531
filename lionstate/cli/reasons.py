"""Why migration does not go on, in words: what waits, its value, its limit, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lionstate.cli.tables import ago

if TYPE_CHECKING:
    from lionstate.migration import (
        Explanation,
        ForeignWriters,
        MigrationStatus,
        MigrationStep,
        Ownership,
        VerificationResult,
    )

__all__ = [
    "foreign_lines",
    "owner_line",
    "so_far",
    "stuck_lines",
    "throttle_lines",
    "what_to_do",
    "why_not_compared",
    "why_not_scrubbed",
    "why_stopped",
]

_NAMED = 5
_NOT_READY = {
    "store_moved": "put the store's file, or its -wal, back in its place; or stop the daemon in order, and start it on"
    " the file that is meant. Writes are refused meanwhile",
    "disk_full": "make room on the store's disk; writes are refused until then, and go on by themselves",
    "no_answer": "see to the database, which does not answer; the daemon asks again by itself",
    "backend_unavailable": "see to the database, which the daemon does not reach; it asks again by itself",
}


def foreign_lines(found: ForeignWriters) -> Iterator[str]:
    """Which other programs seem to write the store, by what they wrote and when."""
    newest = sorted(found.sessions, key=lambda one: -one[1])[:_NAMED]
    if newest:
        named = ", ".join(f"{progression} ({ago(at)})" for progression, at in newest)
        yield f"another program seems to write {len(found.sessions)} sessions of this store: {named}"
    if found.progressions:
        yield f"another program wrote progressions in dual: {', '.join(found.progressions[:_NAMED])}"
    elif found.sighted_at is not None:
        yield f"another program wrote a progression in dual (found {ago(found.sighted_at)})"
    if newest or found.sighted_at is not None:
        yield "  cutovers wait for it: switch it off, bridge it, or accept it with step --accept-foreign-writers"


def throttle_lines(found: MigrationStatus) -> Iterator[str]:
    """Each signal that migration waits for, with value, limit and age, and whether the lane starves."""
    from lionstate.migration.throttle import reading

    for one in found.throttle.tripped:
        value, limit = reading(one.signal, one.value), reading(one.signal, one.limit)
        yield f"throttled: {one.signal} {value}, limit {limit}, for {one.age_seconds or 0.0:.0f} s ({one.reason})"
    if found.throttle.starved:
        yield f"STARVED: throttled without progress for {found.throttle.waited_seconds or 0.0:.0f} s"


def stuck_lines(found: MigrationStatus) -> Iterator[str]:
    """Everything that keeps migration from going on by itself: signals, here and elsewhere, and what fails."""
    from lionstate.migration.throttle import reading

    yield from throttle_lines(found)
    told = found.elsewhere
    if told is not None:
        for one in told.signals:
            value, limit = reading(one.signal, one.value), reading(one.signal, one.limit)
            age = (one.age_seconds or 0.0) + found.measured_at - told.seen_at
            yield (
                f"throttled in {told.process}: {one.signal} {value}, limit {limit}, for {age:.0f} s"
                f" ({one.reason}; it said so {ago(told.seen_at)})"
            )
    for fails in found.failing:
        yield (
            f"FAILING: {fails.part}: {fails.code}, {fails.attempts} attempts since {ago(fails.since)}, the last"
            f" {ago(fails.last_at)}; it is tried again by itself (the log has the reason)"
        )


def what_to_do(not_ready: str) -> str:
    """What helps a daemon whose ``/readyz`` says this reason."""
    return _NOT_READY.get(not_ready, "its log has the reason; it asks again by itself")


def owner_line(owner: Ownership, *, asks_daemon: bool = False) -> str:
    """Which process migrates the store; the one that is asked may be a daemon."""
    if owner.owner is None:
        return "owner: no process migrates this store now"
    who = ("the daemon" if asks_daemon else "this process") if owner.is_self else owner.owner
    return f"owner: {who}, for {owner.left_seconds:.0f} s more unless it renews (epoch {owner.epoch})"


def why_stopped(last: MigrationStep, after: MigrationStatus) -> list[str]:
    """Why a step ended before everything was done; [] when nothing kept it.

    Args:
        after: The status that was read right after it, whose blocked progressions are told too.
    """
    from lionstate.errors import BlockedCode, HeldReason
    from lionstate.migration import StopReason
    from lionstate.migration.runbook import HELD_RUNBOOK, RUNBOOK

    lines: list[str] = []
    if last.stop_reason is StopReason.NOT_OWNER:
        lines.append(f"not_owner: another process migrates this store; {owner_line(after.owner)}")
    elif last.stop_reason is StopReason.THROTTLED:
        lines += list(throttle_lines(after)) or ["throttled: the store was under load, and is not any more: step again"]
    elif last.stop_reason is StopReason.BUSY:
        lines.append("busy: the store stayed locked, or what was proved kept changing; nothing was lost: step again")
    lines += [f"held: {code} {count}: {HELD_RUNBOOK[HeldReason(code)]}" for code, count in last.held.items() if count]
    lines += [f"blocked: {code} {count}: {RUNBOOK[BlockedCode(code)]}" for code, count in sorted(after.blocked.items())]
    return lines


def why_not_compared(found: VerificationResult) -> str | None:
    """Why a verification had nothing to compare; None when it compared."""
    from lionstate.migration import VerificationOutcome

    if found.outcome is not VerificationOutcome.NOT_APPLICABLE:
        return None
    return f"nothing to compare: a progression in {found.phase} has one representation that is trusted"


def so_far(found: VerificationResult) -> str:
    """What a verification that was cut short has seen; nothing in it is said of the rows that it did not read."""
    if found.code is None:
        return f"{found.items_count} rows compared"
    at = "" if found.first_difference is None else f" at ordinal {found.first_difference}"
    return f"{found.items_count} rows compared, and they differ{at} ({found.code} so far)"


def why_not_scrubbed(found: Explanation) -> str:
    """Why a scrub of one progression had nothing to compare."""
    blocked = "" if found.blocked_code is None else f" ({found.blocked_code})"
    return f"nothing was compared: it is in {found.phase}{blocked}; what is in items or half copied can be compared"
