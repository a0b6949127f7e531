"""Writes under an idempotency key happen once: the receipt and the write are one (design decision 39)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lionstate.engine import NotWritten, Written
from lionstate.errors import ConflictError, IdempotencyConflictError, InvalidInputError, NotFoundError
from lionstate.errors import ResultNotKeptError as NotKept
from lionstate.migration import ProgressionMigrationService
from lionstate.operations import OPERATIONS
from lionstate.queue import RequestKey, receipts
from lionstate.store import Store

pytestmark = pytest.mark.anyio
TASK = {"action_kind": "agent", "args": {"b": 1, "a": [2.5, None]}, "execution_target": "host"}


def keyed(store: Store, name: str, key: RequestKey, **params: Any) -> Any:
    return store.run(OPERATIONS[name], params, key=key)


def submit(store: Store, key: str, caller: str = "", **params: Any) -> Any:
    return keyed(store, "submit_task", RequestKey(caller, key), **TASK | params)


async def execute(store: Store, sql: str, **params: Any) -> None:
    async with store.transaction() as transaction:
        await transaction.execute(sql, params)


async def count(store: Store, table: str) -> int:
    async with store.snapshot() as snapshot:
        return int((await snapshot.fetch_one(f"SELECT count(*) AS n FROM {table}", {}))["n"])


async def age(store: Store, seconds: float, key: str = "%") -> None:
    """Make receipts older."""
    await execute(store, "UPDATE request_receipts SET created_at = created_at - :s WHERE key LIKE :k", s=seconds, k=key)


async def test_64_repeats_at_once_are_one_write_with_one_answer(any_store: Store) -> None:
    """fault 34: a retry duplicates; fault 67: each outcome is retrievable."""
    keys = [RequestKey("", "k") for _ in range(64)]
    answers = await asyncio.gather(*(keyed(any_store, "submit_task", key, **TASK) for key in keys))
    assert 1 == len(set(answers))
    assert (1, 1) == (await count(any_store, "schedule_runs"), await count(any_store, "request_receipts"))
    assert [False] + [True] * 63 == sorted(key.replayed for key in keys)
    assert answers[0] != await submit(any_store, "other")


async def test_a_key_is_bound_to_its_call_and_its_caller(any_store: Store) -> None:
    """fault 34: a retry reports a false conflict."""
    first = await submit(any_store, "k")
    assert first == await submit(any_store, "k", args={"a": [2.5, None], "b": 1})
    with pytest.raises(IdempotencyConflictError):
        await submit(any_store, "k", args={"b": 2})
    with pytest.raises(IdempotencyConflictError):
        await keyed(any_store, "cancel_task", RequestKey("", "k"), run_id=first)
    assert 1 == await count(any_store, "schedule_runs")
    others = [await submit(any_store, "k", caller="uid:7") for _ in range(2)]
    assert others[:1] * 2 == others != [first] * 2
    assert first == await submit(any_store, "k")


@pytest.mark.parametrize("key", ["", "a b", "é", "a\n", "k" * 256])
def test_what_is_no_key(key: str) -> None:
    with pytest.raises(InvalidInputError):
        RequestKey("", key)


async def test_a_read_takes_no_key(any_store: Store) -> None:
    with pytest.raises(InvalidInputError):
        await keyed(any_store, "list_tasks", RequestKey("", "k"))


async def test_a_refusal_that_was_committed_is_repeated_and_one_that_raised_is_not(any_store: Store) -> None:
    approval = await keyed(any_store, "create_approval", RequestKey("", "c"), action_kind="x", params={})
    again = await keyed(any_store, "create_approval", RequestKey("", "c"), action_kind="x", params={})
    assert approval == again
    decide = {"approval_id": approval["id"], "action_kind": "x", "params": {}}
    for replayed in (False, True):
        with pytest.raises(ConflictError) as refused:
            await keyed(any_store, "consume_approval", RequestKey("", "u"), **decide)
        assert (ConflictError, replayed) == (type(refused.value), refused.value.replayed)
    await keyed(any_store, "grant_approval", RequestKey("", "g"), approval_id=approval["id"])
    with pytest.raises(ConflictError):
        await keyed(any_store, "consume_approval", RequestKey("", "u"), **decide)
    assert "consumed" == (await keyed(any_store, "consume_approval", RequestKey("", "n"), **decide))["status"]

    with pytest.raises(NotFoundError):
        await keyed(any_store, "grant_approval", RequestKey("", "r"), approval_id="none")
    assert {"c", "u", "g", "n"} == await keys_of(any_store)


async def keys_of(store: Store) -> set[str]:
    async with store.snapshot() as snapshot:
        return {row["key"] for row in await snapshot.fetch_all("SELECT key FROM request_receipts", {})}


async def test_a_call_that_goes_round_leaves_no_receipt_before_it_is_written(any_store: Store) -> None:
    """A large JSON value is parsed outside the transaction first; the key must not be taken as used by that."""
    old = [f"old-{number:06d}" for number in range(10_000)]
    await execute(
        any_store, "INSERT INTO progressions (id, created_at, collection) VALUES ('p', 1.0, :c)", c=json.dumps(old)
    )
    keys = [RequestKey("", "k"), RequestKey("", "k")]
    for key in keys:
        await keyed(any_store, "append_to_progression", key, progression_id="p", message_id="c")
    assert [False, True] == [key.replayed for key in keys]
    assert [*old, "c"] == await any_store.run(OPERATIONS["get_progression"], {"progression_id": "p"})


@pytest.mark.parametrize("atomic", [True, False])
async def test_each_call_of_a_batch_has_its_key(any_store: Store, atomic: bool) -> None:
    """fault 67: distinct ids, each outcome retrievable, nothing half visible."""

    async def batch(*names: str) -> list[Any]:
        calls = [(OPERATIONS["submit_task"], TASK) for _ in names]
        keys = [RequestKey("", name) for name in names]
        return await any_store.run_batch(calls, atomic=atomic, keys=keys)

    first = await batch("a", "b")
    assert 2 == len({outcome.value for outcome in first})
    assert first == await batch("a", "b")
    assert [*reversed(first), first[0]] == [*await batch("b", "a"), Written(await submit(any_store, "a"))]
    other = await any_store.run_batch(
        [(OPERATIONS["submit_task"], TASK), (OPERATIONS["submit_task"], TASK | {"action_kind": "flow"})],
        atomic=atomic,
        keys=[RequestKey("", "c"), RequestKey("", "a")],
    )
    assert [NotWritten if atomic else Written, NotWritten] == [type(outcome) for outcome in other]
    assert isinstance(other[1].error, IdempotencyConflictError)
    assert (2 if atomic else 3) == await count(any_store, "schedule_runs") == await count(any_store, "request_receipts")


async def test_a_result_that_is_too_large_is_written_and_not_kept(
    any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "_OUTCOME_BYTES", 10)
    await submit(any_store, "k")
    with pytest.raises(NotKept) as again:
        await submit(any_store, "k")
    assert again.value.replayed
    assert 1 == await count(any_store, "schedule_runs")


async def test_receipts_go_when_they_are_old_and_not_before(any_store: Store) -> None:
    """Purged by the writer although maintenance is paused."""
    await ProgressionMigrationService(any_store).pause()
    first = await submit(any_store, "old")
    await submit(any_store, "young")
    await age(any_store, 86_000)
    assert (0, first) == (await any_store.purge_receipts(), await submit(any_store, "old"))
    await age(any_store, 1_000, "old")
    assert first != await submit(any_store, "old")  # expired, and not purged yet
    await age(any_store, 87_000, "old")
    assert 1 == await any_store.purge_receipts()
    assert {"young"} == await keys_of(any_store)


async def test_keyed_writes_purge_by_themselves(any_store: Store) -> None:
    for number in range(8):
        await submit(any_store, f"old{number}")
    await age(any_store, 90_000)
    for number in range(8):
        await submit(any_store, f"new{number}")
    assert {f"new{number}" for number in range(8)} == await keys_of(any_store)


async def test_too_many_receipts_go_oldest_first_but_no_young_ones(any_store: Store) -> None:
    purged = receipts.Receipts(any_store.dialect, receipts.ReceiptLimits(max_count=2))

    def purge() -> Any:
        return purged.purge(any_store.read, lambda script: any_store.write("purge", script))

    for number in range(5):
        await submit(any_store, f"k{number}")
        await age(any_store, 1)
    assert 0 == await purge()
    await age(any_store, 800)
    await age(any_store, 200, "k0")
    await age(any_store, 200, "k1")
    assert 2 == await purge()
    assert {"k2", "k3", "k4"} == await keys_of(any_store)
