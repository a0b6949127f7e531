"""The migration service runs in the process that holds the store: three backends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.backends import IN_PROCESS, Backend
from tests.support.migration import patient
from tests.support.stores import open_backend, params_of


@pytest.fixture(params=params_of(IN_PROCESS))
async def backend(request: pytest.FixtureRequest, empty_store: Path, tmp_path: Path) -> AsyncIterator[Backend]:
    """A backend with an empty store."""
    async with open_backend(request, empty_store, tmp_path) as found:
        await patient(found)
        yield found
