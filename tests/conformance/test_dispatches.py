"""The outbox: entered once, claimed by one at a time, settled once, acknowledged, retried, purged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lionstate.errors import ForeignKeyError, InvalidInputError, NotFoundError
from tests.support.backends import Backend
from tests.support.records import assert_refused_unchanged, pick, put, put_session

LATE = 4e9


async def _enqueue(state: Any, **columns: Any) -> str:
    dispatch_id: str = await state.enqueue_dispatch(**{"kind": "k", "deliver_to": "d", **columns})
    return dispatch_id


async def _reasons(state: Any, dispatch_id: str) -> list[str]:
    return [row["reason_code"] for row in reversed(await state.list_status_transitions("dispatch", dispatch_id))]


async def test_a_dispatch_is_due_at_once_with_its_first_history(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    found = await _enqueue(state, body={"a": [None, "ü"]}, ack_required=True, session_id="s", expires_at=LATE)
    row = await state.get_dispatch(found)
    assert row["next_attempt_at"] == row["created_at"] == row["updated_at"] == await state.next_dispatch_at()
    assert ("pending", 0, 8, 1, "s", LATE, None) == pick(
        row, "status", "attempt", "max_attempts", "ack_required", "session_id", "expires_at", "last_error"
    )
    assert {
        "dispatch_id": found,
        "kind": "k",
        "deliver_to": "d",
        "attempt": 0,
        "ack_token": row["ack_token"],
        "body": {"a": [None, "ü"]},
    } == row["payload"]
    (entry,) = await state.list_status_transitions("dispatch", found)
    assert (None, "pending", "dispatch.pending.enqueued", "enqueued kind=k", "system", "enqueue_dispatch", [], {}) == (
        pick(
            entry,
            "previous_status",
            "status",
            "reason_code",
            "reason_summary",
            "source",
            "actor",
            "evidence_refs",
            "metadata",
        )
    )
    plain = await state.get_dispatch(await _enqueue(state))
    assert (None, {}, 0) == (plain["ack_token"], plain["payload"]["body"], plain["ack_required"])


async def test_the_first_of_a_dedup_key_stays(backend: Backend, state: Any) -> None:
    first = await _enqueue(state, dedup_key="x", body={"n": 1})
    assert first == await _enqueue(state, dedup_key="x", body={"n": 2}, session_id="missing")
    assert first != await _enqueue(state, dedup_key="y")
    assert {"n": 1} == (await state.get_dispatch(first))["payload"]["body"]
    assert ["dispatch.pending.enqueued"] == await _reasons(state, first)


async def test_two_stores_enter_one_dedup_key_once(backend: Backend, state: Any) -> None:
    stores = (state, backend.direct)
    ids = await asyncio.gather(*(_enqueue(stores[n % 2], dedup_key="x") for n in range(16)))
    assert 1 == len(set(ids))
    assert 1 == await state.count_dispatches()
    assert ["dispatch.pending.enqueued"] == await _reasons(state, ids[0])


async def test_bad_arguments_change_nothing(backend: Backend, state: Any) -> None:
    await _enqueue(state, ack_required=True)
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        _enqueue(state, deliver_to=" "),
        _enqueue(state, deliver_to="a\0b"),
        _enqueue(state, deliver_to=None),
        _enqueue(state, kind=None),
        _enqueue(state, body=["a"]),
        _enqueue(state, body={"a": float("nan")}),
        _enqueue(state, max_attempts=0),
        _enqueue(state, expires_at="soon"),
        _enqueue(state, dedup_key="\0"),
        state.enqueue_revival_heartbeat(["a", " "], reset_epoch=1.0),
        state.enqueue_revival_heartbeat("a", reset_epoch=1.0),
        state.list_dispatches(status="done"),
        state.list_dispatches(limit=0),
        state.claim_due_dispatches(limit=1001),
        state.claim_due_dispatches(lease_seconds=0),
        state.finish_dispatch_attempt("x", attempt=0),
        state.purge_dispatches(),
        state.purge_dispatches(dry_run=True),
        state.purge_dispatches(status="done"),
        state.purge_dispatches(before="x"),
        state.purge_dispatches(status="acked", limit=10_001),
    )
    await assert_refused_unchanged(
        backend,
        ForeignKeyError,
        _enqueue(state, session_id="missing"),
        _enqueue(state, schedule_run_id="missing"),
    )


async def test_missing_dispatches(backend: Backend, state: Any) -> None:
    assert await state.get_dispatch("m") is None
    assert await state.next_dispatch_at() is None
    assert [] == await state.list_dispatches()
    assert [] == await state.claim_due_dispatches()
    assert 0 == await state.count_dispatches(status="pending")
    await assert_refused_unchanged(backend, NotFoundError, state.ack_dispatch("m", "t"), state.retry_dispatch("m"))
    assert await state.finish_dispatch_attempt("m", attempt=1) is None
    assert not await state.purge_dispatch("m")
    assert [] == await state.list_admin_events()


async def test_lists_come_newest_first(backend: Backend, state: Any) -> None:
    for number, (name, status) in enumerate((("a", "pending"), ("c", "acked"), ("b", "pending"))):
        at = 1.0 if name == "b" else float(number)
        await put(
            backend,
            "dispatch_outbox",
            id=name,
            kind="k",
            deliver_to="d",
            payload='"text"',
            status=status,
            next_attempt_at=7.0 + number,
            created_at=at,
        )
    found = await state.list_dispatches()
    assert ["c", "b", "a"] == [row["id"] for row in found]
    assert "text" == found[0]["payload"]
    assert ["a"] == [row["id"] for row in await state.list_dispatches(status="pending", limit=1, offset=1)]
    assert [3, 2, 0] == [await state.count_dispatches(status=status) for status in (None, "pending", "expired")]
    assert 7.0 == await state.next_dispatch_at()


async def test_a_claim_counts_the_attempt_and_holds_a_lease(backend: Backend, state: Any) -> None:
    found = await _enqueue(state)
    at = (await state.get_dispatch(found))["next_attempt_at"] + 1
    assert [] == await state.claim_due_dispatches(now=at - 2)
    (row,) = await state.claim_due_dispatches(now=at, lease_seconds=20)
    assert row == await state.get_dispatch(found)
    assert ("delivering", 1, at + 20, at) == pick(row, "status", "attempt", "next_attempt_at", "updated_at")
    assert at + 20 == await state.next_dispatch_at()
    assert [] == await state.claim_due_dispatches(now=at + 19)
    (again,) = await state.claim_due_dispatches(now=at + 20)
    assert ("delivering", 2) == pick(again, "status", "attempt")
    # The first one comes back late: its attempt is no longer the dispatch's.
    assert await state.finish_dispatch_attempt(found, attempt=1) is None
    assert "delivered" == await state.finish_dispatch_attempt(found, attempt=2, now=at + 21)
    assert await state.finish_dispatch_attempt(found, attempt=2) is None
    assert await state.next_dispatch_at() is None
    entries = await state.list_status_transitions("dispatch", found)
    assert [
        ("delivering", "delivered", "dispatch.delivered.transport_ok", "scheduler", "dispatch_delivery_loop"),
        ("delivering", "delivering", "dispatch.delivering.attempt", "scheduler", "dispatch_delivery_loop"),
        ("pending", "delivering", "dispatch.delivering.attempt", "scheduler", "dispatch_delivery_loop"),
    ] == [pick(entry, "previous_status", "status", "reason_code", "source", "actor") for entry in entries[:3]]
    assert ["attempt 2", "attempt 1"] == [entry["reason_summary"] for entry in entries[1:3]]


async def test_concurrent_claims_never_share_an_attempt(backend: Backend, state: Any) -> None:
    """The daemon's writer and one of this process, or one writer many times."""
    ids = await asyncio.gather(*(_enqueue(state) for _ in range(24)))
    stores = (state, backend.direct)
    claims = await asyncio.gather(*(stores[n % 2].claim_due_dispatches(limit=5) for n in range(16)))
    taken = [row["id"] for rows in claims for row in rows]
    assert sorted(ids) == sorted(taken)
    assert {1} == {row["attempt"] for row in await state.list_dispatches()}
    ends = await asyncio.gather(*(stores[n % 2].finish_dispatch_attempt(ids[0], attempt=1) for n in range(6)))
    assert 1 == ends.count("delivered") and 5 == ends.count(None)


