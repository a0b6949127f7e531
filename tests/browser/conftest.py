"""The status page in a Chromium of the system."""

from __future__ import annotations

import pytest

from tests.daemon.conftest import anyio_backend, folder
from tests.support.browser import CHROMIUM

__all__ = ["anyio_backend", "folder"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("browser") is not None and CHROMIUM is None:
            item.add_marker(pytest.mark.skip(reason="there is no Chromium: apt-get install chromium"))
