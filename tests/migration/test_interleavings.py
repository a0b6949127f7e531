"""Interleavings of statements: a fixed subset of what tests/explore does whole, and the faults that it must find."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from lionstate.migration import cutover
from lionstate.progression import storage_state
from lionstate.schema.conversation import progressions
from lionstate.schema.own import progression_storage_state as states
from tests.support.cast import PHASES, explore_on, groups_of
from tests.support.interleaving import Side, Violation
from tests.support.sides import open_side
from tests.support.stores import params_of

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(params=params_of(["sqlite", "postgresql-18"]))
async def side(request: pytest.FixtureRequest, empty_store: Path, tmp_path: Path) -> AsyncIterator[Side]:
    """A store whose statements can be interleaved."""
    async with open_side(request, empty_store, tmp_path) as found:
        yield found


# Those that do as another one does; tests/explore has them too.
ALIKE = ("append x again", "append b", "append y", "second chunk", "second cutover")


@pytest.mark.parametrize("phase", PHASES)
async def test_pairs_in_any_order_of_their_statements(side: Side, phase: str) -> None:
    """faults 2, 12, 23, 24, 30: what is acknowledged is there once and in order, no read is stale, rows agree."""
    for names in groups_of(phase, 2, without=ALIKE):
        assert 2 <= (await explore_on(side, phase, names, preemptions=1)).interleavings


# What meets where a lost append would be seen by nobody, or where two do the same.
@pytest.mark.parametrize(
    ("phase", "names"),
    [
        ("copied", ("append x", "cutover")),
        ("copied", ("cutover", "foreign append")),
        ("dual", ("append x", "chunk")),
        ("json", ("append x", "admission")),
        ("items", ("append x", "append x again")),
    ],
    ids=lambda found: found if isinstance(found, str) else "-".join(found).replace(" ", "_"),
)
async def test_pairs_with_three_preemptions(side: Side, phase: str, names: tuple[str, ...]) -> None:
    """faults 12, 23, 24: an append is before the other or after it, never between."""
    found = await explore_on(side, phase, names, preemptions=3)
    assert found.waits > 0


async def test_a_foreign_append_between_an_own_one_and_the_cutover(side: Side) -> None:
    """fault 12: what was once found by three actors: blocked under another name than its own."""
    assert 50 < (await explore_on(side, "copied", ("append x", "cutover", "foreign append"), preemptions=1)).waits


async def test_three_at_once(side: Side) -> None:
    """faults 12, 24, 33: two writers that wait for the same lock while the cutover holds it."""
    found = await explore_on(side, "copied", ("append x", "append y", "cutover"), preemptions=1)
    assert found.waits > 5


def _lock_in_one_statement(conn: Connection, ids: Any, form: Any) -> Any:
    """Lock the parents and read the state rows at once: what is read is what was there before the wait."""
    both = form._both.where(progressions.c.id.in_(list(ids))).with_for_update(key_share=True, of=progressions)
    return [(row[0], None, None if row[1] is None else form.of(row[1:])) for row in conn.execute(both)]


def _lock_no_parents(conn: Connection, ids: Any, form: Any) -> Any:
    """Lock state rows alone, which another program's append does not take."""
    rows = conn.execute(form._states.where(states.c.progression_id.in_(list(ids))).with_for_update())
    return [(row[0], None, form.of(row)) for row in rows]


FAULTS = {
    "lock_and_test_at_once": (storage_state, "_lock", _lock_in_one_statement, "json", ("append x", "admission")),
    "lock_no_parents": (storage_state, "_lock", _lock_no_parents, "copied", ("cutover", "foreign append")),
    "nothing_has_changed": (cutover, "_untouched", lambda *_: True, "copied", ("cutover", "foreign append")),
}
_CASES = [
    # Where the transaction itself is the lock, there are no rows to lock in the wrong order; where rows carry versions,
    # the parent's holds a cutover that believes so.
    ("sqlite", "nothing_has_changed"),
    *(
        pytest.param("postgresql-18", fault, marks=pytest.mark.postgresql)
        for fault in ("lock_and_test_at_once", "lock_no_parents")
    ),
]


@pytest.mark.parametrize(("side", "fault"), _CASES, indirect=["side"])
async def test_a_fault_that_is_put_in_is_found(side: Side, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """faults 23, 24: the explorer finds a protection that was taken away."""
    module, name, instead, phase, names = FAULTS[fault]
    monkeypatch.setattr(module, name, instead)
    with pytest.raises(Violation):
        await explore_on(side, phase, names, preemptions=3)
