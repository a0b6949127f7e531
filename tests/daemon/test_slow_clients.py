"""Clients that send nothing, too slowly, too much at once, or take nothing: cut off, and nobody else notices."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from lionstated import logs
from lionstated.api import server
from tests.daemon.conftest import Serving
from tests.daemon.fakes import FakeStore
from tests.daemon.test_heads import BODY, HEADERS, LENGTH, LINE, answer, connected
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio
WHOLE = LINE + HEADERS + LENGTH + b"\r\n" + BODY
SHORT = {"listen__header_seconds": "0.05", "listen__transfer_seconds": "0.05", "listen__idle_seconds": "1"}


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", 0),
        (b"POST /v1", 408),
        (LINE + HEADERS, 408),
        (LINE + HEADERS + LENGTH + b"\r\n", 408),
        (LINE + HEADERS + LENGTH + b"\r\n" + BODY[:-1], 408),
        (LINE + HEADERS + b"Transfer-Encoding: chunked\r\n\r\n5\r\n", 408),
    ],
)
async def test_what_does_not_arrive_in_time(
    serving: Serving, folder: Path, store: FakeStore, sent: bytes, status: int
) -> None:
    async with serving(**SHORT), connected(folder) as (reader, writer):
        writer.write(sent)
        found = await answer(reader) if status else (0, b"")
        assert status == found[0]
        assert b"" == await reader.read()
    assert [] == store.runs


async def test_a_request_under_way_is_not_cut_off_for_the_next_one(
    serving: Serving, folder: Path, store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a second request waits behind the first, whose answer takes longer than a head may."""
    late = anyio.Event()
    real = server._Protocol._late

    def seen(self: server._Protocol) -> None:
        real(self)
        late.set()

    monkeypatch.setattr(server._Protocol, "_late", seen)
    store.gate = anyio.Event()
    async with serving(**SHORT), connected(folder) as (reader, writer):
        writer.write(WHOLE)
        await store.entered.wait()
        writer.write(WHOLE[:40])
        await late.wait()
        store.gate.set()
        writer.write(WHOLE[40:])
        assert [200, 200] == [(await answer(reader))[0] for _ in range(2)]


async def test_an_idle_connection_is_closed(serving: Serving, folder: Path) -> None:
    async with serving(**SHORT), connected(folder) as (reader, writer):
        writer.write(WHOLE)
        assert 200 == (await answer(reader))[0]
        assert b"" == await reader.read()


async def test_more_connections_than_allowed(serving: Serving, folder: Path) -> None:
    """The one too many is told so; when one of the others has gone, the next is served."""
    async with serving(listen__max_connections="2") as daemon:
        (state,) = [one.server_state for one in daemon._servers if len(one.server_state.connections) == 0][-1:]
        async with connected(folder) as (first, first_writer), connected(folder) as (second, second_writer):
            for reader, writer in ((first, first_writer), (second, second_writer)):
                writer.write(WHOLE)
                assert 200 == (await answer(reader))[0]
            async with connected(folder) as (reader, _):
                status, body = await answer(reader)
                assert (503, "overloaded") == (status, json.loads(body)["code"])
                assert b"" == await reader.read()
        await eventually(lambda: not state.connections)
        async with connected(folder) as (reader, writer):
            writer.write(WHOLE)
            assert 200 == (await answer(reader))[0]


async def test_who_takes_nothing_of_an_answer(serving: Serving, folder: Path, store: FakeStore) -> None:
    """The connection goes, with what of the answer was not taken."""
    store.rows["p"] = ["m" * 1000] * 20_000
    async with serving(listen__transfer_seconds="0.05") as daemon, connected(folder) as (_, writer):
        writer.transport.pause_reading()
        writer.write(b"GET /v1/progressions/p HTTP/1.1\r\nHost: d\r\n\r\n")
        await store.entered.wait()
        await eventually(lambda: not any(one.server_state.connections for one in daemon._servers))
        with contextlib.suppress(ConnectionError):
            writer.transport.resume_reading()


async def test_request_ids_and_the_access_log(
    serving: Serving, http: aiohttp.ClientSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """A caller's id comes back and is in the log lines of its request; what is no id is replaced."""
    logs.configure()
    async with serving(log__access_ratio="1"):
        for progression, given in (("mine", "trace-1"), ("bug", "trace-2"), ("mine", "not an id"), ("mine", "x" * 65)):
            body = {"progression_id": progression, "message_id": "a-message"}
            sent = {"Lionstate-Request-Id": given}
            response = await http.post("/v1/ops/append_to_progression", json=body, headers=sent)
            back = response.headers["Lionstate-Request-Id"]
            assert (back == given) == given.startswith("trace")
        await http.get("/v1/progressions/mine/items")
        await http.get("/no-such-thing")
    text = capsys.readouterr().err
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    assert [
        (200, "append_to_progression"),
        (500, "append_to_progression"),
        (200, "append_to_progression"),
        (200, "append_to_progression"),
        (200, "list_progression_items"),
        (404, None),
    ] == [(line["status"], line["what"]) for line in requests]
    assert {"request", "operation_failed"} == {line["event"] for line in lines if line.get("request_id") == "trace-2"}
    assert not any(word in text for word in ("a-message", "mine", "not an id", "no-such-thing"))


async def test_the_access_log_is_a_sample(
    serving: Serving, http: aiohttp.ClientSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """None of the good answers at 0; of many failures one line, with their number at the next."""
    logs.configure()
    async with serving(log__access_ratio="0"):
        for _ in range(5):
            await http.get("/v1/progressions/p")
            await http.get("/v1/progressions/busy")
    events = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert 1 == events.count("request")
