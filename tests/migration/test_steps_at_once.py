"""Two steps of one service at once, as a daemon's timer and an operator's command make them."""

from __future__ import annotations

import asyncio

import pytest

from lionstate.migration import ProgressionMigrationService
from tests.support.backends import Backend
from tests.support.migration import make_ids

pytestmark = pytest.mark.anyio


async def test_they_do_not_take_each_others_rows_for_a_gap(backend: Backend) -> None:
    """ADR-0117 D5 (two owners may race): seen as ``ordinal_mismatch`` on good progressions before they took turns."""
    service = ProgressionMigrationService(backend.direct.store)
    for number in range(3):
        await backend.put_progression(f"p{number}", _json(make_ids(6_000)))
    for _ in range(60):
        await asyncio.gather(*(service.step(max_items=6_000, max_bytes=10**9, max_seconds=5.0) for _ in range(4)))
        status = await service.status(limit=0)
        assert {} == dict(status.blocked)
        if status.phases["items"] == 3:
            return
    pytest.fail(f"not done: {dict(status.phases)}")


def _json(ids: list[str]) -> str:
    return "[" + ", ".join(f'"{found}"' for found in ids) + "]"
