"""The log of the store's own failures."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from lionstate import StateDB, detaching
from lionstate.dialects import dialect_named
from lionstate.dialects.sqlstates import error_of_state
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


def test_a_full_disk_has_a_name() -> None:
    """fault 46: of both databases."""
    driver = sqlite3.connect(":memory:")
    driver.execute("CREATE TABLE t (a BLOB)")
    driver.execute("PRAGMA max_page_count = 3")
    with pytest.raises(sqlite3.OperationalError) as caught:
        driver.execute("INSERT INTO t VALUES (zeroblob(100000))")
    driver.close()
    found = dialect_named("sqlite").classify_error(caught.value)
    for error in (found, error_of_state("53100")):
        assert isinstance(error, BackendUnavailableError)
        assert ("disk_full", "backend_unavailable") == (error.cause, error.code)
        assert "make room" in str(error)
    assert "backend_unavailable" == error_of_state("57P03").cause


async def test_a_detach_in_doubt_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fault 46: the COMMIT failed and nobody can tell what became of it."""
    path = tmp_path / "state.db"
    async with StateDB(path):
        pass

    async def lost(*given: Any) -> None:
        raise OutcomeUnknownError

    monkeypatch.setattr(detaching, "write_alone", lost)
    with pytest.raises(OutcomeUnknownError, match=r"make room.*run detach again"):
        await detaching.detach_store(path)
