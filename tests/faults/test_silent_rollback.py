"""Transactions that end under the writer's hands, and errors of one call beside others (design §2.1, §2.2)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, text

from lionstate.errors import (
    BackendError,
    BackendUnavailableError,
    ConflictError,
    InvalidInputError,
    MalformedCollectionError,
)
from lionstate.operations import OPERATIONS
from lionstate.store import Store
from tests.support.store_calls import append, execute, gathered, one_batch, put_progression, read_ids

_TRAP = (
    "CREATE TRIGGER trap BEFORE INSERT ON projects WHEN NEW.name = 'trap' BEGIN SELECT RAISE(ROLLBACK, 'trapped'); END"
)


def _insert(name: str) -> Callable[[Connection], None]:
    def script(conn: Connection) -> None:
        conn.execute(
            text("INSERT INTO projects (name, source, created_at, updated_at) VALUES (:name, 's', 1, 1)"),
            {"name": name},
        )

    return script


def _refuse(_conn: Connection) -> None:
    raise ValueError("not a good value")


async def _names(store: Store) -> list[str]:
    async with store.snapshot() as snapshot:
        return [row["name"] for row in await snapshot.fetch_all("SELECT name FROM projects ORDER BY name")]


def _acknowledged(names: list[str], results: list[Any]) -> list[str]:
    return sorted(name for name, found in zip(names, results, strict=True) if not isinstance(found, BaseException))


@pytest.mark.parametrize("first", ["trap", "ordinary"])
async def test_a_silent_rollback_acknowledges_nothing_that_went_with_it(sqlite_store: Store, first: str) -> None:
    """RAISE(ROLLBACK) in the batch, and inside a savepoint of its replay: what was noted before it is void."""
    store = sqlite_store
    await execute(store, _TRAP)
    names = ["a", "b", "trap", "c"]
    calls = [store.write(name, _insert(name)) for name in names]
    if first == "ordinary":
        # An ordinary error comes first, so that the trap is met in a savepoint.
        calls.append(store.write("refuse", _refuse))
        names.append("refused")
    results = await gathered(store, *calls)
    assert ["a", "b", "c"] == _acknowledged(names, results)
    assert ["a", "b", "c"] == await _names(store)


async def test_a_script_that_hides_a_silent_rollback_is_found_out(sqlite_store: Store) -> None:
    """A script that swallows the error returns normally, in a connection that commits every statement by itself."""
    store = sqlite_store
    await execute(store, _TRAP)

    def swallowing(conn: Connection) -> None:
        try:
            _insert("trap")(conn)
        except Exception:
            return

    results = await gathered(store, store.write("a", _insert("a")), store.write("s", swallowing))
    assert not isinstance(results[0], BaseException)
    assert isinstance(results[1], BackendError)
    assert ["a"] == await _names(store)


async def test_an_explicit_transaction_ends_with_a_silent_rollback(sqlite_store: Store) -> None:
    """Statements after it would commit one by one: they are refused, and the block does not end as written."""
    store = sqlite_store
    await execute(store, _TRAP)
    insert = "INSERT INTO projects (name, source, created_at, updated_at) VALUES (?, 's', 1, 1)"
    with pytest.raises(ConflictError):
        async with store.transaction() as turn:
            await turn.execute(insert, ["a"])
            with pytest.raises(ConflictError):
                await turn.execute(insert, ["trap"])
            with pytest.raises(ConflictError):
                await turn.execute(insert, ["b"])
    assert [] == await _names(store)


async def test_a_failure_of_the_store_ends_the_batch_without_a_replay(sqlite_store: Store) -> None:
    """SQLITE_FULL is nobody's fault in the batch: all end ``not_written`` and no script runs twice."""
    store = sqlite_store
    runs: list[str] = []

    def script(name: str) -> Callable[[Connection], None]:
        def run(conn: Connection) -> None:
            runs.append(name)
            _insert(name)(conn)
            if name == "c":
                raise sqlite_full()

        return run

    results = await gathered(store, *(store.write(name, script(name)) for name in "abcd"))
    assert ["a", "b", "c"] == runs
    assert {BackendUnavailableError} == {type(found) for found in results}
    assert [] == await _names(store)


def sqlite_full() -> sqlite3.OperationalError:
    """What the driver raises for SQLITE_FULL."""
    conn = sqlite3.connect(":memory:")
    conn.execute("PRAGMA max_page_count = 1")
    try:
        conn.execute("CREATE TABLE t (a)")
    except sqlite3.OperationalError as error:
        return error
    finally:
        conn.close()
    raise AssertionError("one page was enough")


