"""Writers that keep book: what was acknowledged, what was refused, what is unknown; and the check of what is there."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import asyncpg

from lionstate import StateClient
from lionstate.errors import OutcomeUnknownError, StateError

__all__ = ["Load", "Writer", "orders_in"]

_AGAIN_SECONDS = 0.02


@dataclass
class Writer:
    """One caller that appends one id after the other, over all progressions in turn.

    Attributes:
        retries: Whether it repeats what is unknown or refused until it is acknowledged.
        acknowledged: Progression and id of each acknowledged append, in order.
        refused: Ids that were answered as not written and not repeated, with the error's code.
        unknown: Ids whose outcome was never learned.
        doubts: How many answers were that the outcome is unknown, repeated or not.
    """

    name: str
    retries: bool
    acknowledged: list[tuple[str, str]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    doubts: int = 0

    async def write(self, client: StateClient, progression_id: str, message_id: str) -> list[str]:
        """Append an id, and name the progressions that it is in then."""
        await client.append_to_progression(progression_id, message_id)
        return [progression_id]

    async def append(self, client: StateClient, progression_id: str, message_id: str, stop: asyncio.Event) -> None:
        """Append one id, and take down what became of it."""
        doubtful = False
        while True:
            try:
                into = await self.write(client, progression_id, message_id)
            except StateError as error:
                self.doubts += isinstance(error, OutcomeUnknownError)
                doubtful = doubtful or isinstance(error, OutcomeUnknownError)
                if not self.retries or stop.is_set():
                    if doubtful:
                        self.unknown.add(message_id)
                    else:
                        self.refused[message_id] = error.code
                    await asyncio.sleep(_AGAIN_SECONDS)
                    return
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                self.acknowledged += [(found, message_id) for found in into]
                return


class Load:
    """Several writers at work on the same progressions.

    Attributes:
        seconds: How long each append took until its outcome was taken down, repetitions included.
    """

    def __init__(
        self,
        target: str,
        progressions: Sequence[str],
        *,
        writers: int = 6,
        rate: float | None = None,
        kind: type[Writer] = Writer,
        name: str = "w",
    ) -> None:
        """Half of the writers repeat until they are acknowledged, the others never do.

        Args:
            kind: How they write.
            name: What their names, and the ids, begin with.
            rate: Appends a second that all of them begin together, at most; None as fast as they are answered.
        """
        self.target = target
        self._every = 0.0 if rate is None else writers / rate
        self.progressions = progressions
        self.writers = [kind(f"{name}{number}", retries=number % 2 == 0) for number in range(writers)]
        self.stop = asyncio.Event()
        self.seconds: list[float] = []
        self._count = 0
        self._enough = asyncio.Condition()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Load]:
        """Write while the block runs."""
        async with asyncio.TaskGroup() as group:
            for place, writer in enumerate(self.writers):
                group.create_task(self._write(writer, place))
            try:
                yield self
            finally:
                self.stop.set()

    async def _write(self, writer: Writer, place: int) -> None:
        turn = place
        async with StateClient(self.target, timeout=10) as client:
            while not self.stop.is_set():
                progression = self.progressions[turn % len(self.progressions)]
                before, began = len(writer.acknowledged), time.monotonic()
                await writer.append(client, progression, f"{writer.name}-{turn:07d}", self.stop)
                turn += 1
                took = time.monotonic() - began
                self.seconds.append(took)
                if took < self._every:
                    await asyncio.sleep(self._every - took)
                async with self._enough:
                    self._count += len(writer.acknowledged) - before
                    self._enough.notify_all()

    async def acknowledge(self, more: int) -> None:
        """Wait until so many more appends are acknowledged."""
        goal = self._count + more
        async with self._enough:
            await self._enough.wait_for(lambda: self._count >= goal)

    def check(self, found: dict[str, list[str]], before: dict[str, list[str]]) -> None:
        """Every acknowledged id is there once and in its writer's order, what was refused is not, the rest is whole."""
        sent: set[str] = set()
        for writer in self.writers:
            sent |= {mid for _, mid in writer.acknowledged} | writer.unknown
            for progression in self.progressions:
                wanted = [mid for pid, mid in writer.acknowledged if pid == progression]
                held = set(wanted)
                assert wanted == [mid for mid in found[progression] if mid in held]
        for progression in self.progressions:
            ids = found[progression]
            prefix = before.get(progression, [])
            assert prefix == ids[: len(prefix)]
            assert [] == [mid for mid, count in Counter(ids[len(prefix) :]).items() if count > 1]
            # Neither what was answered as not written, nor anything that nobody sent.
            assert set(ids[len(prefix) :]) <= sent


_ITEMS = """SELECT i.progression_id, i.message_id FROM progression_items i
    JOIN progression_storage_state s ON s.progression_id = i.progression_id
    WHERE s.phase = 'items' ORDER BY i.progression_id, i.ordinal"""
_JSON = """SELECT p.id, p.collection FROM progressions p
    LEFT JOIN progression_storage_state s ON s.progression_id = p.id WHERE s.phase IS NULL OR s.phase <> 'items'"""
_PHASES = "SELECT progression_id, phase FROM progression_storage_state"
_DUAL = """SELECT i.progression_id, i.ordinal, i.message_id FROM progression_items i
    JOIN progression_storage_state s ON s.progression_id = i.progression_id
    WHERE s.phase = 'dual' ORDER BY i.progression_id, i.ordinal"""


async def orders_in(url: str) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Every progression's ids in order and its phase, read with a plain driver, no code of lionstate."""
    if url.startswith("postgresql"):
        conn = await asyncpg.connect(url.replace("+asyncpg", ""))
        try:
            items, values, phases, dual = [
                [tuple(row) for row in await conn.fetch(query)] for query in (_ITEMS, _JSON, _PHASES, _DUAL)
            ]
        finally:
            await conn.close()
    else:
        plain = sqlite3.connect(f"file:{url}?mode=ro", uri=True)
        try:
            items, values, phases, dual = [plain.execute(query).fetchall() for query in (_ITEMS, _JSON, _PHASES, _DUAL)]
        finally:
            plain.close()
    found: dict[str, list[str]] = {pid: json.loads(text) for pid, text in values}
    for pid, ordinal, mid in dual:
        assert found[pid][ordinal] == mid, "a shadow row contradicts its JSON"
    by_phase = dict(phases)
    for pid, phase in by_phase.items():
        if phase == "items":
            found[pid] = []
    for pid, mid in items:
        found[pid].append(mid)
    return found, by_phase
