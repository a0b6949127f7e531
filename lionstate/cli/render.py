"""What the commands print: tables for people, one JSON object for machines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lionstate.cli.reasons import owner_line, stuck_lines, what_to_do, why_not_compared, why_stopped
from lionstate.cli.tables import console, duration, note, percent, print_json, printable, since, size, until

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

    from lionstate.migration import MigrationStatus, MigrationStep, VerificationResult

__all__ = [
    "counter",
    "pause_line",
    "progress",
    "progress_lines",
    "stages",
    "standing_lines",
    "status",
    "steps",
    "verification",
    "waiting_lines",
]

_UNMEASURED = "unknown until measured"
_PHASES = ("json", "dual", "items", "blocked")
# Between two lines about a long command where no bar can be drawn; one that is shorter says nothing.
_LINE_SECONDS = 10.0
_clock = time.monotonic


def _table(*columns: str, **options: Any) -> Table:
    from rich.table import Table

    return Table(*columns, **options)


def _ago(then: float | None) -> str:
    return "-" if then is None else f"{max(0.0, time.time() - then):.0f} s ago"


def pause_line(found: MigrationStatus) -> str:
    """Whether migration is paused: by whom, until when and why."""
    pause = found.pause
    if pause is None:
        return "migration: not paused"
    end = "until resumed" if pause.expires_at is None else f"for {max(0.0, pause.expires_at - time.time()):.0f} s more"
    verb = "STOPPED" if pause.stopped else "PAUSED"
    who = f"{pause.actor}{since(pause.since)}"
    return printable(f"migration: {verb} by {who}, {end}: {pause.reason or 'no reason given'}")


def _orders_line(found: MigrationStatus) -> str:
    """What an operator ordered beside a pause; empty without orders."""
    told = []
    hold = found.orders.hold_all
    if hold is not None:
        who = f"{hold.actor}{since(hold.since)}{until(hold.expires_at)}"
        told.append(f"cutovers BY COMMAND ONLY by {who}: {hold.reason or 'no reason given'}")
    told += [f"{kind} {count}" for kind, count in sorted(found.orders.counts.items())]
    return printable("; " + "; ".join(told)) if told else ""


def standing_lines(found: MigrationStatus) -> Iterator[str]:
    """Whether migration may go on at all: the daemon, a pause, orders, what it is stuck at, and if it is enabled."""
    if found.not_ready is not None:
        yield f"STORE: not ready: {found.not_ready}: {what_to_do(found.not_ready)}"
    yield pause_line(found) + _orders_line(found)
    yield from stuck_lines(found)
    if found.maintenance_enabled is None and found.automatic is False:
        yield (
            "automatic migration: disabled in the daemon's settings (maintenance.enabled):"
            " `lionstate progression-migrate enable` begins it, `step` moves by hand"
        )
    elif found.maintenance_enabled is not None:
        order, is_on = found.maintenance_order, found.maintenance_enabled
        who = "the operator" if order is None else f"{order.actor}{since(order.since)}"
        why = "" if order is None else f": {order.reason or 'no reason given'}"
        way = "" if is_on else "; `lionstate progression-migrate enable` begins it"
        yield f"automatic migration: {'enabled' if is_on else 'disabled'} by {who}{why}{way}"


def waiting_lines(found: MigrationStatus) -> Iterator[str]:
    """Which progressions wait for somebody, and what is seen of other programs."""
    for name, counts in (("blocked", found.blocked), ("held", found.held)):
        for reason, count in sorted(counts.items()):
            yield f"{name}: {reason} {count}"
    yield from _ready_lines(found)
    yield from _foreign_lines(found)


def _notice(found: MigrationStatus) -> Iterator[str]:
    """What follows from the state of the fence, before the first cutover too."""
    if found.fence.notice is not None:
        yield found.fence.notice


def _ready_lines(found: MigrationStatus) -> Iterator[str]:
    if found.ready.count:
        yield (
            f"ready for cutover: {found.ready.count}, the oldest proved {_ago(found.ready.oldest_proved_at)},"
            f" {found.ready.appended} appended to since (cutover proves them again)"
        )


def _remaining(found: MigrationStatus) -> str:
    if found.remaining_items is not None:
        return str(found.remaining_items)
    return f"{_UNMEASURED}; {found.remaining_admitted_items} in progressions that were admitted"


def _foreign_lines(found: MigrationStatus) -> Iterator[str]:
    """What is seen of other programs that write this store, and whether cutover waits for them."""
    consequence = (
        "accepted" if found.accept_foreign_writers else "cutover waits (step --accept-foreign-writers goes on)"
    )
    if found.foreign_sessions:
        yield f"another program seems to write {found.foreign_sessions} sessions of this store: {consequence}"
    if found.foreign_sighted_at is not None:
        seen = _ago(found.foreign_sighted_at)
        yield f"another program wrote a progression in dual (found {seen}): {consequence}"


def progress_lines(found: MigrationStatus) -> list[str]:
    """How far migration is, and how long it will take."""
    progress = found.progress
    done = f"{progress.activity}: {percent(progress.fraction)} of what can be moved"
    if not progress.left:
        return [done]
    size_left = "" if progress.left_bytes is None else f", {size(progress.left_bytes)} of JSON"
    rate = "" if progress.items_per_second is None else f", {progress.items_per_second:,.0f} items a second"
    stays = f", {progress.kept_back:,} of them held, excluded or waiting for a command" if progress.kept_back else ""
    left = f"left: {progress.left:,} progressions{size_left}{stays}"
    lines = [done, left, f"time left: {duration(progress.eta_seconds)}{rate}"]
    if progress.kept_back == progress.left:
        lines.append(
            "nothing of that moves by itself: `release`, `exclude --clear` or `cutover` lets it go on; see `explain`"
        )
    return lines


def _proof_lines(found: MigrationStatus) -> Iterator[str]:
    """How much of what is in items was compared again, and when."""
    proof = found.proof
    if not found.phases.get("items") and proof.last_pass_at is None:
        return
    if proof.last_pass_at is None:
        yield "scrub: no whole pass yet"
    else:
        yield f"scrub: last whole pass ended {_ago(proof.last_pass_at)}, {proof.last_pass_findings} findings"
    if proof.pass_began_at is not None:
        yield f"scrub: a pass is under way, {proof.coverage:.1%} of the store, {proof.findings} findings"


def status(found: MigrationStatus, *, as_json: bool) -> None:
    """Print the status of a store; whether it is ready and paused comes first."""
    if as_json:
        print_json(found)
        return
    for line in standing_lines(found):
        note(line)
    table = _table("phase", "progressions", box=None)
    for phase in _PHASES:
        table.add_row(phase, str(found.phases.get(phase, 0)))
    console().print(table)
    note(f"items still to copy: {_remaining(found)}")
    for line in progress_lines(found):
        note(line)
    owner = owner_line(found.owner, asks_daemon=found.automatic is not None)
    for line in (*waiting_lines(found), owner, *_notice(found)):
        note(line)
    for line in _proof_lines(found):
        note(line)
    if found.compat_read_everywhere:
        note("compat read is on for every progression")
    if found.hottest:
        hot = _table("hottest still-JSON progressions", "appends seen", "bytes", "measured", box=None)
        for entry in found.hottest:
            stored = "unknown" if entry.size_bytes is None else str(entry.size_bytes)
            hot.add_row(printable(entry.progression_id), str(entry.appends), stored, _ago(entry.measured_at))
        console().print(hot)


def steps(found: Sequence[MigrationStep], after: MigrationStatus, *, as_json: bool) -> None:
    """Print what one or several steps did, added up, and what is left."""
    last = found[-1]
    totals = {
        name: sum(getattr(step, name) for step in found)
        for name in ("admitted", "items", "size_bytes", "chunks", "cut_over", "removed_items", "seconds")
    }
    blocked: dict[str, int] = {}
    for step in found:
        for code, count in step.blocked.items():
            blocked[code] = blocked.get(code, 0) + count
    summary = {
        **totals,
        "blocked": blocked,
        "held": dict(last.held),
        "cutover_lock_seconds": max(step.cutover_lock_seconds for step in found),
        "stop_reason": last.stop_reason.value,
        "steps": len(found),
        "phases": dict(after.phases),
        "remaining_items": after.remaining_items,
        "remaining_admitted_items": after.remaining_admitted_items,
    }
    why = why_stopped(last, after)
    if as_json:
        print_json({**summary, "why": why})
        return
    table = _table(show_header=False, box=None)
    for name, value in summary.items():
        text = ", ".join(f"{key} {count}" for key, count in value.items()) if isinstance(value, dict) else value
        if text is None:
            text = _UNMEASURED
        table.add_row(name.replace("_", " "), f"{text:.3f}" if isinstance(text, float) else str(text))
    if after.pause is not None:
        note(pause_line(after))
    console().print(table)
    for line in why:
        note(line)


def verification(found: VerificationResult, *, as_json: bool) -> None:
    """Print one verification."""
    if as_json:
        print_json(found)
        return
    table = _table(show_header=False, box=None)
    for name in type(found).__dataclass_fields__:
        value = getattr(found, name)
        if value is not None:
            table.add_row(name.replace("_", " "), str(value))
    console().print(table)
    if (why := why_not_compared(found)) is not None:
        note(why)


@contextmanager
def progress(first: MigrationStatus, *, show: bool) -> Iterator[Callable[[MigrationStatus], None]]:
    """A bar of progressions in ``items``; yields what moves it. A line now and then when stderr is no terminal."""
    with _bar(show=show) as bar:
        task = bar.add_task("progressions", total=_migratable(first), completed=first.phases.get("items", 0))

        def advance(now: MigrationStatus) -> None:
            waits = ", ".join(one.signal for one in now.throttle.tripped)
            bar.update(
                task,
                description=f"progressions (throttled: {waits})" if waits else "progressions",
                total=_migratable(now),
                completed=min(now.phases.get("items", 0), _migratable(now)),
            )

        yield advance


@contextmanager
def stages(*, show: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A bar per stage; yields what moves them: stage, done, total. A line now and then when stderr is no terminal."""
    with _bar(show=show) as bar:
        tasks: dict[str, Any] = {}

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield advance


