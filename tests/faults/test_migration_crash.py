"""A crash at every statement boundary of admission, chunk, dual append, proof, cutover, rollback and removal.

ADR-0117 D6; faults 4, 13, 17. After each: one whole phase, no lock left, nothing acknowledged lost,
each id at one position, and migration goes on to an equal digest.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lionstate import StateDB
from lionstate.migration import VerificationOutcome
from tests.support.backends import IN_PROCESS, Backend, database_of, empty_database
from tests.support.migration import assert_cut_over, items_of, patient, service_of, until_done
from tests.support.stores import params_of

ROOT = Path(__file__).parent.parent.parent
IDS = [f"old-{number}" for number in range(5)]
CRASHED = 77
SHARDS = 4

# The least number of boundaries: fewer means that a hook has gone. Commits: admission, three chunks or one, the
# appends, the fence, the cutover; rollback, removal, release.
LEAST = {"forward": (110, 9), "back": (70, 9)}


class Crasher:
    """The process that forks and dies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.crash_child"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, url: str, scenario: str, crash_at: int) -> tuple[int, list[list[str]]]:
        """Run until the crash; return the exit code and what was told until then."""
        log = self.folder / f"{scenario}-{crash_at}.log"
        assert self.process.stdin is not None and self.process.stdout is not None
        order = {"url": url, "scenario": scenario, "crash_at": crash_at, "log": str(log)}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        told = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return code, told

    def close(self) -> None:
        """End the process."""
        self.process.communicate(timeout=10)


@pytest.fixture
def crasher(tmp_path: Path) -> Iterator[Crasher]:
    """A process to crash."""
    found = Crasher(tmp_path)
    yield found
    found.close()
    assert 0 == found.process.returncode


class Stores:
    """Fresh stores with one legacy progression, one after another."""

    def __init__(self, name: str, template: Path, folder: Path, dsn: str | None) -> None:
        self.name = name
        self._template = template
        self._folder = folder
        self._dsn = dsn
        self._kept: StateDB | None = None

    async def _server(self) -> StateDB:
        """The parent's own connections to the server, made once: the process that dies is another one."""
        if self._kept is None:
            self._kept = await StateDB(url=self._dsn).open()
        return self._kept

    async def close(self) -> None:
        """Close what was kept open."""
        if self._kept is not None:
            await self._kept.close()

    async def fresh(self, number: int) -> str:
        """The URL of a store that holds the progression and nothing else."""
        if self._dsn is not None:
            db = await self._server()
            await empty_database(db)
            await self._put(db)
            return self._dsn
        path = self._folder / f"{number}.db"
        shutil.copyfile(self._template, path)
        async with StateDB(path) as db:
            await self._put(db)
        return f"sqlite:///{path}"

    async def _put(self, db: StateDB) -> None:
        backend = Backend(self.name, db, db)
        await patient(backend)
        await backend.put_progression("p", json.dumps(IDS))

    @asynccontextmanager
    async def opened(self, url: str) -> AsyncIterator[Backend]:
        """The store after the crash."""
        if self._dsn is not None:
            db = await self._server()
            yield Backend(self.name, db, db)
            return
        async with StateDB(url=url) as db:
            yield Backend(self.name, db, db)

    def drop(self, number: int) -> None:
        """Remove the files of a store."""
        for path in self._folder.glob(f"{number}.db*"):
            os.unlink(path)


def _shards() -> list[Any]:
    """Backend and shard: every point on SQLite, and each on one of the two servers."""
    taken = {name: range(at, SHARDS, 2) for at, name in enumerate(IN_PROCESS[1:])}
    return [
        pytest.param(*parameter.values, shard, marks=parameter.marks)
        for parameter in params_of(IN_PROCESS)
        for shard in taken.get(parameter.values[0], range(SHARDS))
    ]


@pytest.fixture(params=params_of(IN_PROCESS))
async def stores(request: pytest.FixtureRequest, empty_store: Path, tmp_path: Path) -> AsyncIterator[Stores]:
    """Stores of one backend."""
    name: str = request.param
    dsn = None
    if name.startswith("postgresql"):
        dsn = database_of(request.getfixturevalue(f"postgres_{name.removeprefix('postgresql-')}"), "crash")
    found = Stores(name, empty_store, tmp_path, dsn)
    yield found
    await found.close()


async def check(backend: Backend, told: list[list[str]]) -> None:
    """What must hold after a crash at any point, before and after the recovery."""
    # The time of the dead one's lease is over.
    await backend.execute("UPDATE migration_lease SET expires_at = 0")
    acknowledged = [what for kind, what in told if kind == "acknowledged"]
    service = service_of(backend)
    assert VerificationOutcome.MISMATCH != (await service.verify("p")).outcome
    found = await backend.state.get_progression("p")
    # The append under way at the crash may be there; nothing else.
    assert [*IDS, *acknowledged] == found[: 5 + len(acknowledged)]
    assert [f"live-{number}" for number in range(len(found) - 5)] == found[5:]
    assert len(found) - 5 - len(acknowledged) in (0, 1)
    planned = [f"live-{number}" for number in range(len(acknowledged) + 1)]
    for message_id in planned:
        await backend.state.append_to_progression("p", message_id)
    await service.release("p")
    await until_done(service)
    await assert_cut_over(backend, [*IDS, *planned])
    assert VerificationOutcome.MATCH == (await service.verify("p")).outcome
    await service.set_compat_read("p", True)
    assert [*IDS, *planned] == await backend.state.get_progression("p")
    assert 5 + len(planned) == len(await items_of(backend))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("stores", "shard"), _shards(), indirect=["stores"])
@pytest.mark.parametrize("scenario", LEAST)
async def test_a_crash_before_every_statement(stores: Stores, crasher: Crasher, scenario: str, shard: int) -> None:
    """faults 4, 13: also between the proof and the flip; the next step goes on from what was committed."""
    url = await stores.fresh(0)
    code, told = crasher.run(url, scenario, 10**9)
    assert (0, []) == (code, [line for line in told if line[0] == "error"])
    statements = [what for kind, what in told if kind == "statement"]
    least, commits = LEAST[scenario]
    assert least <= len(statements), len(statements)
    assert commits <= statements.count("COMMIT"), statements.count("COMMIT")
    assert "END" == statements[-1]
    async with stores.opened(url) as backend:
        await check(backend, told)

    points = 0
    for crash_at in range(1 + shard, len(statements) + 1, SHARDS):
        url = await stores.fresh(crash_at)
        code, told = crasher.run(url, scenario, crash_at)
        assert CRASHED == code, (crash_at, told[-3:])
        assert crash_at - 1 == sum(kind == "statement" for kind, _ in told)
        try:
            async with stores.opened(url) as backend:
                await check(backend, told)
        except BaseException as error:
            error.add_note(f"crash before statement {crash_at}: {statements[crash_at - 1]}")
            raise
        points += 1
        stores.drop(crash_at)
    assert len(range(1 + shard, len(statements) + 1, SHARDS)) == points > 0
    print(f"{scenario}: {points} of {len(statements)} points, {statements.count('COMMIT')} commits")


async def test_a_step_needs_nothing_of_the_one_before(stores: Stores, tmp_path: Any) -> None:
    """The recovery above is a plain step of a new service: no repair verb, no leftovers of any kind."""
    url = await stores.fresh(0)
    for _ in range(20):
        async with stores.opened(url) as backend:
            if (await service_of(backend).step(max_items=1, max_seconds=60)).stop_reason == "done":
                break
    async with stores.opened(url) as backend:
        await assert_cut_over(backend, IDS)
