"""Signals, controls and tags of sessions: sequences, compare-and-set, all-tags filter."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lionstate.errors import ForeignKeyError, InvalidInputError
from tests.support.backends import Backend
from tests.support.records import assert_refused_unchanged, pick, put, put_session


def _signal(session_id: str = "s", **columns: Any) -> dict[str, Any]:
    return {"session_id": session_id, "kind": "k", "ts": 1.0, "payload": {}, **columns}


async def test_signals_are_numbered_per_session(backend: Backend, state: Any) -> None:
    for name in "st":
        await put_session(backend, name)
    numbers = [await state.insert_session_signal(**_signal(name)) for name in "sst"]
    assert [1, 2, 1] == numbers
    await state.insert_session_signal(**_signal(op_id="o", ts=2.5, payload={"a": [None]}))
    (row,) = await state.get_session_signals_after("s", 2)
    assert (3, "k", "o", 2.5, {"a": [None]}) == pick(row, "seq", "kind", "op_id", "ts", "payload")
    assert [1, 2] == [row["seq"] for row in await state.get_session_signals_after("s", 0, limit=2)]
    assert [] == await state.get_session_signals_after("missing", 0)


async def test_concurrent_signals_get_every_number_once(backend: Backend, state: Any) -> None:
    for name in "st":
        await put_session(backend, name)
    numbers = await asyncio.gather(*(state.insert_session_signal(**_signal("st"[n % 2])) for n in range(60)))
    assert [list(range(1, 31))] * 2 == [sorted(numbers[::2]), sorted(numbers[1::2])]


async def test_two_stores_number_one_session_together(backend: Backend, state: Any) -> None:
    """The daemon's writer and one of this process, or one writer twice: no number is lost or doubled."""
    await put_session(backend, "s")
    stores = (state, backend.direct)
    numbers = await asyncio.gather(*(stores[n % 2].insert_session_signal(**_signal()) for n in range(40)))
    assert list(range(1, 41)) == sorted(numbers)


async def test_bad_signals_change_nothing(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        state.insert_session_signal(**_signal(payload=["a"])),
        state.insert_session_signal(**_signal(payload={"a": float("inf")})),
        state.insert_session_signal(**_signal(ts="now")),
        state.insert_session_signal(**_signal(kind=None)),
        state.get_session_signals_after("s", "0"),
        state.get_session_signals_after("s", 0, limit=1001),
    )
    await assert_refused_unchanged(backend, ForeignKeyError, state.insert_session_signal(**_signal("missing")))


