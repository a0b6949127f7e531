"""A daemon among clients that mean it no good: requests that are none, and hundreds that are slow on purpose."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import aiohttp

from lionstate import StateClient
from tests.demo.processes import DaemonProcess, free_port
from tests.support.children import child
from tests.support.raw_bytes import broken_requests, send_raw

__all__ = ["broken_ones", "slow_ones"]

Start = Callable[..., DaemonProcess]

_TOKEN = "a-token-for-this-run"
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")
_FULL = {503, 504}
_ROUND_SECONDS = 8.0
_CALLERS = 4

# A quarter each: a head by the byte, a body by the byte, an answer that nobody takes, nothing at all.
_SLOW = """
import asyncio, sys

path, count = sys.argv[1], int(sys.argv[2])
HEAD = b"POST /v1/ops/append_to_progression HTTP/1.1\\r\\nHost: d\\r\\nContent-Type: application/json\\r\\n"
BODY = b'{"progression_id": "p", "message_id": "never"}'
there = 0

async def trickle(writer, data):
    for place in range(len(data)):
        writer.write(data[place:place + 1])
        await writer.drain()
        await asyncio.sleep(0.5)

async def stay(kind):
    reader, writer = await asyncio.open_unix_connection(path, limit=1024)
    global there
    there += 1
    if there == count:
        print("there", flush=True)
    try:
        if kind == 0:
            await trickle(writer, HEAD)
        elif kind == 1:
            writer.write(HEAD + b"Content-Length: %d\\r\\n\\r\\n" % len(BODY))
            await trickle(writer, BODY[:-1])
        elif kind == 2:
            writer.transport.pause_reading()
            writer.write(b"GET /v1/progressions/long HTTP/1.1\\r\\nHost: d\\r\\n\\r\\n")
            await asyncio.sleep(20)
        else:
            await asyncio.sleep(20)
        await asyncio.sleep(20)
    finally:
        writer.transport.abort()

async def always(number):
    while True:
        try:
            await stay(number % 4)
        except OSError:
            await asyncio.sleep(0.1)

async def main():
    await asyncio.gather(*(always(number) for number in range(count)))

asyncio.run(main())
"""


def _resident(daemon: DaemonProcess) -> float:
    """MiB of memory that the process has."""
    text = Path(f"/proc/{daemon.process.pid}/status").read_text(encoding="ascii")
    [pages] = re.findall(r"VmRSS:\s+(\d+) kB", text)
    return int(pages) / 1024


async def broken_ones(start: Start, folder: Path, *, count: int, seed: int) -> str:
    """So many requests over the socket and TCP in turn: nothing is a failure of the daemon, and its memory stays."""
    (folder / "token").write_text(_TOKEN, encoding="ascii")
    (folder / "token").chmod(0o600)
    address = f"127.0.0.1:{free_port()}"
    short = {f"listen__{name}_seconds": "0.3" for name in ("header", "transfer", "idle")}
    daemon = start(folder / "state.db", listen__http=address, auth__token_file=str(folder / "token"), **short)
    statuses: Counter[int] = Counter()
    slots = asyncio.Semaphore(64)

    async def send(target: Path | str, data: bytes) -> None:
        async with slots:
            statuses.update(int(found) for found in _STATUS.findall(await send_raw(target, data)))

    async def send_all(number: int, seed: int) -> None:
        bearer = b"Authorization: Bearer %b\r\n" % _TOKEN.encode()
        over_socket = broken_requests(number // 2, seed, strange=True)
        over_tcp = broken_requests(number // 4, seed + 1, headers=bearer, strange=True)
        strangers = broken_requests(number // 4, seed + 2, strange=True)
        await asyncio.gather(
            *(send(daemon.socket, data) for data in over_socket),
            *(send(address, data) for data in over_tcp + strangers),
        )

    async with StateClient(daemon.target) as client:
        await client.create_progression("p", [f"m{number}" for number in range(100)])
        # What any server takes when it is used for the first time is not counted.
        await send_all(count // 5, seed + 3)
        before, first = _resident(daemon), statuses.copy()
        began = time.monotonic()
        await send_all(count, seed)
        seconds, after = time.monotonic() - began, _resident(daemon)
        await client.append_to_progression("p", "after")
        assert (await client.get_progression("p"))[-1] == "after"
    failures = {status: number for status, number in statuses.items() if status >= 500 and status not in _FULL}
    assert not failures, failures
    assert {200, 400, 401, 404, 408} <= statuses.keys(), statuses
    assert after < before * 1.1 + 2, f"{before:.1f} MiB before, {after:.1f} MiB after"
    assert 0 == daemon.stop()
    wrong = [
        line for line in daemon.log.read_text(encoding="utf-8").splitlines() if json.loads(line)["level"] == "error"
    ]
    assert not wrong, wrong[:3]
    return (
        f"{count} in {seconds:.0f} s, half over the socket: {dict(sorted((statuses - first).items()))};"
        f" memory {before:.1f} MiB before, {after:.1f} MiB after"
    )


async def _round(http: aiohttp.ClientSession, name: str) -> list[float]:
    """Seconds of each append of a few callers."""
    took: list[float] = []

    async def call(caller: int) -> None:
        number, until = 0, time.monotonic() + _ROUND_SECONDS
        while (began := time.monotonic()) < until:
            body = {"progression_id": "p", "message_id": f"{name}-{caller}-{number}"}
            async with http.post("/v1/ops/append_to_progression", json=body) as answer:
                await answer.read()
                assert 200 == answer.status
            took.append(time.monotonic() - began)
            number += 1

    await asyncio.gather(*(call(caller) for caller in range(_CALLERS)))
    return sorted(took)


async def slow_ones(start: Start, folder: Path, *, count: int, rounds: int) -> str:
    """Appends without and with so many slow clients, in turn; their p99 is at most three times as high."""
    daemon = start(folder / "state.db", listen__header_seconds="5", listen__transfer_seconds="5")
    async with StateClient(daemon.target) as client:
        await client.create_progression("p")
        await client.create_progression("long", [f"{number:036d}" for number in range(10_000)])
    alone: list[float] = []
    beside: list[float] = []
    connector = aiohttp.UnixConnector(str(daemon.socket))
    async with aiohttp.ClientSession("http://d", connector=connector) as http:
        await _round(http, "warm")
        for number in range(rounds):
            alone += await _round(http, f"alone-{number}")
            with child(_SLOW, daemon.socket, count) as slow:
                assert slow.stdout is not None
                assert "there\n" == await asyncio.to_thread(slow.stdout.readline)
                beside += await _round(http, f"beside-{number}")
                assert slow.poll() is None
    alone.sort()
    beside.sort()
    p99 = [found[len(found) * 99 // 100] * 1000 for found in (alone, beside)]
    p50 = [found[len(found) // 2] * 1000 for found in (alone, beside)]
    seen = (
        f"{count} slow clients: p99 {p99[0]:.1f} ms without, {p99[1]:.1f} ms with, ratio {p99[1] / p99[0]:.2f};"
        f" p50 {p50[0]:.1f} and {p50[1]:.1f} ms; {len(alone)} and {len(beside)} appends"
    )
    assert p99[1] <= 3 * p99[0], seen
    assert 0 == daemon.stop()
    return seen
