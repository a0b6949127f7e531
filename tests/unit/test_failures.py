"""The log of the store's own failures."""

from __future__ import annotations

import pytest
import structlog

from lionstate.errors import BackendUnavailableError, ConflictError, OutcomeUnknownError
from lionstated.api import failures


def test_a_failing_store_is_logged_seldom_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(failures.time, "monotonic", lambda: now)
    found = failures.StoreFailures()
    with structlog.testing.capture_logs() as lines:
        found.note(ConflictError("a caller's"))
        for _ in range(5):
            found.note(BackendUnavailableError("the disk is full"))
        now += 11
        found.note(OutcomeUnknownError())
    assert [("backend_unavailable", 1), ("outcome_unknown", 5)] == [(line["code"], line["failures"]) for line in lines]
    assert "the disk is full" == lines[0]["reason"]
