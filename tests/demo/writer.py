"""One of the demonstration's writer processes: live messages through the daemon, each acknowledgement written down.

    python -m tests.demo.writer TARGET NAME LOG SECONDS_BETWEEN

Ends at SIGTERM after its last message is answered. The log has one JSON line per message:
``[outcome, conversation, message id, milliseconds, start time]`` with outcome ``written``, ``refused`` or ``unknown``.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import IO, Any

from lionstate import StateClient
from lionstate.errors import OutcomeUnknownError, StateError
from tests.demo.layout import Conversation, conversations


def _message(message_id: str) -> dict[str, Any]:
    return {
        "id": message_id,
        "created_at": time.time(),
        "role": "user",
        "content": {"text": "what the demonstration says"},
    }


async def _send(client: StateClient, found: Conversation, message_id: str) -> str:
    try:
        await client.record_message(
            _message(message_id),
            session_id=found.session_id,
            branch_progression_id=found.branch_progression,
            session_progression_id=found.session_progression,
        )
    except OutcomeUnknownError:
        return "unknown"
    except StateError as error:
        sys.stderr.write(f"writer: {error.code}: {error}\n")
        return "refused"
    return "written"


async def _write(target: str, name: str, log: IO[str], pause: float) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    known = conversations()
    turn = 0
    async with StateClient(target) as client:
        while not stopping.is_set():
            place = turn % len(known)
            message_id = f"{name}-{turn:08d}"
            turn += 1
            started = time.time()
            clock = time.perf_counter()
            outcome = await _send(client, known[place], message_id)
            spent = (time.perf_counter() - clock) * 1000
            log.write(json.dumps([outcome, place, message_id, round(spent, 3), started]) + "\n")
            try:
                await asyncio.wait_for(stopping.wait(), pause)
            except TimeoutError:
                continue


def main() -> None:
    """Write until told to stop."""
    target, name, log, pause = sys.argv[1:]
    with Path(log).open("w", encoding="utf-8", buffering=1) as out:
        asyncio.run(_write(target, name, out, float(pause)))


if __name__ == "__main__":
    main()
