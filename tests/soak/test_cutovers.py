"""1,000 cutovers of small progressions under 8 writers: the long twin of a test in tests/migration/test_together.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.backends import Backend
from tests.support.cutovers import cut_over_under_load
from tests.support.migration import patient
from tests.support.stores import open_backend, params_of

pytestmark = pytest.mark.anyio


@pytest.fixture(params=params_of(["sqlite", "postgresql-18"]))
async def backend(request: pytest.FixtureRequest, empty_store: Path, tmp_path: Path) -> AsyncIterator[Backend]:
    """A backend with an empty store."""
    async with open_backend(request, empty_store, tmp_path) as found:
        await patient(found)
        yield found


async def test_nothing_is_lost_around_a_thousand_cutovers(backend: Backend) -> None:
    """fault 12: every acknowledged id once, in the order of its writer."""
    print(await cut_over_under_load(backend, progressions=1_000, writers=8))
