"""Schedule sets: the plan of a declaration is applied as a whole, under its claims, or leaves no trace."""

from __future__ import annotations

import asyncio
from typing import Any

from lionstate.errors import InvalidInputError, OwnershipConflictError, UniqueConflictError
from tests.support.backends import Backend
from tests.support.records import assert_refused_unchanged, pick
from tests.support.scheduling import schedule

EMPTY: dict[str, Any] = {"creates": [], "updates": [], "disables": []}


async def _codes(state: Any, schedule_id: str) -> list[str]:
    events = (await state.get_schedule_history(schedule_id))["events"]
    return [event["reason_code"].removeprefix("schedule_definition.") for event in events]


async def test_a_plan_creates_changes_and_disables(backend: Backend, state: Any) -> None:
    for name in "abcd":
        await state.create_schedule(schedule(name, owner_key="o", enabled=name != "c", updated_at=2.0))
    reason = {"code": "schedule_definition.disabled.manual", "summary": "why", "metadata": {"m": 1}}
    await state.apply_schedule_set(
        creates=[schedule("n", owner_key="o", rate_limit={"r": 1})],
        updates=[("a", {"description": "x"}), ("b", {"enabled": 0}), ("c", {"enabled": True, "notify_on": ["n"]})],
        disables=["d", "missing"],
        expect_owner_keys={"a": "o", "d": "o"},
        expect_updated_at={"b": 2.0},
        reason=reason,
    )
    rows = {name: await state.get_schedule(name) for name in "abcdn"}
    assert [1, 0, 1, 0, 1] == [row["enabled"] for row in rows.values()]
    assert ("x", ["n"], {"r": 1}) == (rows["a"]["description"], rows["c"]["notify_on"], rows["n"]["rate_limit"])
    assert ["created.observed"] == await _codes(state, "a")
    assert ["disabled.declared", "created.observed"] == await _codes(state, "b")
    assert ["enabled.observed", "created.observed"] == await _codes(state, "c")
    assert ["disabled.omitted", "created.observed"] == await _codes(state, "d")
    event = (await state.get_schedule_history("d"))["events"][0]
    assert ("why", "declaration") == pick(event, "reason_summary", "source")
    declaration = {"owner_key": "o", "member_id": "d", "cause": "omitted"}
    assert (1, declaration) == pick(event["metadata"], "m", "declaration")
    (created,) = (await state.get_schedule_history("n"))["events"]
    assert "created" == created["metadata"]["declaration"]["cause"]


async def test_a_schedule_may_stand_in_a_plan_twice(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a"))
    note = {"code": "schedule_definition.created.observed", "summary": "s"}
    updates = [("n", {"description": "x"}), ("a", {"enabled": 0}), ("a", {"description": "y"})]
    plan = {"creates": [schedule("n", enabled=0)], "updates": updates, "disables": ["a"]}
    await state.apply_schedule_set(**plan, reason=note)
    assert ["disabled.declared", "created.observed"] == await _codes(state, "a")
    assert (0, "y") == pick(await state.get_schedule("a"), "enabled", "description")
    assert (0, "x") == pick(await state.get_schedule("n"), "enabled", "description")


async def test_a_lost_claim_undoes_the_plan(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a", owner_key="o", updated_at=2.0))
    await state.create_schedule(schedule("b", updated_at=2.0))
    creates, updates = [schedule("n")], [("b", {"enabled": 0}), ("a", {"description": "x"})]
    plan = {"creates": creates, "updates": updates, "disables": []}
    apply = state.apply_schedule_set
    await assert_refused_unchanged(
        backend,
        OwnershipConflictError,
        apply(**plan, expect_owner_keys={"a": "p"}),
        apply(**plan, expect_owner_keys={"a": None}),
        apply(**plan, expect_updated_at={"a": 3.0}),
        apply(**{**plan, "disables": ["missing"]}, expect_owner_keys={"missing": None}),
        apply(creates=creates, updates=[], disables=["b", "a"], expect_owner_keys={"a": "p"}),
    )
    await assert_refused_unchanged(
        backend, UniqueConflictError, apply(**{**plan, "creates": [*creates, schedule("m", name="name-a")]})
    )
    await assert_refused_unchanged(backend, InvalidInputError, apply(**{**plan, "creates": [*creates, schedule("a")]}))


async def test_bad_plans_change_nothing(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a"))
    apply = state.apply_schedule_set
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        apply(**{**EMPTY, "creates": [schedule("n"), {"id": "m"}]}),
        apply(**{**EMPTY, "creates": "text"}),
        apply(**{**EMPTY, "updates": [("a", {"id": "b"})]}),
        apply(**{**EMPTY, "updates": [("a", {"enabled": 7})]}),
        apply(**{**EMPTY, "updates": ["ab"]}),
        apply(**{**EMPTY, "updates": [("a", "text")]}),
        apply(**{**EMPTY, "disables": "a"}),
        apply(**{**EMPTY, "disables": ["a"] * 1001}),
        apply(**{**EMPTY, "disables": ["a"] * 1000, "updates": [("a", {})]}),
        apply(**{**EMPTY, "disables": ["a"]}, expect_owner_keys=["a"]),
        apply(**{**EMPTY, "disables": ["a"]}, expect_updated_at={"a": "now"}),
        apply(**{**EMPTY, "disables": ["a"]}, reason={"code": "run.started.ok"}),
        apply(**{**EMPTY, "disables": ["a"]}, audit_context={"origin": "moon"}),
    )


async def test_an_empty_plan_does_nothing(backend: Backend, state: Any) -> None:
    await state.apply_schedule_set(**EMPTY)
    await state.apply_schedule_set(**{**EMPTY, "disables": ["missing"], "updates": [("missing", {"name": "n"})]})
    assert [] == await state.list_schedules()
    assert [] == await backend.rows("SELECT id FROM status_transitions")


async def test_of_concurrent_plans_under_one_claim_one_lands(backend: Backend, state: Any) -> None:
    names = "abcd"
    for name in names:
        await state.create_schedule(schedule(name, updated_at=1.0))

    async def apply(number: int) -> bool:
        # Each in another order, so that plans which lock as they go would wait crosswise.
        order = names if number % 2 else names[::-1]
        updates = [(name, {"description": str(number), "enabled": 0}) for name in order]
        try:
            await state.apply_schedule_set(
                creates=[], updates=updates, disables=[], expect_updated_at=dict.fromkeys(names, 1.0)
            )
        except OwnershipConflictError:
            return False
        return True

    assert 1 == (await asyncio.gather(*(apply(number) for number in range(6)))).count(True)
    assert 1 == len({row["description"] for row in await state.list_schedules()})
