"""The log of the store's own failures."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import structlog

from lionstate.errors import BackendUnavailableError, ConflictError, OutcomeUnknownError
from lionstated import logs
from lionstated.api import failures


def test_a_failing_store_is_logged_seldom_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=lambda: now))
    found = failures.StoreFailures()
    with structlog.testing.capture_logs() as lines:
        found.note(ConflictError("a caller's"), wrote=True)
        for _ in range(5):
            found.note(BackendUnavailableError("the disk is full"), wrote=True)
        now += 11
        found.note(OutcomeUnknownError(), wrote=False)
    assert [("backend_unavailable", 1), ("outcome_unknown", 5)] == [(line["code"], line["failures"]) for line in lines]
    assert ("the disk is full", "backend_unavailable") == (lines[0]["reason"], found.write_failure)
    found.note(BackendUnavailableError(reason="disk_full"), wrote=True)
    assert "disk_full" == found.write_failure
    found.answered(wrote=False)
    assert found.write_failure is not None
    found.answered(wrote=True)
    assert found.write_failure is None
