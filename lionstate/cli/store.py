"""``lionstate stats``, ``checkpoint`` and ``vacuum``: the store as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lionstate.cli import tables
from lionstate.cli.options import Daemon, Json, Token, Url, run_on
from lionstate.errors import PhaseConflictError

if TYPE_CHECKING:
    from lionstate.db import StateDB

__all__ = ["checkpoint", "stats", "vacuum"]


def stats(url: Url = None, daemon: Daemon = None, token: Token = None, as_json: Json = False) -> None:
    """Count what the store holds: rows by table, sessions by status, messages by role, size, phases."""

    async def work(state: Any) -> dict[str, Any]:
        found: dict[str, Any] = await state.store_stats()
        return {**found, "phases": dict((await state.migration.status(limit=0)).phases)}

    found = run_on((url, daemon, token), work, reads=True)
    if as_json:
        tables.print_json(found)
        return
    tables.note(f"size: {tables.size(found['bytes'])}")
    for title in ("rows", "sessions_by_status", "messages_by_role", "phases"):
        counts = found[title]
        if counts:
            rows = [[name, f"{count:,}"] for name, count in counts.items()]
            tables.print_rows(rows, (title.replace("_", " "), "count"))


def checkpoint(
    mode: Annotated[str, typer.Option(help="PASSIVE, FULL, RESTART or TRUNCATE.")] = "TRUNCATE",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Move the write-ahead log of a SQLite store into its file; never waits for readers or writers.

    Exits with 7 on PostgreSQL, which does this by itself, and with 10 while a daemon owns the store and does it.
    """
    found = run_on((url, None, None), lambda state: state.checkpoint(mode), alone=True)
    if found is None:
        raise PhaseConflictError("PostgreSQL moves its write-ahead log by itself: there is nothing to do")
    busy, log, moved = found
    if as_json:
        tables.print_json({"mode": mode.upper(), "busy": busy, "frames": log, "moved": moved})
        return
    tables.note(f"checkpoint {mode.upper()}: busy {busy}, {log} frames in the log, {moved} moved")


def vacuum(url: Url = None, as_json: Json = False) -> None:
    """Rebuild a SQLite store without its free pages; nobody writes meanwhile, and as much disk is needed again.

    Exits with 7 on PostgreSQL, whose server does this, and with 10 while a daemon owns the store.
    """

    async def work(state: StateDB) -> tuple[int, int]:
        if state.path is None:
            raise PhaseConflictError("PostgreSQL reclaims free pages by itself (autovacuum): there is nothing to do")
        before: int = (await state.store_stats())["bytes"]
        await state.vacuum()
        return before, (await state.store_stats())["bytes"]

    before, after = run_on((url, None, None), work, alone=True)
    if as_json:
        tables.print_json({"bytes_before": before, "bytes_after": after})
        return
    tables.note(f"vacuum: {tables.size(before)} before, {tables.size(after)} after")