async def test_the_longest_due_are_claimed_first(backend: Backend, state: Any) -> None:
    for number, name in enumerate("cab"):
        await put(
            backend,
            "dispatch_outbox",
            id=name,
            kind="k",
            deliver_to="d",
            payload="{}",
            next_attempt_at=float(number),
            created_at=1.0,
        )
    assert ["c", "a"] == [row["id"] for row in await state.claim_due_dispatches(limit=2)]
    assert ["b"] == [row["id"] for row in await state.claim_due_dispatches(limit=2)]


async def test_a_claim_expires_what_is_too_late(backend: Backend, state: Any) -> None:
    found = await _enqueue(state, expires_at=5.0)
    kept = await _enqueue(state, expires_at=LATE)
    assert [kept] == [row["id"] for row in await state.claim_due_dispatches()]
    assert ("expired", 0) == pick(await state.get_dispatch(found), "status", "attempt")
    assert ["dispatch.pending.enqueued", "dispatch.expired.deadline"] == await _reasons(state, found)


async def test_failures_back_off_until_the_attempts_are_used_up(backend: Backend, state: Any) -> None:
    found = await _enqueue(state, max_attempts=8)
    waits, now = [], (await state.get_dispatch(found))["next_attempt_at"]
    for attempt in range(1, 8):
        assert [attempt] == [row["attempt"] for row in await state.claim_due_dispatches(now=now)]
        now += 1
        assert "pending" == await state.finish_dispatch_attempt(found, attempt=attempt, error=f"e{attempt}", now=now)
        row = await state.get_dispatch(found)
        assert ("pending", f"e{attempt}") == pick(row, "status", "last_error")
        waits.append(round(row["next_attempt_at"] - now))
        now = row["next_attempt_at"]
    assert [60, 120, 240, 480, 960, 1800, 1800] == waits
    (entry, *_) = await state.list_status_transitions("dispatch", found)
    assert ("dispatch.pending.retry_backoff", "retry in 1800s: e7") == pick(entry, "reason_code", "reason_summary")
    await state.claim_due_dispatches(now=now)
    long = "x" * 5_000
    assert "dead_letter" == await state.finish_dispatch_attempt(found, attempt=8, error=long, now=now + 1)
    row = await state.get_dispatch(found)
    assert ("dead_letter", 8, long[:2_000]) == pick(row, "status", "attempt", "last_error")
    assert "dispatch.dead_letter.max_attempts" == (await _reasons(state, found))[-1]
    assert [] == await state.claim_due_dispatches(now=LATE)


