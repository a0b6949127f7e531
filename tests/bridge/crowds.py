"""Eight agents on one store, through a daemon or each on its own."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from lionstate import StateClient
from tests.bridge.talks import Store

__all__ = ["AGENTS", "check_nothing_lost", "crowd", "locked"]

AGENTS = 8


def crowd(store: Store, seconds: float) -> list[dict[str, Any]]:
    """Run the agents at the same time; what each had acknowledged, and its errors."""
    store.work.exists()
    agents: list[subprocess.Popen[str]] = []
    try:
        for number in range(AGENTS):
            agent = store.child("crowd.py", seconds, number)
            agents.append(agent)
            # One after the other: several LionAGIs that create one new store at once fail in its own schema.
            assert agent.stdout is not None
            line = agent.stdout.readline()
            assert "ready\n" == line, agent.communicate()[1]
        for agent in agents:
            assert agent.stdin is not None
            agent.stdin.write("\n")
            agent.stdin.flush()
        return [_end(agent) for agent in agents]
    finally:
        for agent in agents:
            if agent.poll() is None:
                agent.kill()
            agent.communicate()


def _end(agent: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = agent.communicate(timeout=300)
    assert 0 == agent.returncode, err
    found: dict[str, Any] = json.loads(out)
    return found


def locked(found: list[dict[str, Any]]) -> int:
    """How often an agent was told that the database is locked."""
    return sum(count for agent in found for what, count in agent["errors"].items() if "locked" in what)


async def check_nothing_lost(target: str, found: list[dict[str, Any]]) -> int:
    """Everything acknowledged is there once, in its agent's order; returns how much that is."""
    async with StateClient(target) as client:
        shared = await client.get_progression("shared")
        for number, agent in enumerate(found):
            acknowledged = agent["acknowledged"]
            assert acknowledged == await client.get_progression(f"part-{number}")
            assert acknowledged == [name for name in shared if name.startswith(f"{number}-")]
    return len(shared)
