"""LionAGI's statements, grafted: they see a progression where its authority is (reference §3.2, §3.3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from lionstate import StateDB
from lionstate.lionagi.views import grafted_delete, grafted_read
from tests.support.backends import Backend
from tests.support.migration import make_ids, service_of, until_done
from tests.support.phases import change_state
from tests.support.records import put

IDS = make_ids(12)
TAIL = ["tail-1", "tail-2"]
_VALUES = "SELECT collection FROM progressions ORDER BY id"
_WHOLE = "SELECT * FROM progressions ORDER BY id"


async def _rows(backend: Backend, sql: str) -> list[Any]:
    """What a statement returns, as the driver sends it."""

    def script(conn: Connection) -> list[Any]:
        return [tuple(row) for row in conn.exec_driver_sql(sql)]

    async with backend.direct.transaction() as transaction:
        found: list[Any] = await transaction.run(script)
        return found


def _name(backend: Backend) -> str:
    return backend.direct.dialect


async def _shown(backend: Backend) -> list[list[str]]:
    return [json.loads(row[0]) for row in await _rows(backend, grafted_read(_name(backend), _VALUES))]


async def _held(backend: Backend) -> list[list[str]]:
    return [json.loads(row[0]) for row in await _rows(backend, grafted_delete(_name(backend), _VALUES))]


async def _archived(backend: Backend) -> list[list[str]]:
    return [json.loads(row[2]) for row in await _rows(backend, grafted_delete(_name(backend), _WHOLE))]


async def _cut_over(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    await until_done(service_of(backend))
    for message_id in TAIL:
        await backend.direct.append_to_progression("p", message_id)


async def test_json_and_dual_are_the_column_itself(backend: Backend) -> None:
    odd = '["a", 1, null, {"k": [2]}]'
    await backend.put_progression("o", odd)
    await backend.put_progression("p", json.dumps(IDS))
    await service_of(backend).step(progression_id="p", max_items=5, max_seconds=60)
    assert [json.loads(odd), IDS] == await _shown(backend)
    assert [json.loads(odd), IDS] == await _held(backend)
    assert [json.loads(odd), IDS] == await _archived(backend)


async def test_items_are_shown_in_order_with_their_tail(backend: Backend) -> None:
    await _cut_over(backend)
    assert [IDS + TAIL] == await _shown(backend)
    assert [IDS + TAIL] == await _archived(backend)
    assert set(IDS + TAIL) == set((await _held(backend))[0])


async def test_compat_read_is_the_frozen_prefix_and_the_rows_behind_it(backend: Backend) -> None:
    await _cut_over(backend)
    await backend.execute("DELETE FROM progression_items WHERE progression_id = 'p' AND ordinal < 3")
    assert [(IDS + TAIL)[3:]] == await _shown(backend)
    await change_state(backend, "p", compat_read=1)
    assert [IDS + TAIL] == await _shown(backend)


async def test_what_is_not_trustworthy_is_shown_empty_and_spared_whole(backend: Backend) -> None:
    await _cut_over(backend)
    await backend.execute("DELETE FROM progression_items WHERE progression_id = 'p' AND ordinal < 3")
    await change_state(backend, "p", phase="blocked", authority="none", blocked_reason="digest_mismatch")
    assert [[]] == await _shown(backend)
    assert set(IDS + TAIL) == set((await _held(backend))[0])
    # Once each: the rows, then what only the JSON names.
    assert [(IDS + TAIL)[3:] + IDS[:3]] == await _archived(backend)


async def test_lengths_are_those_of_what_is_shown(tmp_path: Path) -> None:
    """On Studio's pages, which read SQLite files only."""
    async with StateDB(tmp_path / "state.db", normalized=False) as state:
        backend = Backend("sqlite", state, state)
        await _cut_over(backend)
        await backend.put_progression("q", json.dumps(IDS))
        await backend.put_progression("r", json.dumps(IDS))
        unknown = {"phase": "blocked", "authority": "none", "generation": 1, "updated_at": 1.0}
        await put(backend, "progression_storage_state", progression_id="r", **unknown)
        sql = grafted_read("sqlite", "SELECT json_array_length(p.collection) FROM progressions p ORDER BY p.id")
        assert [(len(IDS + TAIL),), (len(IDS),), (0,)] == await _rows(backend, sql)


def test_other_statements_stay_as_they_are() -> None:
    sql = "SELECT id FROM sessions WHERE progression_id = ? AND sp.collection = 1 AND my_progressions.collection = 2"
    assert sql == grafted_read("sqlite", sql)
    assert sql == grafted_delete("postgresql", sql)
