"""PostgreSQL beyond one plain server: partitioned, behind a pooler, with replicas."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of it takes a server."""
    for item in items:
        if "/tests/postgresql/" in item.path.as_posix():
            item.add_marker(pytest.mark.postgresql)
