"""The status page in a Chromium of the system."""

from __future__ import annotations

import pytest

from tests.daemon.conftest import anyio_backend, folder
from tests.support.browser import CHROMIUM
from tests.support.missing import missing

__all__ = ["anyio_backend", "folder"]


@pytest.fixture(autouse=True)
def _chromium() -> None:
    """Where the system has none there is nothing to look with."""
    if CHROMIUM is None:
        missing("there is no Chromium (apt-get install chromium)")
