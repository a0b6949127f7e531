"""``lionstate sessions`` and ``show-session``: what is in the store, for people and machines."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Annotated, Any, TypeVar

import typer

from lionstate.cli import tables
from lionstate.cli.options import Daemon, Json, Token, Url, run_on
from lionstate.errors import NotFoundError, StateError

__all__ = ["app", "show_session"]

app = typer.Typer(help="List sessions; end those whose process is gone.", invoke_without_command=True)

R = TypeVar("R")

_PAGE = 1000
_STALE_REASON = "session.stale.no_heartbeat"
_COLUMNS = ("id", "name", "status", "project", "model", "branches", "messages", "last_message_at", "updated_at")
_HEADINGS = ("id", "name", "status", "project", "model", "branches", "messages", "last message", "updated")
_AT_ONCE = 32


@app.callback()
def sessions(
    context: typer.Context,
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    status: Annotated[str | None, typer.Option(help="Only sessions in this status.")] = None,
    limit: Annotated[int, typer.Option(help="Rows, 1 to 1,000.")] = 50,
    offset: Annotated[int, typer.Option(help="Rows to pass over.")] = 0,
    as_json: Json = False,
) -> None:
    """List sessions, the most recently updated first."""
    if context.invoked_subcommand is not None:
        return
    _known_status(status)

    async def work(state: Any) -> tuple[list[dict[str, Any]], int]:
        rows = await state.list_sessions(status=status, limit=limit, offset=offset)
        told = await _together(*(_with_counts(state, row) for row in rows))
        return told, await state.count_sessions(status=status)

    rows, total = run_on((url, daemon, token), work, reads=True)
    if as_json:
        tables.print_json({"sessions": rows, "total": total})
        return
    tables.print_rows([[tables.cell(name, row[name]) for name in _COLUMNS] for row in rows], _HEADINGS)
    tables.note(f"{len(rows)} of {total} sessions")


def _known_status(status: str | None) -> None:
    from lionstate.records.status_vocabulary import ENTITIES

    known = ENTITIES["session"].statuses
    if status is not None and status not in known:
        raise typer.BadParameter(f"not one of {', '.join(sorted(known))}", param_hint="--status")


async def _together(*work: Awaitable[R]) -> list[R]:
    import asyncio

    return await asyncio.gather(*work)


async def _with_counts(state: Any, session: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: session.get(name) for name in _COLUMNS}
    told["branches"] = len(await _branches(state, session["id"]))
    told["messages"] = await _count(state, session["progression_id"])
    return told


async def _branches(state: Any, session_id: str) -> list[dict[str, Any]]:
    return [row async for row in _paged(state.list_branches, session_id)]


async def _count(state: Any, progression_id: str) -> int | None:
    """Messages of one progression; None where its representation cannot be trusted or read."""
    try:
        found: int = await state.count_progression_items(progression_id)
    except StateError:
        return None
    return found


def show_session(
    session_id: Annotated[str, typer.Argument(help="The session.")],
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    messages: Annotated[int, typer.Option(help="How many of its last messages to show, 0 to 1,000.")] = 10,
    as_json: Json = False,
) -> None:
    """Show one session: its columns, its branches, the history of its status and its last messages."""

    async def work(state: Any) -> dict[str, Any]:
        session = await state.get_session(session_id)
        if session is None:
            raise NotFoundError("there is no such session")
        branches = await _branches(state, session_id)
        history = await state.list_status_transitions("session", session_id, limit=20)
        return {
            "session": session,
            "messages": await _count(state, session["progression_id"]),
            "branches": [
                {"id": branch["id"], "name": branch["name"], "messages": await _count(state, branch["progression_id"])}
                for branch in branches
            ],
            "status_history": [
                {name: row[name] for name in ("created_at", "previous_status", "status", "reason_code", "actor")}
                for row in history
            ],
            "last_messages": await _last_messages(state, session["progression_id"], messages),
        }

    found = run_on((url, daemon, token), work, reads=True)
    if as_json:
        tables.print_json(found)
        return
    tables.print_facts(
        {
            **{name: value for name, value in found["session"].items() if value is not None},
            "messages": found["messages"],
        }
    )
    for title in ("branches", "status_history", "last_messages"):
        rows = found[title]
        if rows:
            names = tuple(rows[0])
            cells = [[tables.cell(name, row[name]) for name in names] for row in rows]
            tables.print_rows(cells, names, title=title.replace("_", " "))


async def _last_messages(state: Any, progression_id: str, count: int) -> list[dict[str, Any]]:
    if count <= 0:
        return []
    found = await state.list_progression_items(progression_id, limit=min(count, _PAGE), newest_first=True)
    stored = await state.get_messages([message_id for _, message_id in found])
    names = ("created_at", "role", "sender", "recipient", "content")
    return [
        {"ordinal": ordinal, "id": message_id, **{name: stored.get(message_id, {}).get(name) for name in names}}
        for ordinal, message_id in reversed(found)
    ]


@app.command()
def sweep(
    stale_hours: Annotated[float, typer.Option(help="Running sessions without activity for this long.")] = 24.0,
    new_status: Annotated[str, typer.Option(help="The status they get: aborted or failed.")] = "aborted",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell which; change nothing.")] = False,
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """End running sessions whose last activity is too long ago, with history; one that moves meanwhile stays."""
    if new_status not in ("aborted", "failed"):
        raise typer.BadParameter("a swept session becomes aborted or failed", param_hint="--new-status")
    if not 0 < stale_hours < math.inf:
        raise typer.BadParameter("must be a number of hours above 0", param_hint="--stale-hours")
    before = time.time() - stale_hours * 3600

    async def work(state: Any) -> tuple[int, list[dict[str, Any]]]:
        running = [row async for row in _paged(state.list_sessions, status="running")]
        stale = [row for row in running if _last_activity(row) < before]
        if dry_run:
            return len(running), stale
        swept = []
        for begin in range(0, len(stale), _AT_ONCE):
            some = stale[begin : begin + _AT_ONCE]
            done = await _together(*(_end(state, row, new_status, stale_hours) for row in some))
            swept += [row for row, ended in zip(some, done, strict=True) if ended]
        return len(running), swept

    running, swept = run_on((url, daemon, token), work, reads=dry_run)
    ids = [row["id"] for row in swept]
    if as_json:
        tables.print_json({"running": running, "swept": ids, "new_status": new_status, "dry_run": dry_run})
        return
    rows = [[row["id"], tables.cell("name", row["name"]), tables.ago(_last_activity(row))] for row in swept]
    tables.print_rows(rows, ("id", "name", "last activity"))
    verb = "would become" if dry_run else "became"
    tables.note(f"running {running}, {len(ids)} {verb} {new_status} (idle for more than {stale_hours:g} h)")


async def _paged(read: Callable[..., Any], *args: Any, **filters: Any) -> AsyncIterator[dict[str, Any]]:
    """The rows of every page of a list."""
    offset = 0
    while True:
        rows = await read(*args, **filters, limit=_PAGE, offset=offset)
        for row in rows:
            yield row
        if len(rows) < _PAGE:
            return
        offset += _PAGE


def _last_activity(session: Mapping[str, Any]) -> float:
    told = (session["last_message_at"], session["updated_at"], session["started_at"], session["created_at"])
    return max(float(at) for at in told if at is not None)


async def _end(state: Any, session: Mapping[str, Any], new_status: str, hours: float) -> bool:
    ended: bool = await state.update_status(
        "session",
        session["id"],
        new_status=new_status,
        reason_code=_STALE_REASON,
        reason_summary=f"no activity for more than {hours:g} h",
        source="admin",
        actor="lionstate sessions sweep",
        expected_statuses=["running"],
        expected_updated_at=session["updated_at"],
    )
    return ended
