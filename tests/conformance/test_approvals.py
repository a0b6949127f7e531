"""Approvals: their changes as compare-and-set, expiry, and the chain of evidence."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lionstate.errors import ConflictError, ForeignKeyError, InvalidInputError, NotFoundError
from lionstate.records import approvals
from tests.support.backends import Backend
from tests.support.records import assert_refused_unchanged, pick, put_session

_PARAMS = {"b": [1, None], "a": "ü"}


async def _propose(state: Any, **more: Any) -> str:
    row = await state.create_approval(action_kind="deploy", params=_PARAMS, **more)
    found: str = row["id"]
    return found


async def _events(state: Any, approval_id: str | None = None) -> list[tuple[Any, ...]]:
    rows = await state.list_approval_evidence(approval_id=approval_id)
    return [pick(row, "sequence", "event_type", "status_from", "status_to") for row in rows]


async def _let_expire(backend: Backend, approval_id: str) -> None:
    await backend.execute("UPDATE approvals SET expires_at = 1.0 WHERE id = :id", id=approval_id)


async def test_an_approval_is_proposed_granted_and_used_once(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    approval = await _propose(state, session_id="s", ttl_seconds=10)
    row = await state.get_approval(approval)
    assert ("pending", "deploy", "s", 10.0) == (
        *pick(row, "status", "action_kind", "session_id"),
        row["expires_at"] - row["proposed_at"],
    )
    assert "granted" == (await state.grant_approval(approval))["status"]
    used = await state.consume_approval(approval, action_kind="deploy", params=dict(reversed(_PARAMS.items())))
    assert used == await state.get_approval(approval)
    assert row["proposed_at"] < used["granted_at"] < used["consumed_at"]
    with pytest.raises(ConflictError):
        await state.consume_approval(approval, action_kind="deploy", params=_PARAMS)
    assert [
        (1, "proposed", None, "pending"),
        (2, "granted", "pending", "granted"),
        (3, "consumed", "granted", "consumed"),
    ] == await _events(state, approval)


async def test_the_default_time_is_five_minutes(backend: Backend, state: Any) -> None:
    row = await state.create_approval(action_kind="a", params={})
    assert 300.0 == pytest.approx(row["expires_at"] - row["proposed_at"])


async def test_a_denial_keeps_its_reason(backend: Backend, state: Any) -> None:
    approval = await _propose(state)
    await state.deny_approval(approval, justification_class="policy", justification_reason="no")
    with pytest.raises(ConflictError):
        await state.grant_approval(approval)
    (_, entry) = await state.list_approval_evidence(approval_id=approval)
    assert ("denied", "policy", "no") == pick(entry, "event_type", "justification_class", "justification_reason")
    assert ["denied"] == [row["status"] for row in await state.list_approvals()]


async def test_an_approval_expires_when_it_is_looked_at(backend: Backend, state: Any) -> None:
    approval = await _propose(state)
    await _let_expire(backend, approval)
    assert ["expired"] == [row["status"] for row in await state.list_approvals(status="expired")]
    assert [] == await state.list_approvals(status="pending")
    assert 1 == len(await _events(state))
    for _ in range(2):
        assert "expired" == (await state.get_approval(approval))["status"]
    assert [(1, "proposed", None, "pending"), (2, "expired", "pending", "expired")] == await _events(state)


@pytest.mark.parametrize("granted", [False, True])
async def test_a_late_decision_is_refused_and_leaves_the_expiry(backend: Backend, state: Any, granted: bool) -> None:
    approval = await _propose(state)
    if granted:
        await state.grant_approval(approval)
    await _let_expire(backend, approval)
    with pytest.raises(ConflictError, match="expired"):
        if granted:
            await state.consume_approval(approval, action_kind="deploy", params=_PARAMS)
        else:
            await state.grant_approval(approval)
    assert "expired" == (await _events(state))[-1][1]
    assert [("expired",)] == [pick(row, "status") for row in await backend.rows("SELECT status FROM approvals")]


async def test_what_was_not_approved_is_refused(backend: Backend, state: Any) -> None:
    approval = await _propose(state)
    await assert_refused_unchanged(
        backend, ConflictError, state.consume_approval(approval, action_kind="deploy", params=_PARAMS)
    )
    await state.grant_approval(approval)
    await assert_refused_unchanged(
        backend,
        ConflictError,
        state.grant_approval(approval),
        state.deny_approval(approval),
        state.consume_approval(approval, action_kind="other", params=_PARAMS),
        state.consume_approval(approval, action_kind="deploy", params={**_PARAMS, "c": 1}),
    )


async def test_missing_and_bad_approvals(backend: Backend, state: Any) -> None:
    assert await state.get_approval("m") is None
    assert {"valid": True, "total_entries": 0, "broken": None} == await state.verify_approval_chain()
    await assert_refused_unchanged(
        backend,
        NotFoundError,
        state.grant_approval("m"),
        state.deny_approval("m"),
        state.consume_approval("m", action_kind="a", params={}),
    )
    await assert_refused_unchanged(backend, ForeignKeyError, _propose(state, session_id="m"))
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        state.create_approval(action_kind="a", params=["x"]),
        state.create_approval(action_kind="a", params={"x": object()}),
        state.create_approval(action_kind=3, params={}),
        _propose(state, ttl_seconds=0),
        _propose(state, ttl_seconds=float("inf")),
        state.list_approvals(status="x"),
        state.list_approvals(limit=0),
        state.list_approval_evidence(after_sequence=-1),
    )


async def test_approvals_page_newest_first(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    ids = [await _propose(state), await _propose(state, session_id="s"), await _propose(state)]
    await state.create_approval(action_kind="other", params={})
    assert ids[::-1] == [row["id"] for row in await state.list_approvals(action_kind="deploy")]
    assert ids[1:2] == [row["id"] for row in await state.list_approvals(session_id="s", status="pending")]
    assert ids[1:2] == [row["id"] for row in await state.list_approvals(limit=1, offset=2)]
    assert [3, 4] == [row["sequence"] for row in await state.list_approval_evidence(after_sequence=2)]
    assert [3] == [row["sequence"] for row in await state.list_approval_evidence(after_sequence=2, limit=1)]


async def test_of_many_decisions_one_is_made(backend: Backend, state: Any) -> None:
    approval = await _propose(state)
    outcomes = await asyncio.gather(
        *(state.grant_approval(approval) for _ in range(6)),
        *(state.deny_approval(approval) for _ in range(6)),
        return_exceptions=True,
    )
    assert 11 == sum(isinstance(found, ConflictError) for found in outcomes)
    assert 2 == len(await _events(state))


async def test_concurrent_evidence_is_one_unbroken_chain(backend: Backend, state: Any) -> None:
    """Two stores write at the same time, where the backend has two."""
    stores = (state, backend.direct)
    ids = await asyncio.gather(*(_propose(stores[n % 2]) for n in range(20)))
    await asyncio.gather(*(stores[n % 2].grant_approval(found) for n, found in enumerate(ids)))
    assert {"valid": True, "total_entries": 40, "broken": None} == await state.verify_approval_chain()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("justification_reason = 'x'", "the content is not what was hashed"),
        ("previous_hash = 'x'", "it does not follow the entry before it"),
        ("chain_hash = 'x'", "the chain hash is not that of content and predecessor"),
        ("sequence = 9", "sequence 2 is missing"),
        ("hmac_sig = NULL", "the signature is missing"),
        ("hmac_sig = 'x'", "the signature is not that of the key"),
    ],
)
async def test_the_first_broken_link_is_named(backend: Backend, state: Any, change: str, problem: str) -> None:
    for _ in range(3):
        await _propose(state, hmac_key="key")
    assert (await state.verify_approval_chain(hmac_key="key"))["valid"] is True
    entry = (await state.list_approval_evidence())[1]
    await backend.execute(f"UPDATE approval_evidence SET {change} WHERE sequence = 2")
    verdict = await state.verify_approval_chain(hmac_key="key")
    assert (False, 3) == pick(verdict, "valid", "total_entries")
    broken = verdict["broken"]
    assert problem == broken["problem"]
    expected = entry if "sequence" not in change else (await state.list_approval_evidence())[1]
    assert pick(expected, "sequence", "id", "approval_id") == pick(broken, "sequence", "id", "approval_id")
    assert ("hmac" in change) is (await state.verify_approval_chain())["valid"]


async def test_a_chain_is_verified_in_parts(backend: Backend, state: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        await _propose(state, hmac_key="key")
    monkeypatch.setattr(approvals, "MOST_LINKS", 4)
    with pytest.raises(InvalidInputError, match="more than 4 entries"):
        await state.verify_approval_chain()
    parts = [await state.verify_approval_chain(hmac_key="key", after_sequence=n, limit=2) for n in (0, 2, 4, 5)]
    assert [(True, 2), (True, 2), (True, 1), (True, 0)] == [pick(part, "valid", "total_entries") for part in parts]
    assert parts[2] == await state.verify_approval_chain(after_sequence=4)
    await backend.execute("UPDATE approval_evidence SET chain_hash = 'x' WHERE sequence = 2")
    part = await state.verify_approval_chain(after_sequence=2, limit=2)
    assert (3, "it does not follow the entry before it") == pick(part["broken"], "sequence", "problem")
    await backend.execute("DELETE FROM approval_evidence WHERE sequence = 4")
    part = await state.verify_approval_chain(after_sequence=3)
    assert (5, "sequence 4 is missing") == pick(part["broken"], "sequence", "problem")
    for wrong in ({"after_sequence": 4}, {"limit": 0}, {"limit": 50_001}, {"after_sequence": -1}):
        with pytest.raises(InvalidInputError):
            await state.verify_approval_chain(**wrong)


async def test_a_removed_entry_is_noticed(backend: Backend, state: Any) -> None:
    for _ in range(3):
        await _propose(state)
    await backend.execute("DELETE FROM approval_evidence WHERE sequence = 1")
    assert (2, "sequence 1 is missing") == pick((await state.verify_approval_chain())["broken"], "sequence", "problem")
