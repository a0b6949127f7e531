"""The comparison: one run of LionAGI without lionstate, one that is migrated in its middle."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from lionstate import StateClient
from tests.bridge.conftest import Daemons
from tests.bridge.talks import Store, Talk
from tests.demo.processes import DaemonProcess

__all__ = ["PROGRESSIONS", "Found", "check", "migrated", "plain"]

PROGRESSIONS = 10
_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class Found:
    """What one run left, by every way that LionAGI has to look at it.

    Attributes:
        run: What the run said at its end.
        later: What a new process found, before and after the prune.
        listed: The rows of ``li state ls``, before it.
        pruned: What ``li state prune`` printed, and its exit code.
    """

    run: dict[str, Any]
    later: list[dict[str, Any]]
    listed: list[list[str]]
    pruned: tuple[int, list[str]]


def plain(store: Store, messages: int) -> Found:
    """The run on a store that lionstate never sees."""
    talk = Talk(store, messages)
    try:
        for name in ("third", "two thirds"):
            talk.wait_for(name)
            talk.go_on()
        return _look(store, talk.end())
    finally:
        talk.stop()


def migrated(store: Store, messages: int, daemons: Daemons) -> Found:
    """The run, with a daemon that comes after a third and has cut everything over after two."""
    talk = Talk(store, messages)
    try:
        talk.wait_for("third")
        daemon = daemons(store.url, maintenance__enabled="true", maintenance__interval_seconds="0.02")
        talk.go_on()
        talk.wait_for("two thirds")
        asyncio.run(_cut_over(daemon))
        talk.go_on()
        return _look(store, talk.end())
    finally:
        talk.stop()


async def _cut_over(daemon: DaemonProcess) -> None:
    limit = time.monotonic() + _PATIENCE_SECONDS
    async with StateClient(daemon.target) as client:
        while True:
            status = await client.migration.status(limit=0)
            if status.phases.get("items") == PROGRESSIONS:
                return
            assert time.monotonic() < limit, f"not cut over: {status}"
            await asyncio.sleep(0.05)


def _look(store: Store, run: dict[str, Any]) -> Found:
    later, listed = [store.look()], store.listed()
    pruned = store.li("state", "prune", "--keep-days", "0", "--keep-n", "1")
    later.append(store.look())
    # The counts; the recount line has an age in it.
    return Found(run, later, listed, (pruned.returncode, pruned.stdout.splitlines()[:1]))


def check(expected: Found, actual: Found, messages: int) -> None:
    """Both runs left the same, and it is what such a run leaves."""
    completed = ["completed"]
    statuses = {"lead": completed * 2, "helper": completed, "silent": ["completed_empty"], "late": completed}
    assert statuses == actual.run["statuses"]
    lead = messages - messages // 10
    assert lead == actual.run["known_on_resume"]
    stored = actual.later[0]["stored"]
    assert [lead + 10] == [len(branch) for branch in stored["lead"]["branches"]]
    assert ["question 0", "answer 1"] == stored["late"]["session"]
    if pages := actual.later[0]["pages"]:
        assert [["ghost", 2]] == pages["unhealthy"]
    assert expected.run == actual.run
    for before, after in zip(expected.later, actual.later, strict=True):
        for name in before:
            assert before[name] == after[name], name
    assert expected.listed == actual.listed
    assert expected.pruned == actual.pruned
    if actual.pruned[0] == 0:
        assert actual.later[1]["messages"] < actual.later[0]["messages"]
