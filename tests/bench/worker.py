"""lionstate in a process of its own, under the same protocol as the peers: ``python -m tests.bench.worker``."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lionstate import StateClient, StateDB
from lionstate.engine import EngineSettings
from tests.bench.peers.protocol import Subject, serve
from tests.bench.stores import Conversation, message


def _memory(key: str) -> int:
    """A figure of ``/proc/self/status`` in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0


def _forget_peak() -> None:
    """The peak of memory counts from now on."""
    Path("/proc/self/clear_refs").write_text("5")


class Lionstate(Subject):
    """A StateDB on a path or URL, a StateClient on ``unix:…``."""

    async def open(self, target: str, synchronous: str, name: str = "a", mark: str = "x") -> None:
        """Open one conversation's store; ``mark`` makes this process's ids its own."""
        settings = EngineSettings(synchronous=synchronous)  # type: ignore[arg-type]
        if target.startswith("unix:"):
            self.state: Any = StateClient(target)
        elif "://" in target:
            self.state = StateDB(url=target, settings=settings)
        else:
            self.state = StateDB(target, settings=settings)
        await self.state.open()
        self.talk = Conversation.named(name)
        self.mark = mark

    async def append(self, number: int) -> None:
        """One id."""
        await self.state.append_to_progression(self.talk.branch_progression, f"{self.mark}{number:024d}")

    async def record(self, number: int) -> None:
        """One live message."""
        await self.state.record_message(
            message(number, prefix=self.mark),
            session_id=self.talk.session,
            branch_progression_id=self.talk.branch_progression,
            session_progression_id=self.talk.session_progression,
        )

    async def record_repeating(self, number: int) -> None:
        """One live message; every tenth is sent again, as by a caller that missed the answer."""
        await self.record(number)
        if number % 10 == 0:
            await self.record(number)

    async def record_once(self, number: int) -> None:
        """One message into one conversation, as the peers have it: its row and one place."""
        await self.state.record_message(
            message(number, prefix=f"o{self.mark}"),
            session_id=self.talk.session,
            branch_progression_id=self.talk.branch_progression,
        )

    async def tail(self, number: int) -> Any:
        """The newest 200 messages, all columns."""
        return await self.state.get_branch_messages(self.talk.branch, limit=200)

    async def tail_lean(self, number: int) -> Any:
        """The role and content of the newest 200 messages, which is what the peers give."""
        return await self.state.get_branch_messages(self.talk.branch, limit=200, columns=("role", "content"))

    async def tail_ids(self, number: int) -> Any:
        """The newest 200 ids."""
        return await self.state.list_progression_items(self.talk.branch_progression, newest_first=True, limit=200)

    async def supports(self, method: str) -> bool:
        """Whether this build has a method."""
        return hasattr(self.state, method)

    async def snapshots(self, seconds: float) -> dict[str, Any]:
        """Full reads for so long; each has to begin with the one before it."""
        stop, taken, broken = time.monotonic() + seconds, 0, 0
        before: list[str] = []
        while time.monotonic() < stop:
            found = await self.state.get_progression(self.talk.branch_progression)
            broken += found[: len(before)] != before
            before, taken = found, taken + 1
            await asyncio.sleep(0.01)
        return {"taken": taken, "broken": broken, "last": before}

    async def stored(self) -> dict[str, Any]:
        """Both progressions in full."""
        branch = await self.state.get_progression(self.talk.branch_progression)
        session = await self.state.get_progression(self.talk.session_progression)
        return {"branch": branch, "session": session}

    async def written(self, what: str, samples: int) -> dict[str, Any]:
        """Bytes that this process gave to write system calls during so many calls."""
        before = _written_bytes()
        await self.measure(what, samples, warm=0)
        return {"bytes": _written_bytes() - before}

    async def migrate(self) -> dict[str, Any]:
        """Move one progression to items with default caps; the peak of memory above idle, in bytes."""
        service = self.state.migration
        idle = _memory("VmRSS")
        _forget_peak()
        began, steps = time.monotonic(), 0
        while True:
            step = await service.step(progression_id=self.talk.branch_progression)
            steps += 1
            if str(step.stop_reason) not in ("cap_items", "cap_bytes", "cap_seconds", "busy", "throttled"):
                break
        children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        query = "SELECT phase FROM progression_storage_state WHERE progression_id = ?"
        row = await self.state.fetch_one(query, [self.talk.branch_progression])
        return {
            "phase": row["phase"] if row else "json",
            "reason": str(step.stop_reason),
            "held": {str(name): count for name, count in dict(step.held).items()},
            "steps": steps,
            "seconds": time.monotonic() - began,
            "above_idle": _memory("VmHWM") - idle,
            "largest_child": max(children, *_living_children(os.getpid()), 0),
        }

    async def close(self) -> None:
        """Close the store."""
        await self.state.close()


def _living_children(pid: int) -> Iterator[int]:
    """The peak of memory of each process that a process has started, and of those that these have."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            status = Path(f"/proc/{child}/status").read_text()
            yield sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
            yield from _living_children(int(child))


def _written_bytes() -> int:
    for line in Path(f"/proc/{os.getpid()}/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    return 0


if __name__ == "__main__":
    serve(Lionstate())