@contextmanager
def counter(what: str, *, show: bool) -> Iterator[Callable[[int], None]]:
    """A bar without an end; yields what sets the number it shows. A line now and then when stderr is no terminal."""
    with _bar(show=show) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def _bar(*, show: bool) -> Iterator[Progress | _Lines]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    shown = console(stderr=True)
    if shown.is_terminal and show:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=shown) as bars:
            yield bars
    else:
        yield _Lines(show=show)


class _Lines:
    """What stands in for the bars in a pipe, a file or a journal: the one that moved, at most every ten seconds."""

    def __init__(self, *, show: bool) -> None:
        self._show = show
        self._told_at = _clock()
        self._tasks: list[tuple[str, int, int | None]] = []

    def add_task(self, description: str, *, total: int | None, completed: int = 0) -> Any:
        self._tasks.append((description, completed, total))
        return len(self._tasks) - 1

    def update(self, task: Any, *, completed: int, description: str | None = None, total: int | None = None) -> None:
        name, _, known = self._tasks[task]
        now = self._tasks[task] = (description or name, completed, known if total is None else total)
        if self._show and _clock() - self._told_at >= _LINE_SECONDS:
            self._told_at = _clock()
            of = "" if now[2] is None else f" of {now[2]:,}"
            sys.stderr.write(f"{now[0]}: {completed:,}{of}\n")
            sys.stderr.flush()


def _migratable(found: MigrationStatus) -> int:
    return sum(found.phases.get(phase, 0) for phase in ("json", "dual", "items"))
