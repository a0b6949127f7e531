"""Requests that no client would send: whole ones with bytes changed, cut, repeated, and plain noise."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

__all__ = ["broken_requests", "send_raw"]

_BODY = b'{"progression_id": "p", "message_id": "m"}'
_WHOLE = (
    b"POST /v1/ops/append_to_progression HTTP/1.1\r\nHost: d\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY),
    b"GET /v1/progressions/p/items?limit=5&after=1 HTTP/1.1\r\nHost: d\r\n\r\n",
    b"POST /v1/batch HTTP/1.1\r\nHost: d\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'12\r\n{"operations": []}\r\n0\r\n\r\n',
)


def broken_requests(count: int, seed: int) -> list[bytes]:
    """So many, the same for the same seed."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        data = bytearray(chance.choice(_WHOLE))
        for _ in range(chance.randrange(1, 8)):
            at = chance.randrange(len(data))
            data[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
        found.append(bytes(data[: chance.randrange(1, len(data) + 1)]) if chance.random() < 0.2 else bytes(data))
    return found


async def send_raw(path: Path, data: bytes) -> bytes:
    """What comes back until the other side closes."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(data)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()