async def test_a_payload_that_is_no_object_reads_as_one(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    for seq, payload in enumerate(("[1]", "null", '"{"'), 1):
        await put(backend, "session_signals", id=str(seq), session_id="s", seq=seq, kind="k", ts=1.0, payload=payload)
    assert [{}] * 3 == [row["payload"] for row in await state.get_session_signals_after("s", 0)]


async def test_controls_are_taken_only_by_running_sessions(backend: Backend, state: Any) -> None:
    poller = '{"flow_control_poller": "active"}'
    await put_session(backend, "run", project="p")
    await put_session(backend, "done", status="completed")
    await put_session(backend, "none", status=None)
    await put_session(backend, "flow", invocation_kind="flow", node_metadata='{"flow_control_poller": "stopped"}')
    await put_session(backend, "play", invocation_kind="play", node_metadata=poller)
    await put_session(backend, "odd", invocation_kind="flow", node_metadata='["x"]')
    cases = (
        ("missing", {}, False),
        ("done", {}, False),
        ("none", {}, False),
        ("run", {}, True),
        ("run", {"project": "p"}, True),
        ("run", {"project": "q"}, False),
        ("run", {"require_live_flow_poller": True}, True),
        ("flow", {}, True),
        ("flow", {"require_live_flow_poller": True}, False),
        ("odd", {"require_live_flow_poller": True}, False),
        ("play", {"require_live_flow_poller": True}, True),
    )
    for session, more, expected in cases:
        taken = await state.insert_session_control(session_id=session, verb="stop", **more)
        assert expected is (taken is not None), (session, more)
    assert 5 == len(await backend.rows("SELECT id FROM session_controls"))


async def test_bad_controls_change_nothing(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    control = await state.insert_session_control(session_id="s", verb="stop")
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        state.insert_session_control(session_id="s", verb="kill"),
        state.insert_session_control(session_id="s", verb="stop", payload="x"),
        state.insert_session_control(session_id="s", verb="stop", created_at="x"),
        state.finalize_session_control(control, result="ok", expect_claim="applying", only_if_unclaimed=True),
        state.list_pending_session_controls("s", limit=0),
    )


async def test_pending_controls_come_oldest_first_claimed_ones_too(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    ids = [
        await state.insert_session_control(session_id="s", verb="message", payload={"n": n}, created_at=at)
        for n, at in enumerate((3.0, 1.0, 2.0))
    ]
    await state.mark_session_control_applying(ids[1])
    await state.finalize_session_control(ids[2], result="ok")
    found = await state.list_pending_session_controls("s")
    assert [(ids[1], {"n": 1}), (ids[0], {"n": 0})] == [pick(row, "id", "payload") for row in found]
    assert found[:1] == await state.list_pending_session_controls("s", limit=1)
    assert [] == await state.list_pending_session_controls("missing")
    assert found[0] == await state.get_session_control(ids[1])


async def test_of_many_claims_one_holds(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    control = await state.insert_session_control(session_id="s", verb="stop")
    claims = await asyncio.gather(*(state.mark_session_control_applying(control, owner=f"w{n}") for n in range(12)))
    (claim,) = [found for found in claims if found is not None]
    row = await state.get_session_control(control)
    assert claim == row["result"]
    assert row["claimed_at"] is not None and row["applied_at"] is None
    assert await state.finalize_session_control(control, result="ok", only_if_unclaimed=True) is False
    assert await state.finalize_session_control(control, result="ok", expect_claim="applying:other") is False
    assert await state.finalize_session_control(control, result="ok", expect_claim=claim) is True
    assert "ok" == (await state.get_session_control(control))["result"]
    assert await state.mark_session_control_applying(control) is None


async def test_of_settling_and_resolving_one_wins(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    control = await state.insert_session_control(session_id="s", verb="stop")
    assert await state.resolve_claimed_session_control(control, outcome="failed") is None
    assert "applying" == await state.mark_session_control_applying(control)
    settled, *resolved = await asyncio.gather(
        state.finalize_session_control(control, result="ok", expect_claim="applying"),
        *(state.resolve_claimed_session_control(control, outcome="failed", actor="me") for _ in range(4)),
    )
    texts = [found for found in resolved if found is not None]
    assert 1 == len(texts) + settled
    result = (await state.get_session_control(control))["result"]
    assert result == (texts[0] if texts else "ok")


async def test_a_resolution_names_outcome_actor_and_claim(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    control = await state.insert_session_control(session_id="s", verb="stop")
    await state.mark_session_control_applying(control, owner="w")
    result = await state.resolve_claimed_session_control(control, outcome="failed")
    assert result.startswith("failed: resolved by an unnamed operator after the claim 'applying:w'")
    row = await state.get_session_control(control)
    assert result == row["result"]
    assert row["applied_at"] is not None


async def test_missing_controls(backend: Backend, state: Any) -> None:
    assert await state.get_session_control("m") is None
    assert await state.mark_session_control_applying("m") is None
    assert await state.finalize_session_control("m", result="ok") is False
    assert await state.resolve_claimed_session_control("m", outcome="x") is None


async def test_tags_are_set_once_trimmed_and_sorted(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    taken = await asyncio.gather(*(state.create_run_tag("s", tag) for tag in ("b", " b ", "a", "B", "b")))
    assert [False, False, True, True, True] == sorted(taken)
    assert ["B", "a", "b"] == await state.list_run_tags("s")
    assert await state.delete_run_tag("s", "b ") is True
    assert await state.delete_run_tag("s", "b") is False
    assert ["B"] == await state.list_run_tags("s", limit=1)
    assert [] == await state.list_run_tags("missing")
    with pytest.raises(ForeignKeyError):
        await state.create_run_tag("missing", "a")


async def test_sessions_are_found_by_all_of_their_tags(backend: Backend, state: Any) -> None:
    for name, tags in (("s", "abc"), ("t", "ab"), ("u", "b"), ("v", "")):
        await put_session(backend, name)
        for tag in tags:
            await state.create_run_tag(name, tag)
    assert ["u", "t", "s"] == await state.list_sessions_with_tags(["b"])
    assert ["t", "s"] == await state.list_sessions_with_tags(["b", "a", " b"])
    assert ["s"] == await state.list_sessions_with_tags(["b", "a"], limit=1, offset=1)
    assert [] == await state.list_sessions_with_tags(["a", "x"])
    assert [("b", 3), ("a", 2), ("c", 1)] == [pick(row, "tag", "session_count") for row in await state.count_run_tags()]
    assert ["a"] == [row["tag"] for row in await state.count_run_tags(limit=1, offset=1)]
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        state.create_run_tag("s", "  "),
        state.create_run_tag("s", 3),
        state.list_sessions_with_tags([]),
        state.list_sessions_with_tags("ab"),
        state.list_sessions_with_tags(["a"] * 1001),
        state.list_run_tags("s", limit=0),
    )
