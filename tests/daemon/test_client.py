"""The client's transport against a daemon in this process: coalescing, lost answers, tokens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from lionstate.client import StateClient, repeating
from lionstate.errors import (
    AccessDeniedError,
    ClosedError,
    DaemonUnreachableError,
    DeadlineExceededError,
    InvalidInputError,
    OutcomeUnknownError,
    ProgressionBlockedError,
)
from lionstate.wire import Codec
from tests.daemon.conftest import Serving, free_address
from tests.daemon.fakes import OPERATIONS, FakeStore

pytestmark = pytest.mark.anyio
CODECS = {name: Codec.of(operation.script) for name, operation in OPERATIONS.items()}


def call(client: StateClient, name: str, *args: Any) -> Awaitable[Any]:
    operation, codec = OPERATIONS[name], CODECS[name]
    return client._call(name, codec, codec.bind(args, {}), writes=operation.writes, idempotent=operation.idempotent)


def append(client: StateClient, progression_id: str, message_id: str) -> Awaitable[Any]:
    return call(client, "append_to_progression", progression_id, message_id)


async def hung_server(path: Path, answer: Callable[[asyncio.StreamWriter], None]) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        answer(writer)

    return await asyncio.start_unix_server(serve, str(path))


async def test_64_calls_at_once_are_one_batch(serving: Serving, store: FakeStore) -> None:
    async with serving() as daemon, StateClient(daemon.addresses["socket"]) as client:
        await asyncio.gather(*(append(client, "p", f"m{i}") for i in range(64)))
    assert store.rows["p"] == [f"m{i}" for i in range(64)]
    assert (store.runs, store.batches) == ([], [64])


async def test_calls_during_a_request_wait_for_it_and_leave_together(serving: Serving, store: FakeStore) -> None:
    async with serving() as daemon, StateClient(daemon.addresses["socket"]) as client:
        store.gate = type(store.gate)()
        first = asyncio.ensure_future(append(client, "p", "first"))
        await store.entered.wait()
        others = [asyncio.ensure_future(append(client, "p", f"m{i}")) for i in range(10)]
        read = asyncio.ensure_future(call(client, "get_progression_generation", "q"))
        await store.second.wait()  # the read is not held up by the write under way
        others[3].cancel()
        store.gate.set()
        results = await asyncio.gather(first, *others, read, return_exceptions=True)
    assert store.batches == [9]
    assert store.rows["p"] == ["first", *(f"m{i}" for i in range(10) if i != 3)]
    assert isinstance(results[4], asyncio.CancelledError)
    assert results[-1] == 7


async def test_a_lone_call_is_a_request_of_its_own_and_not_delayed(serving: Serving, store: FakeStore) -> None:
    async with serving() as daemon, StateClient(daemon.addresses["socket"]) as client:
        await append(client, "p", "warm")
        times = []
        for i in range(50):
            before = time.perf_counter()
            await append(client, "p", f"m{i}")
            times.append(time.perf_counter() - before)
    assert (len(store.runs), store.batches) == (51, [])
    assert sorted(times)[25] < 0.010  # a fixed delay or a missing TCP_NODELAY would show


async def test_each_call_gets_its_own_error(serving: Serving) -> None:
    ids = ["a", "blocked", "unknown", "b"]
    async with serving() as daemon, StateClient(daemon.addresses["socket"]) as client:
        results = await asyncio.gather(*(append(client, p, "m") for p in ids), return_exceptions=True)
        with pytest.raises(ProgressionBlockedError) as alone:
            await append(client, "blocked", "m")
    assert [type(r) for r in results] == [
        type(None),
        ProgressionBlockedError,
        OutcomeUnknownError,
        type(None),
    ]
    assert (alone.value.reason, results[1].reason) == ("malformed_json", "malformed_json")


async def test_reads_decode_into_the_result_type(serving: Serving, store: FakeStore) -> None:
    store.rows["p"] = ["m0", "m1"]
    async with serving() as daemon, StateClient(daemon.addresses["socket"]) as client:
        assert await call(client, "list_progression_items", "p") == [(0, "m0"), (1, "m1")]
        pages = await asyncio.gather(*(call(client, "list_progression_items", "p") for _ in range(8)))
    assert pages == [[(0, "m0"), (1, "m1")]] * 8
    assert store.batches == []


async def test_tcp_needs_the_token(serving: Serving, folder: Path) -> None:
    (folder / "token").write_text("s3cret\n")
    (folder / "token").chmod(0o600)
    address = free_address()
    async with serving(auth__token_file=str(folder / "token"), listen__http=address) as daemon:
        assert daemon.addresses["http"] == f"http://{address}"
        async with StateClient(daemon.addresses["http"], token="s3cret") as client:
            before = time.perf_counter()
            for i in range(10):
                await append(client, "p", f"m{i}")
            assert time.perf_counter() - before < 0.3  # 44 ms each without TCP_NODELAY
        for token in (None, "other"):
            async with StateClient(daemon.addresses["http"], token=token) as client:
                with pytest.raises(AccessDeniedError):
                    await append(client, "p", "m")
        async with StateClient(daemon.addresses["socket"]) as client:
            await append(client, "p", "m")


@pytest.mark.parametrize(
    "target", ["", "unix:", "unix://", "x.sock", "ftp://h", "http://", "http://h:abc", "http://h:99999", "http://[::1"]
)
def test_what_names_no_daemon_is_refused(target: str) -> None:
    """Before anything is tried: a mistake in an address is not a daemon that is down."""
    with pytest.raises(InvalidInputError, match="must be unix:/path"):
        StateClient(target)


async def test_nobody_there(folder: Path) -> None:
    async with StateClient(f"unix:{folder / 'none.sock'}") as client:
        for name, args in (("append_to_progression", ("p", "m")), ("get_progression", ("p",))):
            with pytest.raises(DaemonUnreachableError):
                await call(client, name, *args)
    with pytest.raises(ClosedError):
        await append(client, "p", "m")
    with pytest.raises(InvalidInputError):
        StateClient("/path/only")


async def test_a_lost_answer_is_unknown_for_writes_and_unreachable_for_reads(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeating, "_PAUSES", (0.0,))
    server = await hung_server(folder / "h.sock", lambda writer: writer.close())
    async with server, StateClient(f"unix:{folder / 'h.sock'}") as client:
        results = await asyncio.gather(*(append(client, "p", f"m{i}") for i in range(3)), return_exceptions=True)
        assert [type(r) for r in results] == [OutcomeUnknownError] * 3
        with pytest.raises(DaemonUnreachableError):
            await call(client, "get_progression", "p")


async def test_a_timeout_is_unknown_once_sent_and_exceeded_before(folder: Path) -> None:
    writers: list[asyncio.StreamWriter] = []
    arrived = asyncio.Event()

    def keep(writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        arrived.set()

    server = await hung_server(folder / "h.sock", keep)
    async with server, StateClient(f"unix:{folder / 'h.sock'}", timeout=0.2) as client:
        sent = asyncio.ensure_future(append(client, "p", "sent"))
        await arrived.wait()
        waiting = asyncio.ensure_future(append(client, "p", "waiting"))
        results = await asyncio.gather(sent, waiting, return_exceptions=True)
        for writer in writers:
            writer.close()
    assert isinstance(results[0], OutcomeUnknownError)
    assert isinstance(results[1], (DeadlineExceededError, OutcomeUnknownError))


async def test_parameters_without_json_form_never_leave(serving: Serving, store: FakeStore) -> None:
    async with serving() as daemon, StateClient(daemon.addresses["socket"]) as client:
        for bad in (float("nan"), float("inf")):
            with pytest.raises(InvalidInputError):
                await call(client, "put_number", "k", bad)
        with pytest.raises(InvalidInputError):
            await append(client, "p", "\ud800")
    assert (store.runs, store.batches) == ([], [])