async def test_a_permanent_failure_is_a_dead_letter_at_once(backend: Backend, state: Any) -> None:
    found = await _enqueue(state)
    await state.claim_due_dispatches()
    assert "dead_letter" == await state.finish_dispatch_attempt(found, attempt=1, error="no", permanent=True)
    (entry, *_) = await state.list_status_transitions("dispatch", found)
    assert "refused for good: no" == entry["reason_summary"]


async def test_a_lease_that_ran_out_on_the_last_attempt_ends_it(backend: Backend, state: Any) -> None:
    found = await _enqueue(state, max_attempts=1)
    now = (await state.get_dispatch(found))["next_attempt_at"] + 1
    assert [1] == [row["attempt"] for row in await state.claim_due_dispatches(now=now)]
    assert [] == await state.claim_due_dispatches(now=now + 15)
    row = await state.get_dispatch(found)
    assert ("dead_letter", 1, "the lease of the last attempt ran out") == pick(row, "status", "attempt", "last_error")


async def test_an_acknowledgement_ends_the_attempts(backend: Backend, state: Any) -> None:
    found = await _enqueue(state, ack_required=True, max_attempts=2)
    (row,) = await state.claim_due_dispatches()
    token = row["ack_token"]
    assert "pending" == await state.finish_dispatch_attempt(found, attempt=1, now=1.0)
    assert 61.0 == (await state.get_dispatch(found))["next_attempt_at"]
    (again,) = await state.claim_due_dispatches()
    assert [True] * 4 == await asyncio.gather(*(state.ack_dispatch(found, token) for _ in range(4)))
    assert await state.finish_dispatch_attempt(found, attempt=again["attempt"]) is None
    assert "acked" == (await state.get_dispatch(found))["status"]
    (entry, _) = (await state.list_status_transitions("dispatch", found))[:2]
    assert ("delivering", "acked", "dispatch.acked.consumer", "operator", "li_dispatch_ack") == pick(
        entry, "previous_status", "status", "reason_code", "source", "actor"
    )
    assert 1 == (await _reasons(state, found)).count("dispatch.acked.consumer")


