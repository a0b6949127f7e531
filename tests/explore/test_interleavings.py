"""Every pair with at most three preemptions, every triple with at most two; counts are printed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.cast import PHASES, explore_on, groups_of
from tests.support.interleaving import Side
from tests.support.sides import open_side
from tests.support.stores import params_of

pytestmark = pytest.mark.anyio


@pytest.fixture(params=params_of(["sqlite", "postgresql-15", "postgresql-18"]))
async def side(request: pytest.FixtureRequest, empty_store: Path, tmp_path: Path) -> AsyncIterator[Side]:
    """A store whose statements can be interleaved."""
    async with open_side(request, empty_store, tmp_path) as found:
        yield found


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("size", "preemptions"), [(2, 3), (3, 2)], ids=["pairs", "triples"])
async def test_no_order_of_statements_breaks_anything(side: Side, phase: str, size: int, preemptions: int) -> None:
    """faults 2, 12, 23, 24, 30, 33: acknowledged ids once and in order, reads never stale, rows that agree."""
    groups = groups_of(phase, size)
    runs = waits = states = steps = 0
    for names in groups:
        found = await explore_on(side, phase, names, preemptions=preemptions)
        print(
            f"{phase:6} {found.interleavings:5} interleavings {found.states:4} states  {' | '.join(names)}", flush=True
        )
        runs += found.interleavings
        waits += found.waits
        states += found.states
        steps += found.steps
    print(f"{phase}: {len(groups)} groups, {runs} interleavings, {states} states, {steps} steps, {waits} waits")
    assert runs > 10 * len(groups) and waits > 0
