"""Rows 3 and 5: through the daemon."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from contextlib import AsyncExitStack
from typing import Any

from lionstate import StateClient
from tests.bench.context import ROOT, Bench, available, grown_log, one_core
from tests.bench.measure import ratio
from tests.bench.report import Row
from tests.bench.rows.appends import rounds_of, tell
from tests.bench.rows.concurrency import CALLERS, HISTORY, against_rates, works_of
from tests.bench.stores import Conversation, History, message

__all__ = ["many_callers", "single_message"]

_TALK = Conversation.named("a")


def daemon_module() -> str:
    """The SQLite module that lionstated takes by default."""
    return "pysqlite3.dbapi2" if importlib.util.find_spec("pysqlite3") else "sqlite3"


async def single_message(bench: Bench) -> Row:
    """Row 3: the same server, client and body; only the handler differs."""
    row = Row(3, "single record_message through the daemon / same server on raw sqlite3, p50")
    history = History({"a": 10_000})
    for synchronous in ("NORMAL", "FULL"):
        async with AsyncExitStack() as stack:
            stores = [await bench.sqlite(history) for _ in range(2)]
            # Each server on a core, the client where it likes.
            with one_core():
                floor = await stack.enter_async_context(bench.floor_server(stores[0], daemon_module(), synchronous))
                daemon = await stack.enter_async_context(bench.daemon(stores[1], synchronous))
            for store in stores:
                grown_log(store)
            clients = {
                "lionstated": await stack.enter_async_context(StateClient(daemon.target)),
                "floor": await stack.enter_async_context(StateClient(floor.target)),
            }
            for kind, limit in (("append_to_progression", None), ("record_message", 1.5)):
                with available(row, f"{synchronous}, {kind}"):
                    arms = {name: _caller(client, kind, name) for name, client in clients.items()}
                    taken = await rounds_of(arms, bench.samples(600, 120), rounds=3 if bench.quick else 5)
                    row.add(f"{synchronous}: {kind}", ratio(taken, "lionstated", "floor", 0.5), limit)
                    tell(row, f"{synchronous}, {kind}", taken)
    return row


def _caller(client: Any, kind: str, name: str) -> Any:
    async def append(turn: int) -> None:
        await client.append_to_progression(_TALK.branch_progression, f"{name}{turn:025d}")

    async def record(turn: int) -> None:
        await client.record_message(
            message(turn, prefix=name),
            session_id=_TALK.session,
            branch_progression_id=_TALK.branch_progression,
            session_progression_id=_TALK.session_progression,
        )

    return append if kind == "append_to_progression" else record


def floor_rate(bench: Bench, store: Any, module: str, seconds: float, kind: str) -> float:
    """The rate of the floor on the daemon's SQLite library: in another process, never two libraries in one."""
    command = [
        sys.executable,
        "-m",
        "tests.bench.floor_rate",
        str(store),
        module,
        "FULL",
        str(seconds),
        kind,
        str(CALLERS),
    ]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return float(json.loads(finished.stdout)["rate"])


async def many_callers(bench: Bench) -> Row:
    """Row 5: 64 callers on one client, ``FULL``."""
    row = Row(5, "64 callers through one client and the daemon / raw floor, batches of 64, FULL")
    floor_store = await bench.sqlite(HISTORY)
    async with bench.daemon(await bench.sqlite(HISTORY), "FULL") as daemon, StateClient(daemon.target) as client:

        async def below(kind: str, seconds: float) -> float:
            return floor_rate(bench, floor_store, daemon_module(), seconds, kind)

        await against_rates(bench, row, "sqlite", below, works_of(client), 0.30)
    return row
