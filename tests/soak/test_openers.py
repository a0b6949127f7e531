"""Eight processes that open a new store together, 20 times."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from tests.support.openers import PROCESSES, open_together
from tests.support.postgres import PostgresServer

_TIMES = 20


def test_a_new_file(tmp_path: Path) -> None:
    """fault 41: nobody fails, and one made the schema; five of these run by default."""
    paths = [tmp_path / f"{attempt}.db" for attempt in range(_TIMES)]
    open_together(*paths, timeout=300.0)
    for path in paths:
        with contextlib.closing(sqlite3.connect(path)) as conn:
            assert [(PROCESSES,)] == conn.execute("SELECT count(*) FROM progressions").fetchall()
            assert [(1,)] == conn.execute("SELECT count(*) FROM schema_meta WHERE key = 'lineage'").fetchall()


def test_a_new_database(postgres_18: PostgresServer) -> None:
    """fault 41 on PostgreSQL; two of these run by default."""
    databases = [postgres_18.create_database(f"together_soak_{attempt}") for attempt in range(_TIMES)]
    open_together(*databases, timeout=300.0)
