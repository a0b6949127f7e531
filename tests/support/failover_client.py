"""One client process that records live messages through a daemon, and keeps book.

    python -m tests.support.failover_client TARGET NAME PROGRESSION...

Writes until its input ends. Prints the time (monotonic seconds) whenever something was acknowledged, at the end one
JSON array: a ``Writer`` each.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict

from lionstate import StateClient
from tests.support.load import Load, Writer

__all__ = ["SESSION"]

# The session of all messages, and its progression.
SESSION = "session"
_RATE = 60.0


class _Recorder(Writer):
    """Records messages instead of bare ids."""

    async def write(self, client: StateClient, progression_id: str, message_id: str) -> list[str]:
        message = {"id": message_id, "created_at": time.time(), "role": "user", "content": {"text": "x" * 200}}
        await client.record_message(message, SESSION, progression_id, SESSION)
        return [progression_id, SESSION]


async def _tell(load: Load) -> None:
    while True:
        await load.acknowledge(1)
        print(time.monotonic(), flush=True)


async def _write(target: str, name: str, progressions: list[str]) -> None:
    load = Load(target, progressions, writers=4, rate=_RATE, kind=_Recorder, name=name)
    telling = asyncio.create_task(_tell(load))
    async with load.running():
        await asyncio.to_thread(sys.stdin.read)
    telling.cancel()
    print(json.dumps([{**asdict(writer), "unknown": sorted(writer.unknown)} for writer in load.writers]))


def main() -> None:
    """Write until the input ends."""
    target, name, *progressions = sys.argv[1:]
    asyncio.run(_write(target, name, progressions))


if __name__ == "__main__":
    main()
