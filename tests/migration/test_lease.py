"""One process migrates a store at a time, by a lease with an epoch; stop, and switches with an end (decision 27)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from lionstate.cli.reasons import why_stopped
from lionstate.errors import BackendBusyError
from lionstate.migration import ProgressionMigrationService, StopReason
from lionstate.migration import lease as leases
from lionstate.migration.lease import LEASE_SECONDS
from tests.support.backends import Backend
from tests.support.migration import WHOLE, Staged, assert_cut_over, make_ids, service_of, state_of, until_done

IDS = make_ids(20)


def named(backend: Backend, owner: str) -> ProgressionMigrationService:
    """The service of another process."""
    return ProgressionMigrationService(backend.direct.store, actor="test", owner=owner)


async def lapse(backend: Backend) -> None:
    """The lease's time is over."""
    await backend.execute("UPDATE migration_lease SET expires_at = 1.0")


async def test_who_keeps_the_lease_is_the_only_one_that_steps(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    first, second = named(backend, "a/1"), named(backend, "b/2")
    owned = await first.own()
    assert ("a/1", True, 1) == (owned.owner, owned.is_self, owned.epoch)
    seen = await second.own()
    assert ("a/1", False, 1) == (seen.owner, seen.is_self, seen.epoch)
    assert 0 < seen.left_seconds <= LEASE_SECONDS
    for call in (second.step, lambda: second.step(progression_id="p")):
        step = await call()
        assert (StopReason.NOT_OWNER, False) == (step.stop_reason, step.did_work)
        (why,) = why_stopped(step, await second.status())
        assert "owner: a/1, for 15 s more" in why
    assert [] == await backend.rows("SELECT * FROM progression_storage_state")
    # Verbs that only say something work everywhere, and both sides tell who migrates.
    await second.hold("p")
    await second.release("p")
    assert ("a/1", False) == (lambda owner: (owner.owner, owner.is_self))((await second.status()).owner)
    assert ("a/1", True) == (lambda owner: (owner.owner, owner.is_self))((await first.status()).owner)
    await until_done(first)
    await assert_cut_over(backend, IDS)


async def test_a_step_without_a_lease_takes_one_for_itself(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    first, second = named(backend, "a/1"), named(backend, "b/2")
    assert 5 == (await first.step(max_items=5, max_seconds=60)).items
    assert (await first.status()).owner.owner is None
    assert 5 == (await second.step(max_items=5, max_seconds=60)).items
    assert 2 == (await second.status()).owner.epoch


async def test_who_died_is_replaced_when_its_time_is_over(backend: Backend) -> None:
    """fault 15: no manual SQL; the one that comes back notices by the epoch and writes nothing."""
    await backend.put_progression("p", json.dumps(IDS))
    staged = Staged(backend)
    stale = ProgressionMigrationService(staged, actor="test", owner="a/1")
    heir = named(backend, "b/2")
    await stale.own()
    assert not (await heir.own()).is_self

    async def before(name: str) -> None:
        if name == "chunk":
            # It slept for longer than its lease, and another took over meanwhile.
            await lapse(backend)
            assert ("b/2", True, 2) == (lambda own: (own.owner, own.is_self, own.epoch))(await heir.own())

    staged.before = before
    step = await stale.step(**WHOLE)
    assert (StopReason.NOT_OWNER, 1, 0) == (step.stop_reason, step.admitted, step.items)
    assert 0 == (await state_of(backend))["backfill_next"]
    staged.before = None
    assert StopReason.NOT_OWNER == (await stale.step(**WHOLE)).stop_reason
    await until_done(heir)
    await assert_cut_over(backend, IDS)


async def test_a_renewal_does_not_change_hands_and_is_seldom(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = Staged(backend)
    service = ProgressionMigrationService(staged, actor="test", owner="a/1")
    for _ in range(5):
        assert 1 == (await service.own(30)).epoch
    assert 1 == len(staged.results("lease"))
    now = time.monotonic()
    monkeypatch.setattr(leases.time, "monotonic", lambda: now + 11)
    assert 1 == (await service.own(30)).epoch
    assert 2 == len(staged.results("lease"))


async def test_the_machines_clock_does_not_count_where_a_server_has_one(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = named(backend, "a/1"), named(backend, "b/2")
    await first.own()
    real = time.time
    with monkeypatch.context() as patched:
        patched.setattr(leases.time, "time", lambda: real() + 3_600)
        taken = (await second.own()).is_self
    # SQLite has no clock but the machine's, and one daemon a file by the operating system's lock.
    assert taken is not backend.is_postgresql


async def test_a_lease_from_the_far_future_is_no_lease(backend: Backend) -> None:
    """The clock was set back by years after it was written."""
    await named(backend, "a/1").own()
    await backend.execute("UPDATE migration_lease SET expires_at = 9e12")
    assert (await named(backend, "b/2").own()).is_self


async def test_a_daemon_with_the_operating_systems_lock_waits_for_nobody(backend: Backend) -> None:
    """One that was killed is replaced at once on SQLite: no other daemon can have the file."""
    await named(backend, "a/1").own()
    sole = ProgressionMigrationService(backend.direct.store, owner="b/2", sole_owner=True)
    owned = await sole.own()
    assert ("b/2", True, 2) == (owned.owner, owned.is_self, owned.epoch)


async def test_stop_gives_the_lease_back_and_pause_keeps_it(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    first, second = named(backend, "a/1"), named(backend, "b/2")
    await first.own()
    await first.pause(reason="lunch")
    assert ("a/1", False) == (lambda status: (status.owner.owner, status.pause.stopped))(await first.status())
    await first.stop(reason="moving")
    status = await first.status()
    assert status.pause is not None
    assert ("test", "moving", True) == (status.pause.actor, status.pause.reason, status.pause.stopped)
    assert status.owner.owner is None
    assert StopReason.PAUSED == (await second.step(**WHOLE)).stop_reason
    assert await second.resume()
    assert (await second.own()).is_self
    await until_done(second)
    await assert_cut_over(backend, IDS)


async def test_giving_back_what_another_has_does_nothing(backend: Backend) -> None:
    first, second = named(backend, "a/1"), named(backend, "b/2")
    await first.own()
    await lapse(backend)
    await second.own()
    await first.disown()
    assert "b/2" == (await first.status()).owner.owner


async def test_a_lease_that_cannot_be_written_ends_a_step_as_busy(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    staged = Staged(backend)

    async def before(name: str) -> None:
        if name == "lease":
            raise BackendBusyError("locked")

    staged.before = before
    assert StopReason.BUSY == (await ProgressionMigrationService(staged).step(**WHOLE)).stop_reason


async def test_a_compat_read_with_an_end(backend: Backend, state: Any) -> None:
    """Design decision 3: past its end the items are read, and nobody has to switch anything."""
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    await until_done(service)
    # A prefix that no longer fits its digest tells which of both is read.
    await backend.execute("UPDATE progression_storage_state SET source_digest = 'other'")

    async def served() -> bool:
        try:
            return IDS == await state.get_progression("p")
        except Exception as error:
            assert "PrefixGapError" == type(error).__name__
            return False

    async def told() -> bool:
        return (await service.explain("p")).compat_read

    end = time.time() + 3_600
    await service.set_compat_read("p", True, expires_at=end)
    assert (False, True) == (await served(), await told())
    assert pytest.approx(end) == (await service.explain("p")).compat_read_until
    await service.set_compat_read("p", True, expires_at=time.time() - 1)
    assert (True, False) == (await served(), await told())
    assert (await service.explain("p")).compat_read_until is None
    await service.set_compat_read("p", True)
    assert not await served()
    await service.set_compat_read("p", False)
    assert await served()
    await service.set_compat_read_everywhere(True, expires_at=time.time() - 1)
    assert await served()
