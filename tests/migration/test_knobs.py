"""Knobs are kept, audited, and obeyed from the next step on; chunks follow the holds that were measured."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from lionstate.errors import InvalidInputError
from lionstate.migration import Knobs, ProgressionMigrationService, StopReason, acting_as
from tests.support.backends import Backend
from tests.support.migration import WHOLE, Staged, assert_cut_over, make_ids, service_of, until_done


async def setting(service: ProgressionMigrationService, name: str) -> Any:
    (found,) = [one for one in await service.knobs() if one.name == name]
    return found


async def test_a_knob_is_kept_with_who_and_why_and_audited(backend: Backend) -> None:
    """Decision 26: another service on the store, as after a restart, finds the value."""
    service = service_of(backend)
    before = await setting(service, "max_items")
    assert (500, None) == (before.value, before.actor)
    await service.set_knob("max_items", 100, reason="slow disk")
    found = await setting(service_of(backend), "max_items")
    assert (100, 500, "test", "slow disk", None) == (
        found.value,
        found.default,
        found.actor,
        found.reason,
        found.expires_at,
    )
    assert abs(time.time() - found.since) < 60
    (event,) = await backend.rows("SELECT actor, details FROM admin_events WHERE action LIKE '%max_items'")
    assert ("test", True) == (event["actor"], "100" in str(event["details"]))
    assert 500 == (await service.set_knob("max_items", None)).value
    assert await setting(service, "max_items") == before


async def test_a_knob_is_signed_by_whom_the_service_acts_for(backend: Backend) -> None:
    """Also where it is written, in another thread or task; taking it back is signed as well."""
    service = service_of(backend)
    with acting_as("alice"):
        assert "alice" == (await service.set_knob("max_items", 100)).actor
    with acting_as("bob"):
        await service.set_knob("max_items", None)
    events = await backend.rows("SELECT actor FROM admin_events WHERE action LIKE '%max_items' ORDER BY created_at")
    assert ["alice", "bob"] == [event["actor"] for event in events]


async def test_a_knob_falls_back_when_its_time_is_over(backend: Backend) -> None:
    service = ProgressionMigrationService(backend.direct.store, defaults=Knobs(max_items=300))
    found = await service.set_knob("max_items", 100, expires_at=time.time() + 3_600)
    assert 100 == found.value
    await backend.execute("UPDATE migration_control SET expires_at = 1.0 WHERE key = 'knob.max_items'")
    assert (300, None) == (lambda one: (one.value, one.actor))(await setting(service, "max_items"))


async def test_what_no_knob_takes_changes_nothing(backend: Backend) -> None:
    service = service_of(backend)
    for name, value, expires_at in (
        ("max_items", 0, None),
        ("max_items", 501, None),
        ("max_items", 100, time.time() - 1),
        ("max_items", None, time.time() + 60),
    ):
        with pytest.raises(InvalidInputError):
            await service.set_knob(name, value, expires_at=expires_at)
    with pytest.raises(InvalidInputError, match="hold_target_seconds"):
        await service.set_knob("nothing", 1)
    assert [] == await backend.rows("SELECT key FROM migration_control WHERE key = 'knob.max_items'")


async def test_a_value_of_another_release_is_left_alone(backend: Backend) -> None:
    await backend.execute(
        "INSERT INTO migration_control (key, value, actor, updated_at)"
        " VALUES ('knob.max_items', '\"many\"', 'x', 1.0), ('knob.gone', '1', 'x', 1.0)"
    )
    service = service_of(backend)
    assert 500 == (await setting(service, "max_items")).value
    await service.step(max_seconds=60)


class Holds:
    """What a writer measures, told by the test."""

    def __init__(self, store: Any, each: float) -> None:
        self._each = each
        self.staged: Staged | None = None
        self.others_write = True
        self.checkpoint: float | None = None

    def take_hold(self) -> float | None:
        chunks = self.staged.results("chunk") if self.staged is not None else []
        return self._each * chunks[-1].count if chunks else None

    def take_checkpoint(self) -> float | None:
        return self.checkpoint

    def readings(self) -> dict[Any, float | None]:
        return {}


async def test_chunks_are_fitted_to_the_hold(backend: Backend) -> None:
    """fault 20 and decision 36: the first chunk has the configured size, the next ones what the target allows."""
    ids = make_ids(2_000)
    await backend.put_progression("p", json.dumps(ids))
    staged = Staged(backend)
    # On PostgreSQL a hold of one progression may last 50 times as long.
    holds = Holds(backend.direct.store, each=0.001 if backend.is_postgresql else 0.00002)
    holds.staged = staged
    staged.load = holds  # type: ignore[assignment]
    service = ProgressionMigrationService(staged)
    await service.set_knob("hold_target_seconds", 0.002)
    await service.set_knob("max_items", 400)
    await until_done(service, **WHOLE)
    assert [400, 200, 100, 100] == [stage.count for stage in staged.results("chunk")][:4]
    await assert_cut_over(backend, ids)


async def test_rests_leave_the_lock_its_share(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    await backend.put_progression("p", json.dumps(make_ids(1_000)))
    staged = Staged(backend)
    holds = Holds(backend.direct.store, each=0.00002)
    holds.staged = staged
    staged.load = holds  # type: ignore[assignment]
    rests: list[float] = []

    async def sleep(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr("lionstate.migration.governor._sleep", sleep)
    service = ProgressionMigrationService(staged)
    await service.set_knob("nice_ratio", 0.01)
    await until_done(service, **WHOLE)
    assert 2 <= len([one for one in rests if 0.5 < one <= 0.99])


async def test_where_nobody_else_writes_maintenance_takes_half(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The knob is for those who share the lock; one who is alone would only wait."""
    await backend.put_progression("p", json.dumps(make_ids(1_000)))
    staged = Staged(backend)
    holds = Holds(backend.direct.store, each=0.00002)
    holds.staged, holds.others_write = staged, False
    staged.load = holds  # type: ignore[assignment]
    rests: list[float] = []

    async def sleep(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr("lionstate.migration.governor._sleep", sleep)
    service = ProgressionMigrationService(staged)
    holds.checkpoint = 0.03
    await service.set_knob("nice_ratio", 0.01)
    await until_done(service, **WHOLE)
    assert [] == [one for one in rests if one > 0.02]


async def test_a_checkpoint_is_rested_for_while_others_write(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cost is the chunks': the lock's share alone would let one in a hundred appends wait for one."""
    await backend.put_progression("p", json.dumps(make_ids(1_000)))
    staged = Staged(backend)
    holds = Holds(backend.direct.store, each=0.000004)
    holds.staged = staged
    staged.load = holds  # type: ignore[assignment]
    rests: list[float] = []

    async def sleep(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr("lionstate.migration.governor._sleep", sleep)
    service = ProgressionMigrationService(staged)
    await service.set_knob("nice_ratio", 0.1)
    assert StopReason.CAP_ITEMS == (await service.step(max_items=500, max_seconds=60)).stop_reason
    assert [] == [one for one in rests if one > 0.019]
    holds.checkpoint = 0.03
    await until_done(service, **WHOLE)
    # Nine times the hold of 2 ms, and twice as much again.
    assert [one for one in rests if 0.05 < one <= 0.055]


async def test_the_load_tells_whether_others_write(backend: Backend) -> None:
    load = backend.direct.store.load
    load._others_at = float("-inf")
    await backend.direct.store.maintain("test", lambda conn: None)
    assert not load.others_write
    await backend.direct.append_to_progression("p", "m")
    assert load.others_write
    load._others_at -= 2.1
    assert not load.others_write
    load.foreign_commit()
    assert load.others_write


async def test_holds_of_maintenance_are_measured(backend: Backend) -> None:
    store = backend.direct.store
    store.load.take_hold()
    assert store.load.take_hold() is None
    await store.maintain("test", lambda conn: None)
    found = store.load.take_hold()
    assert found is not None and 0 < found < 10
    await backend.put_progression("q", "[]")
    assert store.load.take_hold() is None
