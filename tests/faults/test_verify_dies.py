"""A verification or scrub whose connection dies ends with an error, changes nothing, and can be run again."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from lionstate import StateDB
from lionstate.engine.keepalive import OPTIONS
from lionstate.errors import StateError
from lionstate.migration import ProgressionMigrationService, VerificationOutcome
from tests.support.backends import Backend, database_of, empty_database
from tests.support.migration import Staged, make_ids, rows_of_everything, service_of, until_done
from tests.support.postgres import PostgresServer

IDS = make_ids(60)


async def _prepared(state: StateDB, name: str) -> Backend:
    backend = Backend(name, state, state)
    await backend.put_progression("p", json.dumps(IDS))
    await backend.execute(
        "INSERT INTO migration_control (key, value, actor, updated_at)"
        " VALUES ('verify.budget_seconds', '5.0', 'test', 1.0)"
    )
    await until_done(service_of(backend))
    return backend


@pytest.mark.parametrize("server", ["postgres_15", "postgres_18"])
@pytest.mark.parametrize("act", ["verify", "scrub"])
async def test_a_terminated_backend(
    request: pytest.FixtureRequest, server: str, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fault 10: every backend is terminated after each read; a read is tried once more, the next run works."""
    monkeypatch.setattr("lionstate.migration.walk._ROWS", 10)
    found: PostgresServer = request.getfixturevalue(server)
    dsn = database_of(found, "verify_dies")
    async with StateDB(url=dsn) as state:
        await empty_database(state)
        backend = await _prepared(state, "postgresql")
        before = await rows_of_everything(backend)
        kill = (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        ended = []
        for at in range(1, 6):
            staged = Staged(backend)

            async def die(at: int = at, staged: Staged = staged) -> None:
                if staged.reads == at:
                    async with StateDB(url=dsn, readonly=True) as killer:
                        await killer.fetch_one(kill)

            staged.after_read = die
            service = ProgressionMigrationService(staged)
            async with asyncio.timeout(20):
                try:
                    if act == "verify":
                        ended.append((await service.verify("p")).outcome)
                    else:
                        ended.append((await service.scrub(progression_id="p")).findings)
                except StateError as error:
                    ended.append(error.code)
        good = VerificationOutcome.MATCH if act == "verify" else {}
        assert all(one == good or one in ("backend_unavailable", "backend") for one in ended), ended
        assert good == ended[-1] or "backend_unavailable" in ended
        assert VerificationOutcome.MATCH == (await service_of(backend).verify("p")).outcome
    async with StateDB(url=dsn) as state:
        assert before == await rows_of_everything(Backend("postgresql", state, state))


@pytest.mark.parametrize("server", ["postgres_15", "postgres_18"])
async def test_connections_notice_that_the_other_end_is_gone(request: pytest.FixtureRequest, server: str) -> None:
    """fault 10: a server that went without a word is an error within 30 s, for readers and lanes."""
    found: PostgresServer = request.getfixturevalue(server)
    async with StateDB(url=database_of(found, "verify_dies")) as state:

        def options(conn: Connection) -> tuple[int, dict[str, int]]:
            conn.execute(text("SELECT 1"))
            driver: Any = conn.connection.dbapi_connection
            sock = driver.driver_connection._transport.get_extra_info("socket")
            known = {name: sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in OPTIONS}
            return sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), known

        assert (1, OPTIONS) == await state.store.read(options)
        assert (1, OPTIONS) == await state.store.write("options", options)


async def test_a_file_that_becomes_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fault 10: the file is cut short under the verification, by another process; it ends with an error."""
    monkeypatch.setattr("lionstate.migration.walk._ROWS", 500)
    path = tmp_path / "state.db"
    async with StateDB(path) as state:
        backend = Backend("sqlite", state, state)
        await backend.put_progression("p", json.dumps(make_ids(20_000)))
        await backend.execute(
            "INSERT INTO migration_control (key, value, actor, updated_at)"
            " VALUES ('verify.budget_seconds', '5.0', 'test', 1.0)"
        )
        await until_done(service_of(backend))
        # Else the pages are still read from the log, or from a cache.
        assert (0, 0, 0) == await state.checkpoint("TRUNCATE")
    async with StateDB(path) as state:
        backend = Backend("sqlite", state, state)
        staged = Staged(backend)
        cut = "import os, sys; os.truncate(sys.argv[1], 65536)"

        async def unreadable() -> None:
            if staged.reads == 3:
                await asyncio.to_thread(subprocess.run, [sys.executable, "-c", cut, str(path)], check=True)

        staged.after_read = unreadable
        async with asyncio.timeout(20):
            with pytest.raises(StateError) as raised:
                await ProgressionMigrationService(staged).verify("p")
        assert raised.value.code in ("backend_unavailable", "backend")
