"""A process that dies before its k-th statement: run by ``test_migration_crash``, not imported by it.

It reads one JSON object a line and forks for each, so that a point costs no new interpreter. No hook in product code:
SQLite's trace callback, SQLAlchemy's events and asyncpg's methods see every statement, BEGIN and COMMIT included.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
from typing import Any

from sqlalchemy import Engine, event

import lionstate.engine.pragmas
import lionstate.engine.reader
import lionstate.engine.sqlite
import lionstate.store
from lionstate import StateDB
from lionstate.migration import ProgressionMigrationService, StopReason, governor
from tests.support.statements import seen_on_postgresql

CRASHED = 77


class Counter:
    """Counts statements once armed, and ends the process before the one it was told."""

    def __init__(self, crash_at: int, log: int) -> None:
        self.crash_at = crash_at
        self.log = log
        self.count = 0
        self.armed = False
        self.seeing = contextlib.ExitStack()
        self._lock = threading.Lock()

    def statement(self, sql: str) -> None:
        if not self.armed:
            return
        with self._lock:
            self.count += 1
            if self.count == self.crash_at:
                os._exit(CRASHED)
            self.tell("statement", " ".join(sql.split())[:60])

    def tell(self, kind: str, what: str) -> None:
        os.write(self.log, (json.dumps([kind, what]) + "\n").encode())


def hook(counter: Counter) -> None:
    """See every statement of every connection that is made from now on."""
    plain = lionstate.engine.pragmas.open_connection

    def open_connection(*args: Any, **kwargs: Any) -> Any:
        driver = plain(*args, **kwargs)
        driver.set_trace_callback(counter.statement)
        return driver

    lionstate.engine.sqlite.open_connection = open_connection
    lionstate.engine.reader.open_connection = open_connection

    def commit(_conn: Any) -> None:
        counter.statement("COMMIT")

    counter.seeing.enter_context(seen_on_postgresql(counter.statement, Engine))
    event.listen(Engine, "commit", commit)
    # No timer that would add statements of its own.
    lionstate.store._TICK_SECONDS = 3_600.0
    governor._ASK_SECONDS = 3_600.0


async def forward(db: StateDB, counter: Counter) -> None:
    """From json to items in chunks of two, with an append after each step."""
    service = ProgressionMigrationService(db.store)
    for number in range(10):
        step = await service.step(progression_id="p", max_items=2, max_seconds=60)
        await append(db, counter, f"live-{number}")
        if step.stop_reason == StopReason.DONE:
            return
    raise AssertionError(step)


async def back(db: StateDB, counter: Counter) -> None:
    """Admission, one chunk, an append, rollback, removal, release, and in again."""
    service = ProgressionMigrationService(db.store)
    await service.step(progression_id="p", max_items=2, max_seconds=60)
    await append(db, counter, "live-0")
    await service.rollback("p")
    await append(db, counter, "live-1")
    await service.step(progression_id="p", max_items=2, max_seconds=60)
    await service.release("p")
    await service.step(progression_id="p", max_items=2, max_seconds=60)
    await append(db, counter, "live-2")


async def append(db: StateDB, counter: Counter, message_id: str) -> None:
    await db.append_to_progression("p", message_id)
    counter.tell("acknowledged", message_id)


SCENARIOS = {"forward": forward, "back": back}


async def run(order: dict[str, Any], counter: Counter) -> None:
    async with StateDB(url=order["url"]) as db:
        counter.armed = True
        await SCENARIOS[order["scenario"]](db, counter)
        counter.statement("END")
        counter.armed = False


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            counter = Counter(order["crash_at"], log)
            hook(counter)
            try:
                asyncio.run(run(order, counter))
            except BaseException as error:
                counter.tell("error", repr(error))
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
