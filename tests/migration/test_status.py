"""``status()``: counts, remaining work, hottest; no message ids, no lock (ADR-0117 D5)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lionstate import StateDB
from lionstate.errors import InvalidInputError, StateError
from tests.support.backends import Backend
from tests.support.migration import foreign, make_ids, service_of, until_done


async def test_counts_follow_the_phases(backend: Backend, state: Any) -> None:
    """fault 17: 0 to 1, exactly 1 when done; blocked ones are not work left."""
    service = service_of(backend)
    status = await service.status()
    assert ({"json": 0, "dual": 0, "items": 0, "blocked": 0}, 1.0, 0) == (
        status.phases,
        status.completion,
        status.remaining_admitted_items,
    )
    ids = make_ids(30)
    for name in ("a", "b", "c"):
        await backend.put_progression(name, json.dumps(ids))
    await backend.put_progression("bad", "{")
    await state.append_to_progression("c", "x")
    await state.append_to_progression("c", "y")
    await state.append_to_progression("b", "x")
    await service.step(progression_id="a", max_items=10, max_seconds=60)
    await service.step(progression_id="bad", max_seconds=60)
    status = await service.status()
    assert ({"json": 2, "dual": 1, "items": 0, "blocked": 1}, {"malformed_json": 1}, 20, 0.0) == (
        status.phases,
        status.blocked,
        status.remaining_admitted_items,
        status.completion,
    )
    # Nobody has counted what is in the other two.
    assert status.remaining_items is None
    assert [("c", 2), ("b", 1)] == [(hot.progression_id, hot.appends) for hot in status.hottest]
    assert status.oldest_updated_at is not None and status.oldest_updated_at <= status.measured_at
    assert ids[0] not in str(status)

    # One chunk of the dual one flushes what was seen; both sources are merged.
    await service.step(max_items=1, max_seconds=60)
    await state.append_to_progression("b", "z")
    status = await service.status(limit=1)
    assert [("b", 2)] == [(hot.progression_id, hot.appends) for hot in status.hottest]
    assert [None, None] != [status.sizes_measured_at, status.hottest[0].size_bytes]
    (size,) = await backend.rows("SELECT bytes FROM progression_sizes WHERE progression_id = 'b'")
    assert size["bytes"] == status.hottest[0].size_bytes

    await until_done(service)
    status = await service.status()
    assert ({"json": 0, "dual": 0, "items": 3, "blocked": 1}, 1.0, ()) == (
        status.phases,
        status.completion,
        status.hottest,
    )
    assert (None, 0) == (status.oldest_updated_at, status.remaining_items)


async def test_a_size_that_was_not_measured_is_not_told(backend: Backend, state: Any) -> None:
    """fault 21: no number that was not measured."""
    await backend.put_progression("p", "[]")
    await state.append_to_progression("p", "a")
    status = await service_of(backend).status()
    assert (0, None) == (status.sizes_measured, status.sizes_measured_at)
    (hot,) = status.hottest
    assert (None, None) == (hot.size_bytes, hot.measured_at)


@pytest.mark.parametrize("limit", [-1, 10_001, True, 1.5])
async def test_limits_are_checked(backend: Backend, limit: Any) -> None:
    with pytest.raises(InvalidInputError):
        await service_of(backend).status(limit=limit)


_MANY = {
    False: "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
    " INSERT INTO progressions SELECT 'p' || i, 1.0, '[\"a\", \"b\"]' FROM n",
    True: "INSERT INTO progressions SELECT 'p' || i, 1.0, '[\"a\", \"b\"]' FROM generate_series(1, 100000) AS i",
}


async def test_it_takes_no_lock_on_a_large_store(backend: Backend) -> None:
    """fault 48: 100,000 progressions, a third of them with a state row, while another program writes."""
    await backend.execute(_MANY[backend.is_postgresql])
    await backend.execute(
        "INSERT INTO progression_storage_state (progression_id, phase, generation, updated_at, source_count)"
        " SELECT id, 'dual', 1, 1.0, 2 FROM progressions WHERE id LIKE 'p%5' OR id LIKE 'p%6' OR id LIKE 'p%7'"
    )
    await backend.execute(
        "INSERT INTO progression_activity SELECT id, 3, 1.0 FROM progressions WHERE id LIKE 'p%5' OR id LIKE 'p%1'"
    )
    service = service_of(backend)
    async with foreign(backend) as other:
        if backend.is_postgresql:
            await other.execute("ANALYZE")
        await other.execute("BEGIN" if backend.is_postgresql else "BEGIN IMMEDIATE")
        await other.append("p1", "x")
        status = await service.status()
        await other.execute("ROLLBACK")
    assert {"json": 70_000, "dual": 30_000, "items": 0, "blocked": 0} == status.phases
    assert (60_000, 100) == (status.remaining_admitted_items, len(status.hottest))


async def test_a_read_only_store_answers_and_refuses(backend: Backend) -> None:
    """Both databases: nothing is written, not even the schema's own part."""
    await backend.put_progression("p", json.dumps(make_ids(3)))
    async with StateDB(url=backend.direct.url, readonly=True) as looker:
        assert make_ids(3) == await looker.get_progression("p")
        assert 1 == (await looker.migration.status()).phases["json"]
        with pytest.raises(StateError, match="read-only"):
            await looker.append_to_progression("p", "x")
    assert make_ids(3) == await backend.direct.get_progression("p")
