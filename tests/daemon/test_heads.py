"""Request lines and headers over a raw socket: what is longer than 16 KiB is answered and not collected."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from lionstated.api import server
from tests.daemon.conftest import Serving
from tests.daemon.fakes import FakeStore

pytestmark = pytest.mark.anyio
LIMIT = 16 * 1024
LINE = b"POST /v1/ops/append_to_progression HTTP/1.1\r\n"
HEADERS = b"Host: d\r\nContent-Type: application/json\r\n"
BODY = json.dumps({"progression_id": "p", "message_id": "m"}).encode()
LENGTH = b"Content-Length: %d\r\n" % len(BODY)


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_unix_connection(folder / "d.sock")
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body of one answer, which has a request id whoever made it."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert re.search(rb"\r\nlionstate-request-id: [a-z0-9._-]+\r\n", head), head
    length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length)


async def refused(folder: Path, pieces: Iterable[bytes]) -> tuple[int, str]:
    """Send pieces one by one; the answer, which must be the last thing on the connection."""
    async with connected(folder) as (reader, writer):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        status, body = await answer(reader)
        assert b"" == await reader.read()
    document = json.loads(body)
    assert (status, "invalid_input") == (document["status"], document["code"])
    return status, document["detail"]


def in_pieces(data: bytes) -> list[bytes]:
    return [data[start : start + 4_000] for start in range(0, len(data), 4_000)]


LONG = b"x" * 200_000
CASES = {
    "one header": (431, LINE + HEADERS + b"X-Long: " + LONG + b"\r\n\r\n"),
    "a name": (431, LINE + HEADERS + LONG + b": x\r\n\r\n"),
    "many headers": (431, LINE + HEADERS + b"".join(b"X-%d: %d\r\n" % (n, n) for n in range(20_000)) + b"\r\n"),
    "never ending": (431, LINE + HEADERS + b"X-Long: " + LONG),
    "an address": (414, b"GET /v1/progressions/" + LONG + b" HTTP/1.1\r\n" + HEADERS + b"\r\n"),
    "an address that never ends": (414, b"GET /v1/progressions/" + LONG),
    "a query": (414, b"GET /v1/progressions/p/items?after=" + LONG + b" HTTP/1.1\r\n" + HEADERS + b"\r\n"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("cut", [lambda data: [data], in_pieces])
async def test_a_long_head_is_refused(serving: Serving, folder: Path, store: FakeStore, case: str, cut: object) -> None:
    status, sent = CASES[case]
    async with serving():
        assert callable(cut)
        # What comes after the answer is read and dropped: the sender must not see a reset before it reads.
        found, said = await refused(folder, cut(sent))
        assert (status, True) == (found, "is longer than 16384 bytes" in said)
        assert [] == store.runs


async def test_long_chunk_extensions_and_trailers_end_the_connection(serving: Serving, folder: Path) -> None:
    """The parser would collect these as well; the request is under way, so there is no answer left to give."""
    head = LINE + HEADERS + b"Transfer-Encoding: chunked\r\n\r\n"
    for tail in (b"5;" + LONG, b"1\r\n{\r\n0\r\nX-Long: " + LONG):
        async with serving(), connected(folder) as (reader, writer):
            writer.write(head)
            for piece in in_pieces(tail):
                writer.write(piece)
            assert b"" == await reader.read()


async def test_what_is_within_the_limit_is_served(serving: Serving, folder: Path, store: FakeStore) -> None:
    """A head just below it, in pieces, twice on one connection, and a body far above it."""
    padding = b"X-Long: " + b"x" * (LIMIT - 300) + b"\r\n"
    whole = LINE + HEADERS + padding + LENGTH + b"\r\n" + BODY
    assert LIMIT - 200 < len(whole) - len(BODY) < LIMIT
    long = BODY[:-1] + b" " * 1_000_000 + b"}"
    async with serving(), connected(folder) as (reader, writer):
        for _ in range(2):
            for piece in in_pieces(whole):
                writer.write(piece)
                await writer.drain()
            assert (200, b"null") == await answer(reader)
        # Pipelined in one piece: only a head counts, not what arrives together.
        writer.write((LINE + HEADERS + LENGTH + b"\r\n" + BODY) * 200)
        for _ in range(200):
            assert (200, b"null") == await answer(reader)
        writer.write(LINE + HEADERS + b"Content-Length: %d\r\n\r\n" % len(long) + long)
        assert (200, b"null") == await answer(reader)
        assert 203 == len(store.runs)


async def test_garbage_is_a_bad_request(serving: Serving, folder: Path) -> None:
    """Alone, and after an answered request, whose id it does not get."""
    asked = LINE + HEADERS + LENGTH + b"Lionstate-Request-Id: mine\r\n\r\n" + BODY
    async with serving():
        assert (400, True) == ((found := await refused(folder, [b"what is this\r\n\r\n"]))[0], "not HTTP" in found[1])
        async with connected(folder) as (reader, writer):
            writer.write(asked)
            assert b"lionstate-request-id: mine\r\n" in await reader.readuntil(b"\r\n\r\n")
            assert b"null" == await reader.readexactly(4)
            writer.write(b"what is this\r\n\r\n")
            assert b"mine" not in (answered := await reader.read())
            assert answered.startswith(b"HTTP/1.1 400 ")


async def test_a_body_that_is_none_is_answered_once_by_its_callers_id(
    serving: Serving, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the route answers without a look at the body."""
    caplog.set_level(logging.WARNING, logger="uvicorn.error")
    for line in (LINE, b"GET /v1/progressions/p HTTP/1.1\r\n"):
        head = line + HEADERS + b"Transfer-Encoding: chunked\r\nLionstate-Request-Id: mine\r\n\r\n"
        async with serving(), connected(folder) as (reader, writer):
            writer.write(head + b"zz\r\n")
            answered = await reader.read()
        assert (1, True) == (answered.count(b"\r\n\r\n"), answered.startswith(b"HTTP/1.1 400 "))
        assert b"\r\nlionstate-request-id: mine\r\n" in answered
    assert ["WARNING"] * 2 == [record.levelname for record in caplog.records if record.name == "uvicorn.error"]


async def test_garbage_is_not_answered_for_the_request_before_it(
    serving: Serving, folder: Path, store: FakeStore
) -> None:
    """Its caller would take the 400 for the answer to what may be written."""
    store.gate = anyio.Event()
    async with serving(), connected(folder) as (reader, writer):
        writer.write(LINE + HEADERS + LENGTH + b"\r\n" + BODY)
        await store.entered.wait()
        writer.write(b"what is this\r\n\r\n")
        assert b"" == await reader.read()


def test_the_limit_is_the_documented_one() -> None:
    assert LIMIT == server._HEAD_BYTES
