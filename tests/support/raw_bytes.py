"""Requests that no client would send: whole ones with bytes changed, cut, repeated, and plain noise."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

__all__ = ["broken_requests", "send_raw"]

_BODY = b'{"progression_id": "p", "message_id": "m"}'
_JSON = b"Content-Type: application/json\r\n"
_WHOLE = (
    b"POST /v1/ops/append_to_progression HTTP/1.1\r\nHost: d\r\n%%b%bContent-Length: %d\r\n\r\n%b"
    % (_JSON, len(_BODY), _BODY),
    b"GET /v1/progressions/p/items?limit=5&after=1 HTTP/1.1\r\nHost: d\r\n%b\r\n",
    b"POST /v1/batch HTTP/1.1\r\nHost: d\r\n%%b%bTransfer-Encoding: chunked\r\n\r\n"
    b'12\r\n{"operations": []}\r\n0\r\n\r\n' % _JSON,
)
# Openings of other protocols, and requests that are wrong in a way of their own.
_STRANGE = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET /v1/progressions/%%00/items HTTP/1.1\r\nHost: d\r\n%b\r\n",
    b"GET /v1/../../etc/passwd HTTP/1.0\r\n%b\r\n",
    b"POST /v1/batch HTTP/1.1\r\nHost: d\r\n%%b%bContent-Length: 99999999999999999999\r\n\r\n{" % _JSON,
    b"POST /v1/batch HTTP/1.1\r\nHost: d\r\n%%b%bContent-Length: -1\r\n\r\n{" % _JSON,
    b"POST /v1/batch HTTP/1.1\r\nHost: d\r\n%%b%bTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{" % _JSON,
    b"POST /v1/batch HTTP/1.1\r\nHost: d\r\n%%b%bContent-Length: 40000\r\n\r\n%b" % (_JSON, b"[" * 40_000),
    b"GET / HTTP/1.1\r\nHost: d\r\n%%b%b\r\n" % (b"X: " + b"y" * 20_000 + b"\r\n"),
    b"POST /v1/ops/get_progression HTTP/1.1\r\nHost: d\r\nExpect: 100-continue\r\n%%b%bContent-Length: 9\r\n\r\n%b"
    % (_JSON, b"\xff" * 9),
)


def broken_requests(count: int, seed: int, *, headers: bytes = b"", strange: bool = False) -> list[bytes]:
    """So many, the same for the same seed.

    Args:
        count: How many.
        seed: Of the choices.
        headers: Lines that each whole request has more.
        strange: With what is no request of this API at all, repeated ones and plain noise.
    """
    chance = random.Random(seed)
    whole = [data % headers for data in _WHOLE]
    odd = [data % headers if b"%b" in data else data for data in _STRANGE]
    found = []
    for _ in range(count):
        if strange and (kind := chance.random()) < 0.3:
            noise = chance.randbytes(chance.randrange(1, 2_000))
            found.append(noise if kind < 0.1 else chance.choice(odd) if kind < 0.2 else chance.choice(whole) * 3)
            continue
        data = bytearray(chance.choice(whole))
        for _ in range(chance.randrange(1, 8)):
            at = chance.randrange(len(data))
            data[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
        found.append(bytes(data[: chance.randrange(1, len(data) + 1)]) if chance.random() < 0.2 else bytes(data))
    return found


async def send_raw(target: Path | str, data: bytes) -> bytes:
    """What comes back until the other side closes.

    Args:
        target: A Unix socket, or ``host:port``.
        data: What is sent.
    """
    if isinstance(target, Path):
        reader, writer = await asyncio.open_unix_connection(target)
    else:
        host, port = target.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()
