"""``lionstate schedules`` and ``dispatches``: what is to run, and what is to be delivered."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from lionstate.cli import tables
from lionstate.cli.options import Daemon, Json, Token, Url, run_on

__all__ = ["app", "schedules"]

app = typer.Typer(
    help="List what is to be delivered; try again or remove what could not be.", invoke_without_command=True
)

_SCHEDULES = ("id", "name", "trigger_type", "enabled", "last_fired_at", "next_fire_at", "project")
_RUNS = ("finished", "running", "last_status", "failed_in_a_row")
_DISPATCHES = ("id", "kind", "status", "attempt", "max_attempts", "next_attempt_at", "deliver_to", "last_error")
_PURGED = 10_000


def _print(rows: Sequence[Mapping[str, Any]], names: Sequence[str], counted: str) -> None:
    headings = [name.removesuffix("_at").replace("_", " ") for name in names]
    tables.print_rows([[tables.cell(name, row[name]) for name in names] for row in rows], headings)
    tables.note(counted)


def schedules(
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    enabled: Annotated[bool | None, typer.Option("--enabled/--disabled", help="Only these.")] = None,
    project: Annotated[str | None, typer.Option(help="Only of this project.")] = None,
    limit: Annotated[int, typer.Option(help="Rows, 1 to 1,000.")] = 50,
    offset: Annotated[int, typer.Option(help="Rows to pass over.")] = 0,
    as_json: Json = False,
) -> None:
    """List schedules, last changed first, and how their runs stand, those that fired by themselves.

    Finished is how many completed, failed, timed out or were cancelled; last status is that of the newest run, and
    failed in a row how many of the newest 50 failed since one completed or was cancelled.
    """

    async def work(state: Any) -> list[dict[str, Any]]:
        found = await state.list_schedules(enabled=enabled, project=project, limit=limit, offset=offset)
        ids = [row["id"] for row in found]
        finished = await state.count_schedule_runs_batch(ids)
        running = await state.count_schedule_runs_batch(ids, statuses=["running"])
        streaks = await state.schedule_run_streaks(ids)
        told = []
        for row in found:
            failures, newest = streaks[row["id"]]
            runs = (finished[row["id"]], running[row["id"]], newest, failures)
            told.append({name: row[name] for name in _SCHEDULES} | dict(zip(_RUNS, runs, strict=True)))
        return told

    rows = run_on((url, daemon, token), work, reads=True)
    if as_json:
        tables.print_json({"schedules": rows})
        return
    _print(rows, (*_SCHEDULES, *_RUNS), f"{len(rows)} schedules")


@app.callback()
def dispatches(
    context: typer.Context,
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    status: Annotated[str | None, typer.Option(help="Only in this status.")] = None,
    limit: Annotated[int, typer.Option(help="Rows, 1 to 1,000.")] = 50,
    offset: Annotated[int, typer.Option(help="Rows to pass over.")] = 0,
    as_json: Json = False,
) -> None:
    """List dispatches, newest first; payloads are not shown."""
    if context.invoked_subcommand is not None:
        return

    async def work(state: Any) -> tuple[list[dict[str, Any]], int]:
        found = await state.list_dispatches(status=status, limit=limit, offset=offset)
        return [{name: row[name] for name in _DISPATCHES} for row in found], await state.count_dispatches(status=status)

    rows, total = run_on((url, daemon, token), work, reads=True)
    if as_json:
        tables.print_json({"dispatches": rows, "total": total})
        return
    _print(rows, _DISPATCHES, f"{len(rows)} of {total} dispatches")


@app.command()
def retry(
    dispatch_id: Annotated[str, typer.Argument(help="A dispatch that is dead_letter or expired.")],
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Make a dispatch pending and due again, its attempts counted anew."""
    run_on((url, daemon, token), lambda state: state.retry_dispatch(dispatch_id))
    tables.done("it is pending and due", facts={"status": "pending"}, as_json=as_json)


@app.command()
def purge(
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    status: Annotated[str | None, typer.Option(help="Only in this status; without it every finished one.")] = None,
    older_than_days: Annotated[float | None, typer.Option(help="Only those last changed longer ago.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count; delete nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Delete dispatches by status, age or both, with an audit row; in transactions of at most 10,000."""
    if older_than_days is not None and not math.isfinite(older_than_days):
        raise typer.BadParameter("must be a number of days", param_hint="--older-than-days")
    if status is None and older_than_days is None:
        raise typer.BadParameter("say which: --status STATUS, --older-than-days DAYS, or both")
    before = None if older_than_days is None else time.time() - older_than_days * 86_400

    async def work(state: Any) -> int:
        total = 0
        while True:
            found = await state.purge_dispatches(
                status=status, before=before, dry_run=dry_run, limit=_PURGED, actor="lionstate dispatches purge"
            )
            total += int(found["total"])
            if dry_run or found["total"] < _PURGED:
                return total

    count = run_on((url, daemon, token), work)
    verb = "would be deleted" if dry_run else "deleted"
    tables.done(f"{count} dispatches {verb}", facts={"purged": count, "dry_run": dry_run}, as_json=as_json)