async def test_sends_without_an_acknowledgement_end_too(backend: Backend, state: Any) -> None:
    found = await _enqueue(state, ack_required=True, max_attempts=1)
    (row,) = await state.claim_due_dispatches()
    assert "dead_letter" == await state.finish_dispatch_attempt(found, attempt=1)
    assert "dispatch.dead_letter.ack_timeout" == (await _reasons(state, found))[-1]
    plain = await _enqueue(state)
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        state.ack_dispatch(found, row["ack_token"]),
        state.ack_dispatch(found, "ü"),
        state.ack_dispatch(plain, ""),
        state.ack_dispatch(plain, None),
    )


async def test_an_operator_retries_what_ended(backend: Backend, state: Any) -> None:
    found = await _enqueue(state, max_attempts=1)
    with pytest.raises(InvalidInputError, match="pending"):
        await state.retry_dispatch(found)
    await state.claim_due_dispatches()
    await state.finish_dispatch_attempt(found, attempt=1, error="e")
    retries = await asyncio.gather(*(state.retry_dispatch(found) for _ in range(4)), return_exceptions=True)
    assert [True] == [outcome for outcome in retries if not isinstance(outcome, InvalidInputError)]
    assert ("pending", 0, None) == pick(await state.get_dispatch(found), "status", "attempt", "last_error")
    (entry, *_) = await state.list_status_transitions("dispatch", found)
    assert ("operator-forced retry", "operator", "li_dispatch_retry") == pick(
        entry, "reason_summary", "source", "actor"
    )
    assert [1] == [row["attempt"] for row in await state.claim_due_dispatches()]


async def test_heartbeats_once_for_each_seat_and_epoch(backend: Backend, state: Any) -> None:
    first = await state.enqueue_revival_heartbeat(["b", "a", "b"], reset_epoch=LATE)
    assert first[0] == first[2] != first[1]
    assert first == await state.enqueue_revival_heartbeat(["b", "a", "b"], reset_epoch=LATE, max_attempts=1)
    row = await state.get_dispatch(first[0])
    assert ("revival_ping", "b", f"revival:b:{LATE}", LATE + 3600, {"reset_epoch": LATE}) == (
        *pick(row, "kind", "deliver_to", "dedup_key", "expires_at"),
        row["payload"]["body"],
    )
    (other,) = await state.enqueue_revival_heartbeat(["b"], reset_epoch=0.0)
    assert (await state.get_dispatch(other))["expires_at"] is None
    assert [] == await state.enqueue_revival_heartbeat([], reset_epoch=1.0)


async def test_a_purge_of_one_takes_any_status_and_is_noted(backend: Backend, state: Any) -> None:
    found = await _enqueue(state)
    assert [True, False] == [await state.purge_dispatch(found, actor="op") for _ in range(2)]
    (event,) = await state.list_admin_events(action="dispatch_purge")
    assert (found, "op", {"dispatch_id": found, "status": "pending", "total": 1}) == pick(
        event, "target_id", "actor", "details"
    )


async def test_a_purge_of_many_takes_terminal_ones_unless_named(backend: Backend, state: Any) -> None:
    for number, status in enumerate(("pending", "delivering", "delivered", "acked", "acked", "dead_letter")):
        await put(
            backend,
            "dispatch_outbox",
            id=f"d{number}",
            kind="k",
            deliver_to="d",
            payload="{}",
            status=status,
            next_attempt_at=1.0,
            created_at=1.0,
            updated_at=float(number),
        )
    dry = await state.purge_dispatches(before=4.0, dry_run=True)
    assert {"total": 3, "dry_run": True, "delivered": 1, "acked": 2} == dry
    assert 6 == await state.count_dispatches()
    assert {**dry, "dry_run": False} == await state.purge_dispatches(before=4.0)
    assert ["d0", "d1", "d5"] == sorted(row["id"] for row in await state.list_dispatches())
    assert {"total": 1, "dry_run": False, "pending": 1} == await state.purge_dispatches(status="pending")
    assert {"total": 0, "dry_run": False} == await state.purge_dispatches(status="delivering", before=0.5)
    events = await state.list_admin_events(action="dispatch_purge")
    assert [(0, {}), (1, {"pending": 1}), (3, {"delivered": 1, "acked": 2}), (3, {"delivered": 1, "acked": 2})] == [
        pick(event["details"], "total", "counts_by_status") for event in events
    ]


async def test_a_purge_goes_in_bounded_calls(backend: Backend, state: Any) -> None:
    await asyncio.gather(*(_enqueue(state) for _ in range(7)))
    totals = [(await state.purge_dispatches(status="pending", limit=3))["total"] for _ in range(4)]
    assert [3, 3, 1, 0] == totals
