"""``lionstate prune``: ended sessions that nobody has touched for long, and what only they hold."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from lionstate.cli import render, tables
from lionstate.cli.options import Daemon, Json, Token, Url, run_on

__all__ = ["prune"]

_DAY_SECONDS = 86_400.0
_COUNTS = ("sessions", "branches", "progressions", "messages")


def prune(
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    keep_days: Annotated[float, typer.Option(min=0.0, help="Keep what was touched in the last so many days.")] = 30.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing; print the same counts.")] = False,
    as_json: Json = False,
) -> None:
    """Delete ended sessions that nobody has touched for long, in batches, and what only they hold.

    Their branches, history, progressions and messages go; a message that another progression holds, in items or in
    JSON, or that another session or branch points at, stays. A session that runs is never touched. A progression whose
    value cannot be read is named, and what it may hold stays. A session without a status counts as ended. Each batch
    leaves an admin event ``prune_sessions`` with the cutoff, the counts and the sessions; --dry-run leaves none.
    """
    if not math.isfinite(keep_days):
        raise typer.BadParameter("must be a number of days", param_hint="--keep-days")
    before = time.time() - keep_days * _DAY_SECONDS
    with render.counter("sessions", show=not as_json) as advance:
        found = run_on((url, daemon, token), lambda state: _pruned(state, before, dry_run, advance), reads=dry_run)
    text = ", ".join(f"{found[name]} {name}" for name in _COUNTS)
    lines = [f"{'would delete' if dry_run else 'deleted'} {text}"]
    lines += [f"not readable, what it may hold stays: progression {name}" for name in found["unreadable"]]
    tables.done(*lines, facts={**found, "dry_run": dry_run}, as_json=as_json)


async def _pruned(state: Any, before: float, dry_run: bool, advance: Callable[[int], None]) -> dict[str, Any]:
    total: dict[str, Any] = dict.fromkeys(_COUNTS, 0)
    unreadable: set[str] = set()
    prune_batch = state.preview_prune if dry_run else state.prune_sessions
    signed = {} if dry_run else {"actor": "lionstate prune"}
    after_id: str | None = None
    while (found := await prune_batch(before=before, after_id=after_id, **signed))["last_id"] is not None:
        after_id = found["last_id"]
        total = {name: total[name] + found[name] for name in _COUNTS}
        unreadable.update(found["unreadable"])
        advance(total["sessions"])
    while not dry_run and await state.remove_deleted_rows():
        pass
    return {**total, "unreadable": sorted(unreadable)}
