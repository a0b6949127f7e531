"""Shadow reads: answers from the JSON of a dual progression, compared with its rows afterwards (design decision 2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lionstate.engine import SilentObserver
from lionstate.migration import ProgressionMigrationService
from tests.support.backends import Backend
from tests.support.migration import IDS, make_ids, service_of, state_of, until_done


class Listening(SilentObserver):
    """Hands reads in dual and doubts to a service, as the daemon's metrics do."""

    def __init__(self, service: ProgressionMigrationService) -> None:
        self._service = service

    def dual_read(self, progression_id: str, generation: int, found: Any) -> None:
        """One answer."""
        self._service.shadow.offer(progression_id, generation, found)

    def doubted(self, progression_id: str) -> None:
        """One read that failed closed."""
        self._service.ask_scrub(progression_id)


@pytest.fixture
async def service(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> ProgressionMigrationService:
    """A service that every read is shown to; ``p`` is dual with ten of twenty ids copied and one appended."""
    found = service_of(backend)
    found.shadow.ratio = 1.0
    monkeypatch.setattr(backend.direct.store, "observer", Listening(found))
    await backend.put_progression("p", json.dumps(IDS))
    await found.step(max_items=10, max_seconds=60)
    return found


async def test_what_is_copied_is_compared_with_what_was_answered(
    service: ProgressionMigrationService, state: Any
) -> None:
    await state.append_to_progression("p", "tail")
    assert [*IDS, "tail"] == await state.get_progression("p")
    assert 5 == len(await state.list_progression_items("p", limit=5))
    assert 5 == len(await state.list_progression_items("p", limit=5, newest_first=True))
    assert [] == await state.list_progression_items("p", after_ordinal=90)
    assert {"match": 3} == await service.shadow.compare(max_seconds=60)
    assert {} == await service.shadow.compare(max_seconds=60)
    assert {"match": 3} == (await service.status()).proof.shadow_reads


@pytest.mark.parametrize(
    ("sql", "outcome"),
    [
        ("UPDATE progression_items SET message_id = 'x' WHERE ordinal = 3", "mismatch"),
        ("DELETE FROM progression_items WHERE ordinal = 3", "mismatch"),
        ("DELETE FROM progression_items WHERE ordinal = 20", "mismatch"),
        ("UPDATE progression_storage_state SET generation = 5", "moved"),
        ("UPDATE progression_storage_state SET backfill_next = 3", "match"),
    ],
)
async def test_a_mismatch_asks_for_a_scrub_and_blocks_nothing(
    service: ProgressionMigrationService, backend: Backend, state: Any, sql: str, outcome: str
) -> None:
    await state.append_to_progression("p", "tail")
    await state.get_progression("p")
    await backend.execute(sql)
    assert {outcome: 1} == await service.shadow.compare(max_seconds=60)
    assert "dual" == (await state_of(backend))["phase"]
    is_wrong = outcome == "mismatch"
    assert int(is_wrong) == (await service.status()).proof.asked
    # The scrub that was asked for proves it again under the lock.
    await service.scrub(may_begin=False)
    assert ("blocked" if is_wrong else "dual") == (await state_of(backend))["phase"]
    assert [*IDS, "tail"] == await state.get_progression("p")


async def test_they_are_sampled_bounded_and_dropped(service: ProgressionMigrationService, state: Any) -> None:
    service.shadow.ratio = 0.0
    await state.get_progression("p")
    assert {} == await service.shadow.compare(max_seconds=60)
    service.shadow.ratio = 1.0
    for _ in range(10):
        await state.get_progression("p")
    assert {"dropped": 8} == await service.shadow.compare(max_seconds=-1.0)
    assert {"dropped": 10} == (await service.status()).proof.shadow_reads


async def test_reads_of_other_phases_are_not_compared(
    service: ProgressionMigrationService, backend: Backend, state: Any
) -> None:
    await backend.put_progression("q", json.dumps(make_ids(3)))
    await state.get_progression("q")
    await until_done(service)
    await state.get_progression("p")
    assert {} == await service.shadow.compare(max_seconds=60)


async def test_a_read_that_fails_closed_asks_for_a_scrub(
    service: ProgressionMigrationService, backend: Backend, state: Any
) -> None:
    """decision 2: a read that doubts fails closed and asks; the scrub then proves and blocks."""
    from lionstate.errors import PrefixGapError, ProgressionBlockedError

    await until_done(service)
    await service.set_compat_read("p", True)
    await state.append_to_progression("p", "tail")
    await backend.execute("DELETE FROM progression_items WHERE progression_id = 'p' AND ordinal = 20")
    with pytest.raises(PrefixGapError):
        await state.get_progression("p")
    assert {"allocator_mismatch": 1} == (await service.scrub(may_begin=False)).findings
    with pytest.raises(ProgressionBlockedError):
        await state.get_progression("p")
    assert 0 == (await service.status()).proof.asked
    await backend.put_progression("q", '["a"]')
    await backend.execute("INSERT INTO progression_items VALUES ('q', 0, 'b')")
    with pytest.raises(ProgressionBlockedError):
        await state.list_progression_items("q")
    assert {"orphan_items": 1} == (await service.scrub(may_begin=False)).findings