async def test_a_message_that_sounds_like_corruption_is_not_a_failure_of_the_store(any_store: Store) -> None:
    """The driver's code decides, not words: "malformed" in one call's refusal must not take its neighbours along."""
    store = any_store

    def malformed(_conn: Connection) -> None:
        raise MalformedCollectionError(reason="malformed_json")

    results = await gathered(
        store, store.write("a", _insert("a")), store.write("m", malformed), store.write("b", _insert("b"))
    )
    assert ["a", "b"] == _acknowledged(["a", "m", "b"], results)
    assert ["a", "b"] == await _names(store)


async def test_one_bad_call_is_refused_and_its_neighbours_are_written(any_store: Store) -> None:
    """Fault 67: distinct outcomes; a statement's own failure isolates its call."""
    store = any_store
    names = ["a", "refused", "b", "a", "c"]
    calls = [store.write(name, _refuse if name == "refused" else _insert(name)) for name in names]
    results = await gathered(store, *calls)
    assert [None, InvalidInputError, None, "UniqueConflictError", None] == [
        found if found is None else InvalidInputError if isinstance(found, InvalidInputError) else type(found).__name__
        for found in results
    ]
    assert ["a", "b", "c"] == await _names(store)


async def test_a_multi_statement_call_that_fails_half_way_leaves_nothing(any_store: Store) -> None:
    """Fault 67: nothing half visible, alone and beside others."""
    store = any_store

    def half(conn: Connection) -> None:
        _insert("half")(conn)
        _refuse(conn)

    with pytest.raises(InvalidInputError):
        await store.write("half", half)
    results = await gathered(store, store.write("half", half), store.write("a", _insert("a")))
    assert isinstance(results[0], InvalidInputError)
    assert ["a"] == await _names(store)


async def test_the_same_pair_twice_in_one_batch_gets_one_position(any_store: Store) -> None:
    """A set-based insert does not see its own rows: the same id twice got two ordinals (design §2.2)."""
    store = any_store
    await put_progression(store, "p")
    ids = ["a", "b", "a", "c", "b", "a"]
    results = await gathered(store, *(append(store, "p", found) for found in ids))
    assert [None] * len(ids) == results
    assert ["a", "b", "c"] == await read_ids(store, "p")


async def test_the_same_pair_twice_in_one_batch_gets_one_ordinal(any_store: Store) -> None:
    """The same, where the rows are the authority: one ordinal each, without gaps."""
    store = any_store
    await put_progression(store, "p")
    await execute(
        store,
        "INSERT INTO progression_storage_state (progression_id, phase, authority, generation, backfill_next,"
        " next_ordinal, frozen_count, source_count, updated_at) VALUES ('p', 'items', 'items', 1, 0, 0, 0, 0, 1)",
    )
    ids = ["a", "b", "a", "c", "b", "a"]
    results = await gathered(store, *(append(store, "p", found) for found in ids))
    assert [None] * len(ids) == results
    async with store.snapshot() as snapshot:
        rows = await snapshot.fetch_all("SELECT ordinal, message_id FROM progression_items ORDER BY ordinal")
    assert [(0, "a"), (1, "b"), (2, "c")] == [(row["ordinal"], row["message_id"]) for row in rows]


async def test_ten_thousand_calls_each_have_their_outcome(any_store: Store) -> None:
    """Fault 67: more calls than the queue takes; what is acknowledged is there, what is refused is not."""
    store = any_store
    object.__setattr__(store.queue.limits, "max_operations", 1_000)
    await put_progression(store, "p")
    ids = [f"m{number:05d}" for number in range(10_000)]
    calls = [append(store, "p", "x" * 2_000 if number % 97 == 0 else found) for number, found in enumerate(ids)]
    async with one_batch(store):
        tasks = [asyncio.ensure_future(call) for call in calls]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    written = [found for found, result in zip(ids, results, strict=True) if result is None]
    kinds = {type(found).__name__ for found in results}
    assert {"NoneType", "OverloadedError", "InvalidInputError"} == kinds
    assert 900 <= len(written) <= 1_000
    assert written == await read_ids(store, "p")


async def test_an_atomic_batch_is_written_whole_or_not_at_all(any_store: Store) -> None:
    """One refused call takes the others of its batch along, and nobody else (design §2.2)."""
    store = any_store
    await put_progression(store, "p")
    operation = OPERATIONS["append_to_progression"]
    good = [(operation, {"progression_id": "p", "message_id": found}) for found in ("a", "b")]
    bad = [*good[:1], (operation, {"progression_id": "p", "message_id": "x\0"})]
    refused, alone, taken = await gathered(
        store, store.run_batch(bad, atomic=True), append(store, "p", "c"), store.run_batch(good, atomic=True)
    )
    assert ["NotWritten", "NotWritten"] == [type(found).__name__ for found in refused]
    assert alone is None
    assert ["Written", "Written"] == [type(found).__name__ for found in taken]
    assert ["c", "a", "b"] == await read_ids(store, "p")
