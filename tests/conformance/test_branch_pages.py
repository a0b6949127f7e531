"""Pages of a branch's messages: the same ones in every phase, one query in ``items`` (ADR-0055 D3; ADR-0117 D4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lionstate.errors import InvalidInputError, MalformedCollectionError, ProgressionBlockedError
from lionstate.migration.control import set_compat_read_everywhere
from tests.support.backends import Backend
from tests.support.conversations import conversation, message, stored_message
from tests.support.phases import SHAPES, change_state, put, run

# A repeat, and ids without a row at both ends and in between.
_ORDER = ["no row", "a", "b", "gone", "gone too", "c", "a", "d", "none"]
_PLACED = [(place, mid) for place, mid in enumerate(_ORDER) if len(mid) == 1]
_READABLE = [name for name, (_, authority, _) in SHAPES.items() if authority != "none"]


async def _branch(backend: Backend, state: Any, shape: str, **how: Any) -> None:
    await conversation(backend)
    await state.insert_messages([message(mid) for mid in "abcd"])
    await put(backend, "order", shape, _ORDER, **how)
    await state.create_branch({"id": "long", "session_id": "s", "progression_id": "order"})


def _rows(placed: list[tuple[int, str]]) -> list[dict[str, Any]]:
    return [stored_message(mid, ordinal=place) for place, mid in placed]


async def _check_pages(state: Any) -> None:
    """The newest, walks in both directions, and what lies between two bounds."""
    assert _rows(_PLACED[-2:]) == await state.get_branch_messages("long", limit=2)
    assert _rows(_PLACED) == await state.get_branch_messages("long", limit=1_000)
    back: list[dict[str, Any]] = []
    while page := await state.get_branch_messages("long", limit=2, before_ordinal=back[0]["ordinal"] if back else None):
        back = [*page, *back]
    assert _rows(_PLACED) == back
    on = await state.get_branch_messages("long", limit=2, after_ordinal=-1)
    while page := await state.get_branch_messages("long", limit=2, after_ordinal=on[-1]["ordinal"]):
        on += page
    assert _rows(_PLACED) == on
    between = await state.get_branch_messages("long", limit=5, after_ordinal=1, before_ordinal=6)
    assert _rows([(2, "b"), (5, "c")]) == between


@pytest.mark.parametrize("shape", _READABLE)
async def test_pages_are_the_same_in_every_phase(backend: Backend, state: Any, shape: str) -> None:
    await _branch(backend, state, shape)
    await _check_pages(state)


async def test_pages_of_a_compat_read_come_from_the_frozen_prefix(backend: Backend, state: Any) -> None:
    """Item rows of the prefix that are wrong are not served, whichever of the two switches is on."""
    await _branch(backend, state, "items")
    await backend.execute("UPDATE progression_items SET message_id = 'd' WHERE progression_id = 'order'")
    await change_state(backend, "order", compat_read=1)
    await _check_pages(state)
    await change_state(backend, "order", compat_read=0)
    wrong = _rows([(len(_ORDER) - 1, "d")])
    for enabled in (True, False):

        def switch(conn: Any, enabled: bool = enabled) -> None:
            set_compat_read_everywhere(conn, enabled, actor="test", reason=None, now=1.0)

        await run(backend.direct, switch)
        if enabled:
            await _check_pages(state)
        else:
            assert wrong == await state.get_branch_messages("long", limit=1)


async def test_a_page_of_nothing_is_empty(backend: Backend, state: Any) -> None:
    await _branch(backend, state, "items")
    assert [] == await state.get_branch_messages("missing", limit=5)
    assert [] == await state.get_branch_messages("b", limit=5)
    assert [] == await state.get_branch_messages("long", limit=5, before_ordinal=1)
    assert [] == await state.get_branch_messages("long", limit=5, after_ordinal=7)


async def test_legacy_elements_that_are_no_ids_have_a_place_and_no_message(backend: Backend, state: Any) -> None:
    await _branch(backend, state, "absent")
    value = json.dumps(["b", 7, None, {"x": 1}, "a\0", "a"])
    await backend.execute("UPDATE progressions SET collection = :value WHERE id = 'order'", value=value)
    assert _rows([(0, "b"), (5, "a")]) == await state.get_branch_messages("long", limit=5)


async def test_a_page_of_what_cannot_be_trusted_is_an_error(backend: Backend, state: Any) -> None:
    await _branch(backend, state, "blocked-none")
    with pytest.raises(ProgressionBlockedError):
        await state.get_branch_messages("long", limit=5)
    await backend.put_progression("bad", '{"a": 1}')
    await state.create_branch({"id": "b2", "session_id": "s", "progression_id": "bad"})
    with pytest.raises(MalformedCollectionError):
        await state.get_branch_messages("b2", limit=5)


async def test_values_of_a_page_are_those_of_the_message(backend: Backend, state: Any) -> None:
    """Bare numbers, lone surrogates and embeddings decode as ``get_message`` decodes them."""
    await conversation(backend, items=True)
    given = [
        message("number", content=5),
        message("fraction", content=0.1, embedding=[1.0, 2.5]),
        message("surrogate", content={"text": "\ud800"}, node_metadata={"lion_class": "pkg.Known"}),
    ]
    await backend.direct.insert_messages(given, progression_ids=["bp"])
    expected = [{**await state.get_message(one["id"]), "ordinal": place} for place, one in enumerate(given)]
    assert expected == await state.get_branch_messages("b", limit=10)


@pytest.mark.parametrize(
    "bad",
    [{"limit": 0}, {"limit": 1_001}, {"limit": True}, {"after_ordinal": 1}, {"before_ordinal": 1},
     {"limit": 5, "after_ordinal": "1"}, {"limit": 5, "before_ordinal": 2**63}],
    ids=str,
)  # fmt: skip
async def test_a_page_that_cannot_be_is_refused(backend: Backend, state: Any, bad: dict[str, Any]) -> None:
    await _branch(backend, state, "items")
    with pytest.raises(InvalidInputError):
        await state.get_branch_messages("long", **bad)
