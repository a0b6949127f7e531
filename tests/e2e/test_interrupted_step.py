"""Ctrl-C in the middle of a chunk on PostgreSQL, beside an append, a replacement and a deletion of the same row."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time

import asyncpg
import pytest

from lionstate import StateDB
from tests.e2e.conftest import LIONSTATE, clean_environment, idle_control
from tests.support.backends import Backend, database_of
from tests.support.eventually import eventually
from tests.support.migration import assert_cut_over, make_ids, patient, service_of, until_done
from tests.support.postgres import PostgresServer

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


async def test_ctrl_c_during_a_chunk_holds_nobody_up(postgres_18: PostgresServer) -> None:
    """fault 16: it ends inside its budget, whoever waits for the same row goes on, no session stays behind."""
    url = database_of(postgres_18, f"interrupt_{os.getpid()}")
    ids = make_ids(2_000)
    control = idle_control()
    async with StateDB(url=url, normalized=False) as state:
        backend = Backend("postgresql", state, state)
        await patient(backend)
        await backend.put_progression("p", json.dumps(ids))
        await service_of(backend).step(max_items=500, max_seconds=60)
        holder, watcher = [await asyncpg.connect(url.replace("+asyncpg", "")) for _ in range(2)]

        async def waiting() -> int:
            return int(await watcher.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

        async def sessions() -> set[int]:
            rows = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            return {row["pid"] for row in await watcher.fetch(rows)}

        ours = await sessions()
        # Somebody holds the row, so that the chunk stands in the middle of its transaction.
        await holder.execute("BEGIN")
        await holder.execute("SELECT 1 FROM progression_storage_state WHERE progression_id = 'p' FOR UPDATE")
        command = [LIONSTATE, "progression-migrate", "step", "--url", url]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(PYTHONUNBUFFERED="1")
        )
        try:
            await eventually(waiting)
            theirs = await sessions() - ours
            calls = [
                asyncio.ensure_future(state.append_to_progression("p", "ours")),
                asyncio.ensure_future(state.set_progression("p", [*ids, "new"])),
            ]
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(20):
                out, err = await process.communicate()
            took = time.monotonic() - began
        finally:
            if process.returncode is None:
                process.kill()
        assert (130, b"", b"lionstate: interrupted\n") == (process.returncode, out, err)
        assert took < 2.0 + 2 * control

        assert theirs

        async def gone() -> bool:
            return not theirs & await sessions()

        await eventually(gone)
        await holder.execute("COMMIT")
        await asyncio.gather(*calls)
        await holder.close()
        await until_done(service_of(backend))
        found = await state.get_progression("p")
        assert found in ([*ids, "new"], [*ids, "new", "ours"])
        await assert_cut_over(backend, found)
        assert await state.delete_progression("p")
        await watcher.close()
