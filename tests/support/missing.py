"""What a test needs and the machine lacks."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

__all__ = ["missing"]


def missing(what: str) -> NoReturn:
    """Skip, and say what is not there; a failure under ``CI=true``, where everything has been installed."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}, and CI=true asks for it")
    pytest.skip(what)
