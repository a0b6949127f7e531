"""How long a cutover holds the lock at 100,000 ids when an own append came after its proof."""

from __future__ import annotations

import json
from typing import Any

from lionstate.migration import ProgressionMigrationService
from lionstate.migration.budget import allowed_seconds
from tests.migration.conftest import backend
from tests.support.backends import Backend
from tests.support.migration import WHOLE, Staged, make_ids

__all__ = ["backend"]

_IDS = 100_000


async def test_the_hold_is_within_its_budget(backend: Backend, state: Any) -> None:
    """fault 32: the best of three is within 50 ms per 100,000 ids (decision 7)."""
    text = json.dumps(make_ids(_IDS))
    holds = []
    for number in range(3):
        pid = f"p{number}"
        await backend.put_progression(pid, text)
        staged = Staged(backend)

        async def append(name: str, pid: str = pid, staged: Staged = staged) -> None:
            if name == "cutover":
                await state.append_to_progression(pid, f"late-{len(staged.stages)}")

        staged.before = append
        step = await ProgressionMigrationService(staged).step(progression_id=pid, **WHOLE)
        assert 1 == step.cut_over
        stage = staged.results("cutover")[-1]
        assert stage.value_compared
        holds.append(stage.lock_seconds)
    print(f"{backend.name}: " + ", ".join(f"{seconds * 1000:.1f} ms" for seconds in holds))
    assert min(holds) <= allowed_seconds(_IDS)
