"""The live path: one message, its places, its session, in one transaction (design decision 29)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lionstate.errors import (
    ConflictError,
    InvalidInputError,
    MalformedCollectionError,
    ProgressionBlockedError,
)
from lionstate.progression.parsed import ParsedValues
from lionstate.records.live import checked_record, insert_messages, record_many, record_message
from tests.support.backends import Backend
from tests.support.conversations import conversation, message, put_items_progression, stored_message

_LARGE = [f"old-{number:06d}" for number in range(10_000)]


@pytest.mark.parametrize("items", [False, True], ids=["json", "items"])
async def test_a_message_reaches_its_row_both_progressions_and_its_session(
    backend: Backend, state: Any, items: bool
) -> None:
    await conversation(backend, items=items)
    await state.record_message(message("m1"), "s", "bp", "sp", activity_at=20.0)
    await state.record_message(message("m2"), session_id="s", branch_progression_id="bp", activity_at=15.0)
    assert stored_message("m1") == await state.get_message("m1")
    assert ["m1", "m2"] == await state.get_progression("bp")
    assert ["m1"] == await state.get_progression("sp")
    session = await state.get_session("s")
    assert (20.0, 20.0) == (session["last_message_at"], session["updated_at"])


@pytest.mark.parametrize("items", [False, True], ids=["json", "items"])
async def test_a_retry_leaves_what_one_call_leaves(backend: Backend, state: Any, items: bool) -> None:
    """Fault 34: the acknowledgement was lost, the caller sends the pair again."""
    await conversation(backend, items=items)
    calls = [("m1", 20.0), ("m2", 21.0), ("m1", 20.0), ("m1", 20.0)]
    for message_id, at in calls:
        await state.record_message(message(message_id), "s", "bp", "sp", activity_at=at)
    assert [["m1", "m2"]] * 2 == [await state.get_progression(pid) for pid in ("bp", "sp")]
    assert 21.0 == (await state.get_session("s"))["updated_at"]


async def test_rows_that_are_missing_are_silent(backend: Backend, state: Any) -> None:
    await state.record_message(message("m1"), "no session", "no bp", "no sp", system_branch_id="no branch")
    assert stored_message("m1") == await state.get_message("m1")
    for table in ("progressions", "sessions", "branches", "progression_items"):
        assert [] == await backend.rows(f"SELECT * FROM {table}")


@pytest.mark.parametrize("before", [False, True])
async def test_a_system_message_is_noted_on_its_branch(backend: Backend, state: Any, before: bool) -> None:
    await conversation(backend)
    await state.record_message(
        message("sys"), "s", "bp", "sp", system_branch_id="b", system_branch_update_before_activity=before
    )
    assert "sys" == (await state.get_branch("b"))["system_msg_id"]


async def test_activity_is_now_unless_given_and_never_moves_back(backend: Backend, state: Any) -> None:
    await conversation(backend)
    await state.record_message(message("m1"), "s", activity_at=5.0)
    assert 10.0 == (await state.get_session("s"))["last_message_at"]
    await backend.execute("UPDATE sessions SET last_message_at = NULL")
    await state.record_message(message("m1"), "s", activity_at=5.0)
    session = await state.get_session("s")
    assert (5.0, 10.0) == (session["last_message_at"], session["updated_at"])
    await state.record_message(message("m2"), "s")
    session = await state.get_session("s")
    assert session["last_message_at"] == session["updated_at"] > 1_000_000_000.0


async def test_the_latest_activity_of_a_batch_wins(backend: Backend, state: Any) -> None:
    await conversation(backend)
    times = (11.0, 30.0, 50.0, 20.0, 12.0)
    await asyncio.gather(*(state.record_message(message(f"m{at}"), "s", activity_at=at) for at in times))
    session = await state.get_session("s")
    assert (50.0, 50.0) == (session["last_message_at"], session["updated_at"])


async def _nothing_of(backend: Backend, state: Any, message_id: str) -> None:
    assert await state.get_message(message_id) is None
    assert [] == await state.get_progression("bp")
    session = await state.get_session("s")
    assert (10.0, 10.0) == (session["last_message_at"], session["updated_at"])
    assert (await state.get_branch("b"))["system_msg_id"] is None


async def test_one_refused_part_rolls_back_the_whole(backend: Backend, state: Any) -> None:
    await conversation(backend)
    await backend.put_progression("bad", "[")
    await put_items_progression(backend, "blocked")
    await backend.execute(
        "UPDATE progression_storage_state SET phase = 'blocked', authority = 'none',"
        " blocked_reason = 'digest_mismatch' WHERE progression_id = 'blocked'"
    )
    with pytest.raises(MalformedCollectionError):
        await state.record_message(message("m"), "s", "bp", "bad", system_branch_id="b", activity_at=50.0)
    with pytest.raises(ProgressionBlockedError):
        await state.record_message(message("m"), "s", "blocked", "bp", system_branch_id="b", activity_at=50.0)
    with pytest.raises(InvalidInputError):
        await state.record_message(message("m" * 1025), "s", "bp", "sp", activity_at=50.0)
    await _nothing_of(backend, state, "m")
    await _nothing_of(backend, state, "m" * 1025)


async def test_a_failing_last_statement_rolls_back_the_message(backend: Backend, state: Any) -> None:
    """The activity touch comes after everything else; a database that refuses it takes the message back.

    So it takes back the row of an unseen class: an id remembered before COMMIT would fail every later message of it.
    """
    unseen = {"lion_class": "pkg.Unseen"}
    await conversation(backend)
    if backend.is_postgresql:
        await backend.execute("ALTER TABLE sessions ADD CONSTRAINT test_cap CHECK (updated_at < 1000)")
    else:
        await backend.execute(
            "CREATE TRIGGER test_cap BEFORE UPDATE ON sessions WHEN new.updated_at >= 1000"
            " BEGIN SELECT RAISE(ABORT, 'CHECK constraint failed: test_cap'); END"
        )
    try:
        with pytest.raises(ConflictError):
            await state.record_message(
                message("m", node_metadata=unseen), "s", "bp", "sp", system_branch_id="b", activity_at=2000.0
            )
        await _nothing_of(backend, state, "m")
        await state.insert_message(message("unseen", node_metadata=unseen))
        assert "pkg.Unseen" == (await state.get_message("unseen"))["lion_class_str"]
        good, bad = message("good"), message("m")
        outcomes = await asyncio.gather(
            *(state.record_message(good, "s", None, "sp", activity_at=10.0) for _ in range(5)),
            state.record_message(bad, "s", "bp", "sp", activity_at=2000.0),
            return_exceptions=True,
        )
        assert [None] * 5 == outcomes[:5]
        assert isinstance(outcomes[5], ConflictError)
        await _nothing_of(backend, state, "m")
        assert ["good"] == await state.get_progression("sp")
    finally:
        if backend.is_postgresql:
            await backend.execute("ALTER TABLE sessions DROP CONSTRAINT test_cap")


async def test_bad_arguments_are_refused(backend: Backend, state: Any) -> None:
    bad = ({"activity_at": "now"}, {"activity_at": float("nan")}, {"session_id": 3}, {"branch_progression_id": ["x"]})
    for one in bad:
        with pytest.raises(InvalidInputError):
            await state.record_message(**{"msg": message(), "session_id": "s", **one})
    assert await state.get_message("m") is None


@pytest.mark.parametrize("items", [False, True], ids=["json", "items"])
async def test_each_writer_keeps_its_order(backend: Backend, state: Any, items: bool) -> None:
    """64 callers at once on one session: every message once, in order per caller, alike on both progressions."""
    await conversation(backend, items=items)

    async def write(writer: int) -> None:
        for number in range(6):
            await state.record_message(message(f"w{writer:02d}-{number}"), "s", "bp", "sp", activity_at=11.0)

    await asyncio.gather(*(write(writer) for writer in range(64)))
    order = await state.get_progression("bp")
    assert order == await state.get_progression("sp")
    assert sorted(order) == sorted(f"w{writer:02d}-{number}" for writer in range(64) for number in range(6))
    for writer in range(64):
        mine = [found for found in order if found.startswith(f"w{writer:02d}-")]
        assert [f"w{writer:02d}-{number}" for number in range(6)] == mine
    assert 384 == len(await state.get_messages(order))


async def test_one_id_many_times_in_a_batch(backend: Backend) -> None:
    """The last content and the first creation time: what the calls one after another would leave."""
    await conversation(backend, items=True)
    state = backend.direct
    calls = [
        checked_record(
            {
                "msg": message("m", content={"n": number}, created_at=float(number)),
                "session_id": "s",
                "branch_progression_id": "bp",
                "activity_at": 20.0 - number,
            }
        )
        for number in range(1, 6)
    ]
    async with state.transaction() as transaction:
        await transaction.run(lambda conn: record_many(conn, calls, ParsedValues()))
    found = await state.get_message("m")
    assert found is not None
    assert ({"n": 5}, 1.0) == (found["content"], found["created_at"])
    assert ["m"] == await state.get_progression("bp")
    session = await state.get_session("s")
    assert session is not None
    assert 19.0 == session["updated_at"]


async def test_calls_behind_a_parse_keep_their_order(backend: Backend, state: Any) -> None:
    """A call whose progression needs a parse goes round whole, and what shares a session or progression with it."""
    await conversation(backend)
    await backend.put_progression("large", json.dumps(_LARGE))
    ids = [f"m{number:02d}" for number in range(12)]
    # The first call occupies the writer, so that those behind it form one batch.
    calls = [state.record_message(message("first"), "other session")]
    for position, found in enumerate(ids):
        branch = "large" if position % 3 == 1 else "bp"
        calls.append(state.record_message(message(found), "s", branch, "sp"))
    await asyncio.gather(*calls)
    assert ids == await state.get_progression("sp")
    assert [*_LARGE, *ids[1::3]] == await state.get_progression("large")
    assert [found for position, found in enumerate(ids) if position % 3 != 1] == await state.get_progression("bp")


async def test_two_large_progressions_are_parsed_one_after_the_other(backend: Backend, state: Any) -> None:
    await conversation(backend)
    for name in ("one", "two"):
        await backend.put_progression(name, json.dumps(_LARGE))
    await state.record_message(message("m"), "s", "one", "two")
    assert [[*_LARGE, "m"]] * 2 == [await state.get_progression(name) for name in ("one", "two")]


async def test_a_refused_call_does_not_stop_its_batch(backend: Backend, state: Any) -> None:
    await conversation(backend)
    await backend.put_progression("bad", "null")
    calls = [state.record_message(message("first"), "s", "bp")]
    calls += [
        state.record_message(message(f"m{number}"), "s", "bad" if number % 2 else "bp", "sp") for number in range(8)
    ]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    refused = [type(found) for found in outcomes if found is not None]
    assert [MalformedCollectionError] * 4 == refused
    assert ["m0", "m2", "m4", "m6"] == await state.get_progression("sp")
    assert {f"m{number}" for number in range(0, 8, 2)} == (
        await state.get_messages([f"m{number}" for number in range(8)])
    ).keys()


async def test_inside_an_explicit_transaction(backend: Backend) -> None:
    """The scripts take unchecked arguments too, and roll back with the transaction."""
    await conversation(backend)
    state = backend.direct
    with pytest.raises(RuntimeError, match="on purpose"):
        async with state.transaction() as transaction:
            await transaction.run(lambda conn: record_message(conn, message("m"), "s", "bp"))
            raise RuntimeError("on purpose")
    await _nothing_of(backend, state, "m")
    async with state.transaction() as transaction:
        await transaction.run(lambda conn: insert_messages(conn, [message("m")], progression_ids=["bp"]))
    assert ["m"] == await state.get_progression("bp")
