"""Idempotency keys over HTTP, and a client whose answers are lost on the way (design decision 39)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from lionstate import StateClient
from lionstate.client import repeating
from lionstate.errors import DaemonUnreachableError, NotFoundError, OutcomeUnknownError, OverloadedError
from tests.daemon.fakes import FakeStore
from tests.support.backends import database_of, serve_daemon

pytestmark = pytest.mark.anyio
TASK: dict[str, Any] = {"action_kind": "agent", "args": {"n": 1}, "execution_target": "host"}
SUBMIT = "/v1/ops/submit_task"
_names = iter(range(10_000))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def url(request: pytest.FixtureRequest, folder: Path) -> str:
    """A store of its own on each database."""
    if request.param == "sqlite":
        return str(folder / "state.db")
    return database_of(request.getfixturevalue("postgres_18"), f"receipts_{next(_names)}")


class LosingProxy:
    """Between a client and a daemon: takes the next ``losses`` answers away and cuts their connections."""

    def __init__(self, folder: Path) -> None:
        self.losses = 0
        self.lost: list[bytes] = []
        self._daemon, self._own = folder / "d.sock", folder / "p.sock"

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[StateClient]:
        server = await asyncio.start_unix_server(self._relay, str(self._own))
        async with server, StateClient(f"unix:{self._own}", **options) as client:
            yield client

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_daemon, to_daemon = await asyncio.open_unix_connection(str(self._daemon))

        async def up() -> None:
            while data := await reader.read(65536):
                to_daemon.write(data)

        sending = asyncio.ensure_future(up())
        with suppress(ConnectionError):
            while data := await from_daemon.read(65536):
                if self.losses:
                    # An answer is there, so its transaction is committed.
                    self.losses -= 1
                    self.lost.append(data)
                    break
                writer.write(data)
        for end in (writer, to_daemon):
            end.close()
        with suppress(asyncio.CancelledError, ConnectionError):
            sending.cancel()
            await sending


async def test_a_repeat_over_http_says_that_it_is_one(url: str, folder: Path) -> None:
    async with (
        serve_daemon(url, folder / "d.sock") as client,
        aiohttp.ClientSession("http://d", connector=aiohttp.UnixConnector(str(folder / "d.sock"))) as http,
    ):

        async def submit(key: str, **params: Any) -> tuple[int, Any, str | None]:
            response = await http.post(SUBMIT, json=TASK | params, headers={"Idempotency-Key": key})
            return response.status, await response.json(content_type=None), response.headers.get("idempotency-replayed")

        first = await submit("k")
        assert (200, first[1], None) == first
        assert (200, first[1], "true") == await submit("k")
        status, problem, _ = await submit("k", args={"n": 2})
        assert (409, "idempotency_conflict", "not_written") == (status, problem["code"], problem["outcome"])
        response = await http.post("/v1/ops/count_tasks", json={}, headers={"Idempotency-Key": "k"})
        assert 400 == response.status

        calls = [{"operation": "submit_task", "params": TASK, "idempotency_key": key} for key in ("k", "n", "k k")]
        answer = await (await http.post("/v1/batch", json={"operations": calls})).json()
        assert ["written", "written", "not_written"] == [result["outcome"] for result in answer["results"]]
        assert [True, None, None] == [result.get("replayed") for result in answer["results"]]
        assert first[1] == answer["results"][0]["result"]
        assert 2 == await client.count_tasks()


@pytest.mark.parametrize("calls", [1, 16])
async def test_a_client_sends_a_lost_write_again_and_it_happens_once(url: str, folder: Path, calls: int) -> None:
    """fault 34: the connection is cut right after COMMIT, alone and in a batch, twice in a row."""
    proxy = LosingProxy(folder)
    async with serve_daemon(url, folder / "d.sock") as direct, proxy.client() as client:
        proxy.losses = 2
        ids = await asyncio.gather(*(client.submit_task(**TASK) for _ in range(calls)))
        assert calls == len(set(ids)) == await direct.count_tasks()
        assert 2 == len(proxy.lost)
        proxy.losses = 1
        async with client.batch() as batch:
            batch.submit_task(**TASK)
            batch.create_progression("p")
        assert calls + 1 == await direct.count_tasks()
        assert batch.results[0].value not in ids
        proxy.losses = 1
        await client.append_to_progression("p", "m")
        assert ["m"] == await direct.get_progression("p")


async def test_an_unknown_outcome_names_the_key_to_ask_with(
    url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fault 34; fault 67: each outcome is retrievable."""
    monkeypatch.setattr(repeating, "_PAUSES", (0.0,))
    proxy = LosingProxy(folder)
    async with serve_daemon(url, folder / "d.sock") as direct, proxy.client() as client:
        proxy.losses = 100
        found = await asyncio.gather(*(client.submit_task(**TASK) for _ in range(3)), return_exceptions=True)
        keys = [error.idempotency_key for error in found if isinstance(error, OutcomeUnknownError)]
        assert 3 == len(set(keys))
        async with client.batch(atomic=False) as batch:
            batch.submit_task(**TASK)
        keys.append(batch.results[0].error.idempotency_key)
        assert 4 == await direct.count_tasks()
        proxy.losses = 0
        ids = [await client.with_key(str(key)).submit_task(**TASK) for key in keys]
        assert 4 == len(set(ids)) == await direct.count_tasks()


def attempts(*found: Exception | str) -> Any:
    """What makes these outcomes, one after the other."""
    left: Iterator[Exception | str] = iter(found)

    async def attempt() -> str:
        outcome = next(left)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return attempt


@pytest.mark.parametrize(
    ("found", "keyed", "expected"),
    [
        ([DaemonUnreachableError()], True, DaemonUnreachableError),
        ([OverloadedError()], True, OverloadedError),
        ([OutcomeUnknownError(), OverloadedError(), DaemonUnreachableError(), "done"], True, "done"),
        ([OutcomeUnknownError(), NotFoundError()], True, NotFoundError),
        ([OutcomeUnknownError(), NotFoundError()], False, OutcomeUnknownError),
        ([OutcomeUnknownError(), *[OverloadedError()] * 2], True, OutcomeUnknownError),
    ],
)
async def test_what_is_repeated_and_what_is_said_in_the_end(
    monkeypatch: pytest.MonkeyPatch, found: list[Any], keyed: bool, expected: Any
) -> None:
    """An answer that nothing was written is not given while an earlier attempt may have been."""
    monkeypatch.setattr(repeating, "_PAUSES", (0.0,) * (len(found) - 1))
    work = repeating.until_answered(attempts(*found), keyed=keyed, deadline=float("inf"))
    if isinstance(expected, str):
        assert expected == await work
    else:
        with pytest.raises(expected):
            await work


async def test_keys_reach_the_store_with_their_caller(serving: Any, store: FakeStore, http: Any) -> None:
    async with serving():
        for key in ({}, {"Idempotency-Key": "k"}):
            await http.post("/v1/ops/put_number", json={"key": "k", "number": 1}, headers=key)
    assert [None, (f"uid:{os.getuid()}", "k")] == store.keys
