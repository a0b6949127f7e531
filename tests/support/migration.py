"""Helpers of the migration tests: ids, other programs' statements, stages one can step between."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from lionstate.migration import MigrationStep, ProgressionMigrationService
from lionstate.migration.report import Stage
from lionstate.progression.digest import digest_of
from tests.support.backends import Backend

__all__ = [
    "IDS",
    "PATIENT",
    "TAMPER",
    "WHOLE",
    "Foreign",
    "Staged",
    "assert_cut_over",
    "between",
    "copied",
    "foreign",
    "items_of",
    "make_ids",
    "patient",
    "rows_of_everything",
    "service_of",
    "state_of",
    "until_done",
]

PATIENT = {
    "verify.budget_seconds": 5.0,
    "knob.hold_target_seconds": 10.0,
    "knob.nice_ratio": 1.0,
    "knob.lock_wait_limit_seconds": 60.0,
    "knob.queue_age_limit_seconds": 600.0,
    "knob.free_disk_floor_bytes": 0,
    "knob.wal_rate_limit_bytes": 10**12,
    "knob.parity_limit_per_minute": 1_000,
    "knob.error_budget": 1_000,
}
# Caps that do not end a step.
WHOLE: dict[str, Any] = {"max_items": 10**9, "max_bytes": 10**12, "max_seconds": 120.0}

_W3_SQLITE = (
    "UPDATE progressions SET collection = json_insert(collection, '$[#]', ?1) WHERE id = ?2"
    " AND NOT EXISTS (SELECT 1 FROM json_each(collection) WHERE value = ?1)"
)
_W3_POSTGRESQL = (
    "UPDATE progressions SET collection = (collection::jsonb || to_jsonb($1::text))::text WHERE id = $2"
    " AND NOT EXISTS (SELECT 1 FROM jsonb_array_elements_text(collection::jsonb) AS e(v) WHERE e.v = $1)"
)


def make_ids(count: int, first: int = 0) -> list[str]:
    """The ids of the vectors: sha256(str(i)), 32 hex digits."""
    return [hashlib.sha256(str(i).encode()).hexdigest()[:32] for i in range(first, first + count)]


class Foreign:
    """Another program on the same store, which knows only the JSON column (LionAGI 0.36.0's statements)."""

    def __init__(self, connection: Any, *, is_postgresql: bool) -> None:
        self.connection = connection
        self._is_postgresql = is_postgresql

    async def append(self, progression_id: str, message_id: str) -> None:
        """Append as 0.36.0 does (reference §3.1, W3)."""
        if self._is_postgresql:
            await self.connection.execute(_W3_POSTGRESQL, message_id, progression_id)
        else:
            self.connection.execute(_W3_SQLITE, (message_id, progression_id))

    async def replace(self, progression_id: str, text: str) -> None:
        """Write the whole value (W2)."""
        if self._is_postgresql:
            await self.connection.execute("UPDATE progressions SET collection = $1 WHERE id = $2", text, progression_id)
        else:
            self.connection.execute("UPDATE progressions SET collection = ? WHERE id = ?", (text, progression_id))

    async def execute(self, sql: str) -> None:
        """Run SQL without parameters."""
        found = self.connection.execute(sql)
        if self._is_postgresql:
            await found


@asynccontextmanager
async def foreign(backend: Backend) -> AsyncIterator[Foreign]:
    """A connection of another program, in autocommit mode."""
    if backend.is_postgresql:
        connection = await asyncpg.connect(backend.direct.url.replace("+asyncpg", ""))
        try:
            yield Foreign(connection, is_postgresql=True)
        finally:
            await connection.close()
    else:
        driver = sqlite3.connect(str(backend.direct.path), isolation_level=None, timeout=5)
        try:
            yield Foreign(driver, is_postgresql=False)
        finally:
            driver.close()


class Staged:
    """A store's port whose stages can be stepped between.

    Attributes:
        before: Called with the name of a stage before it is submitted.
        after: Called with the name of a stage and its result.
        after_read: Called after every read.
        stages: Every stage and its result so far.
        reads: Read scripts run so far.
    """

    def __init__(self, backend: Backend) -> None:
        self.store = backend.direct.store
        self.url = self.store.url
        self.dialect = self.store.dialect
        self.parsed = self.store.parsed
        self.load = self.store.load
        self.before: Callable[[str], Awaitable[None]] | None = None
        self.after: Callable[[str, Any], Awaitable[None]] | None = None
        self.after_read: Callable[[], Awaitable[None]] | None = None
        self.stages: list[tuple[str, Any]] = []
        self.reads = 0

    @property
    def explicit_transactions(self) -> int:
        return self.store.explicit_transactions

    async def read(self, script: Callable[[Any], Any]) -> Any:
        self.reads += 1
        found = await self.store.read(script)
        if self.after_read is not None:
            await self.after_read()
        return found

    async def maintain(self, name: str, script: Callable[[Any], Any], *, progressions: Sequence[str] = ()) -> Any:
        short = name.removeprefix("progression_migrate.")
        if self.before is not None:
            await self.before(short)
        result = await self.store.maintain(name, script, progressions=progressions)
        self.stages.append((short, result))
        if self.after is not None:
            await self.after(short, result)
        return result

    def results(self, name: str) -> list[Stage]:
        """The results of the stages of this name."""
        return [result for short, result in self.stages if short == name]


def service_of(backend: Backend) -> ProgressionMigrationService:
    """A new service, which remembers nothing."""
    return ProgressionMigrationService(backend.direct.store, actor="test")


async def patient(backend: Backend) -> None:
    """Turn the knobs so that a test machine may be slow for reasons of its own: chunks are as large as can be."""
    for key, value in PATIENT.items():
        await backend.execute(
            "INSERT INTO migration_control (key, value, actor, updated_at) VALUES (:key, :value, 'test', 1.0)",
            key=key,
            value=json.dumps(value),
        )


async def until_done(service: ProgressionMigrationService, **caps: Any) -> list[MigrationStep]:
    """Step until there is nothing to do that is not held or busy."""
    steps = []
    for _ in range(10_000):
        step = await service.step(**(caps or WHOLE))
        steps.append(step)
        if not step.stop_reason.startswith("cap_"):
            return steps
    raise AssertionError("migration does not end")


async def state_of(backend: Backend, progression_id: str = "p") -> dict[str, Any]:
    """The state row."""
    rows = await backend.rows("SELECT * FROM progression_storage_state WHERE progression_id = :pid", pid=progression_id)
    assert 1 == len(rows)
    return rows[0]


async def items_of(backend: Backend, progression_id: str = "p") -> list[tuple[int, str]]:
    """The item rows in order."""
    rows = await backend.rows(
        "SELECT ordinal, message_id FROM progression_items WHERE progression_id = :pid ORDER BY ordinal",
        pid=progression_id,
    )
    return [(row["ordinal"], row["message_id"]) for row in rows]


async def rows_of_everything(backend: Backend) -> str:
    """Every row that migration could change, as text to compare."""
    told = {
        table: await backend.rows(f"SELECT * FROM {table} ORDER BY 1, 2")
        for table in ("progressions", "progression_storage_state", "progression_items", "admin_events")
    }
    return json.dumps(told, default=str, sort_keys=True)


async def assert_cut_over(backend: Backend, ids: Sequence[str], progression_id: str = "p") -> None:
    """The progression is in items, whole, with both digests and a JSON that ends at the frozen prefix."""
    state = await state_of(backend, progression_id)
    assert ("items", "items", None) == (state["phase"], state["authority"], state["blocked_reason"])
    assert list(enumerate(ids)) == await items_of(backend, progression_id)
    assert len(ids) == state["next_ordinal"]
    frozen = state["frozen_count"]
    (row,) = await backend.rows("SELECT collection FROM progressions WHERE id = :pid", pid=progression_id)
    assert list(ids[:frozen]) == json.loads(row["collection"])
    encoded = row["collection"].encode()
    assert (digest_of(ids[:frozen]),) * 2 == (state["source_digest"], state["items_digest"])
    assert (len(encoded), hashlib.sha256(encoded).hexdigest()) == (state["text_bytes"], state["text_sha256"])


IDS = make_ids(20)


async def copied(backend: Backend, ids: list[str] = IDS) -> None:
    """A dual progression whose prefix is copied and which waits for its cutover."""
    await backend.put_progression("p", json.dumps(ids))
    step = await service_of(backend).step(max_items=len(ids) - 1, max_seconds=60)
    assert len(ids) - 1 == step.items
    staged = Staged(backend)

    class Stop(Exception):
        pass

    async def stop(name: str, _result: Any) -> None:
        if name == "chunk":
            raise Stop

    staged.after = stop
    with pytest.raises(Stop):
        await ProgressionMigrationService(staged).step(max_seconds=60)
    row = await state_of(backend)
    assert ("dual", len(ids)) == (row["phase"], row["backfill_next"])


TAMPER = {
    "count_mismatch": "DELETE FROM progression_items WHERE ordinal = 7",
    "digest_mismatch": "UPDATE progression_items SET message_id = 'other' WHERE ordinal = 7",
    "ordinal_mismatch": "UPDATE progression_items SET ordinal = 99 WHERE ordinal = 19",
    "allocator_mismatch": "UPDATE progression_storage_state SET next_ordinal = 21",
}


async def between(
    backend: Backend, act: Callable[[int], Awaitable[None]], stage: str = "cutover", accept: bool = False
) -> tuple[MigrationStep, Staged, ProgressionMigrationService]:
    """Do something before each transaction of a stage, usually the cutover; it is told how many came before."""
    staged = Staged(backend)
    calls = 0

    async def before(name: str) -> None:
        nonlocal calls
        if name == stage:
            calls += 1
            await act(calls - 1)

    staged.before = before
    service = ProgressionMigrationService(staged, accept_foreign_writers=accept)
    return await service.step(**WHOLE), staged, service
