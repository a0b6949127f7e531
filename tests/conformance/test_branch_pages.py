"""Pages of a branch's messages: the same ones in every phase, one query in ``items`` (ADR-0055 D3; ADR-0117 D4)."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from lionstate import StateClient
from lionstate.dialects import Statement
from lionstate.engine import offload, script
from lionstate.errors import InvalidInputError, MalformedCollectionError, ProgressionBlockedError, StaleCursorError
from lionstate.migration.control import set_compat_read_everywhere
from lionstate.progression import compat, reads
from lionstate.records import branch_messages
from tests.support.backends import Backend
from tests.support.conversations import conversation, message, stored_message
from tests.support.phases import SHAPES, change_state, put, run

# A repeat, and ids without a row at both ends and in between.
_ORDER = ["no row", "a", "b", "gone", "gone too", "c", "a", "d", "none"]
_PLACED = [(place, mid) for place, mid in enumerate(_ORDER) if len(mid) == 1]
_READABLE = [name for name, (_, authority, _) in SHAPES.items() if authority != "none"]


async def _branch(backend: Backend, state: Any, shape: str, order: list[str] = _ORDER, **how: Any) -> None:
    await conversation(backend)
    await state.insert_messages([message(mid) for mid in "abcd"])
    await put(backend, "order", shape, order, **how)
    await state.create_branch({"id": "long", "session_id": "s", "progression_id": "order"})


def _rows(placed: list[tuple[int, str]]) -> list[dict[str, Any]]:
    return [stored_message(mid, ordinal=place) for place, mid in placed]


async def _page(state: Any, **how: Any) -> list[dict[str, Any]]:
    """A page without its generation, which is the same for all of it."""
    found = await state.get_branch_messages("long", **how)
    assert len({row.pop("generation") for row in found}) <= 1
    return list(found)


async def _check_pages(state: Any) -> None:
    """The newest, walks in both directions, and what lies between two bounds."""
    assert _rows(_PLACED[-2:]) == await _page(state, limit=2)
    assert _rows(_PLACED) == await _page(state, limit=1_000)
    back: list[dict[str, Any]] = []
    while page := await _page(state, limit=2, before_ordinal=back[0]["ordinal"] if back else None):
        back = [*page, *back]
    assert _rows(_PLACED) == back
    on = await _page(state, limit=2, after_ordinal=-1)
    while page := await _page(state, limit=2, after_ordinal=on[-1]["ordinal"]):
        on += page
    assert _rows(_PLACED) == on
    between = await _page(state, limit=5, after_ordinal=1, before_ordinal=6)
    assert _rows([(2, "b"), (5, "c")]) == between
    asked = ("role", "content")
    lean = await _page(state, limit=5, before_ordinal=7, columns=asked)
    assert _only((*asked, "ordinal"), _rows(_PLACED[:-1])) == [list(row.items()) for row in lean]
    everything = await state.get_branch_messages("long", columns=asked)
    assert _only(asked, _rows(_PLACED)) == [list(row.items()) for row in everything]


def _only(names: Iterable[str], rows: list[dict[str, Any]]) -> list[list[tuple[str, Any]]]:
    """These columns of the rows, in this order."""
    return [[(name, row[name]) for name in names] for row in rows]


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
            assert wrong == await _page(state, limit=1)


def _is_of_a_page() -> bool:
    """Whether the caller works for a page, on whatever thread: a daemon under test looks at its store beside."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") != branch_messages.__name__:
        frame = frame.f_back
    return frame is not None


@contextmanager
def _counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """How many queries were run for pages, and how many JSON values were expanded, by daemon or library."""
    seen = {"queries": 0, "values": 0}

    def counting(name: str, called: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            seen[name] += _is_of_a_page()
            return called(*args, **named)

        return call

    with monkeypatch.context() as patch:
        for query in ("rows", "rows_alone"):
            patch.setattr(Statement, query, counting("queries", getattr(Statement, query)))
        for module in (reads, compat):
            patch.setattr(module, "parse_readable", counting("values", module.parse_readable))
        yield seen


_GAPPED: Mapping[str, dict[str, Any]] = {
    "absent": {"shape": "absent"},
    "dual": {"shape": "dual"},
    "items": {"shape": "items"},
    "blocked": {"shape": "blocked-items"},
    "compat read": {"shape": "items", "compat_read": True},
}


@pytest.mark.parametrize("case", _GAPPED)
async def test_what_a_page_costs_is_bounded_where_messages_are_gone(
    backend: Backend, state: Any, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """However small the page: the JSON value is expanded once, and places are passed over by the hundred."""
    gone = [f"gone {number}" for number in range(1_100)]
    await _branch(backend, state, order=["a", *gone, "b", "c", *gone], **_GAPPED[case])
    b = len(gone) + 1
    for how, expected in (
        ({}, [(b + 1, "c")]),
        ({"before_ordinal": b}, [(0, "a")]),
        ({"after_ordinal": 0}, [(b, "b")]),
        ({"after_ordinal": b + 1}, []),
        ({"before_ordinal": 0}, []),
    ):
        with _counted(monkeypatch) as seen:
            assert _rows(expected) == await _page(state, limit=1, **how)
        assert int(case in ("absent", "dual", "compat read")) == seen["values"]
        assert seen["queries"] <= 20, seen


async def test_a_page_of_a_value_that_a_child_expands(
    backend: Backend, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for one above 16 MiB; a frozen prefix, then a JSON value that is the authority."""
    await _branch(backend, state, "items", compat_read=True)
    await put(backend, "plain", "absent", _ORDER)
    for module, name in ((offload, "_INLINE_BYTES"), (offload, "_PROCESS_BYTES"), (script, "_MOST_ON_A_THREAD")):
        monkeypatch.setattr(module, name, -1)
    for progression in ("order", "plain"):
        await backend.execute("UPDATE branches SET progression_id = :to WHERE id = 'long'", to=progression)
        assert _rows(_PLACED[-2:]) == await _page(backend.direct, limit=2)
        assert _rows(_PLACED[1:3]) == await _page(backend.direct, limit=2, after_ordinal=1)


@pytest.mark.parametrize("columns", [None, ("content", "id")])
@pytest.mark.parametrize(("shape", "most"), [("items", 1), ("absent", 6)])
async def test_a_page_of_which_nothing_is_gone_is_one_query(
    backend: Backend, state: Any, monkeypatch: pytest.MonkeyPatch, shape: str, most: int, columns: Any
) -> None:
    """Before cutover the search for the progression and its phase, the JSON value and one query come to six."""
    await _branch(backend, state, shape, ["a", "b", "c", "d"])
    with _counted(monkeypatch) as seen:
        found = await backend.direct.get_branch_messages("long", limit=3, columns=columns)
    assert ["b", "c", "d"] == [row["id"] for row in found]
    assert most == seen["queries"]


@pytest.mark.parametrize("shape", ["json", "dual", "items", "blocked-items"])
@pytest.mark.parametrize("compat_read", [False, True])
async def test_a_page_from_before_a_replacement_is_stale(
    backend: Backend, state: Any, shape: str, compat_read: bool
) -> None:
    """fault 31: replace between two pages; an append in between only adds."""
    await _branch(backend, state, shape, ["a", "b", "c"], compat_read=compat_read)
    page = await state.get_branch_messages("long", limit=2)
    generation = await state.get_progression_generation("order")
    assert [generation] * 2 == [row["generation"] for row in page]
    await state.append_to_progression("order", "d")
    for how, expected in (({"before_ordinal": 1}, [(0, "a")]), ({"after_ordinal": 2}, [(3, "d")])):
        assert _rows(expected) == await _page(state, limit=5, generation=generation, **how)
        assert [] == await _page(state, limit=5, generation=generation, after_ordinal=3)
    await state.set_progression("order", ["c", "b", "a"])
    for how in ({}, {"before_ordinal": 1}, {"after_ordinal": 1}, {"after_ordinal": 9}):
        with pytest.raises(StaleCursorError):
            await state.get_branch_messages("long", limit=2, generation=generation, **how)
    assert _rows([(0, "c"), (1, "b"), (2, "a")]) == await _page(state, limit=5)


@pytest.mark.parametrize("shape", ["absent", "deleting"])
async def test_a_page_without_a_generation_fits_none(backend: Backend, state: Any, shape: str) -> None:
    await conversation(backend)
    await state.insert_messages([message("a")])
    await put(backend, "order", shape, ["a"])
    await backend.execute("UPDATE branches SET progression_id = 'order' WHERE id = 'b'")
    found = await state.get_branch_messages("b", limit=5)
    assert ([None] if shape == "absent" else []) == [row["generation"] for row in found]
    for branch in ("b", "missing"):
        with pytest.raises(StaleCursorError):
            await state.get_branch_messages(branch, limit=5, generation=7)


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
    assert _rows([(0, "b"), (5, "a")]) == await _page(state, limit=5)


async def test_a_page_of_what_cannot_be_trusted_is_an_error(backend: Backend, state: Any) -> None:
    await _branch(backend, state, "blocked-none")
    with pytest.raises(ProgressionBlockedError):
        await state.get_branch_messages("long", limit=5)
    await backend.put_progression("bad", '{"a": 1}')
    await state.create_branch({"id": "b2", "session_id": "s", "progression_id": "bad"})
    with pytest.raises(MalformedCollectionError):
        await state.get_branch_messages("b2", limit=5)


async def test_values_of_a_page_are_those_of_the_message(backend: Backend, state: Any) -> None:
    """Bare numbers, lone surrogates and embeddings decode as ``get_message`` decodes them, asked for alone as well."""
    await conversation(backend, items=True)
    given = [
        message("number", content=5),
        message("fraction", content=0.1, embedding=[1.0, 2.5]),
        message("surrogate", content={"text": "\ud800"}, node_metadata={"lion_class": "pkg.Known"}),
    ]
    await backend.direct.insert_messages(given, progression_ids=["bp"])
    added = {"generation": await state.get_progression_generation("bp")}
    expected = [{**await state.get_message(one["id"]), "ordinal": place, **added} for place, one in enumerate(given)]
    assert expected == await state.get_branch_messages("b", limit=10)
    whole = tuple(stored_message())
    for asked in ((whole[-1],), ("embedding", "content"), ("node_metadata", "lion_class_str", "id"), whole[::-1]):
        found = await state.get_branch_messages("b", limit=10, columns=asked)
        assert _only((*asked, "ordinal", "generation"), expected) == [list(row.items()) for row in found]


@pytest.mark.parametrize("bad", ["role", [], ["role", "role"], ["role", "text"], ["role", 1], {"role": 1}], ids=str)
@pytest.mark.parametrize("how", [{}, {"limit": 5}], ids=str)
async def test_columns_that_there_are_not_are_refused_and_nothing_is_read(
    backend: Backend, state: Any, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], bad: Any
) -> None:
    await _branch(backend, state, "items")
    with _counted(monkeypatch) as seen, pytest.raises(InvalidInputError) as refused:
        await state.get_branch_messages("long", columns=bad, **how)
    # What is no list of texts goes no further than the types that the wire knows.
    is_typed = isinstance(bad, list) and 1 not in bad
    assert (is_typed or not isinstance(state, StateClient)) is (
        "role, lion_class, lion_class_str" in str(refused.value)
    )
    assert 0 == seen["queries"]


@pytest.mark.parametrize(
    "bad",
    [{"limit": 0}, {"limit": 1_001}, {"limit": True}, {"after_ordinal": 1}, {"before_ordinal": 1}, {"generation": 1},
     {"limit": 5, "after_ordinal": "1"}, {"limit": 5, "before_ordinal": 2**63},
     {"limit": 5, "generation": "1"}],
    ids=str,
)  # fmt: skip
async def test_a_page_that_cannot_be_is_refused(backend: Backend, state: Any, bad: dict[str, Any]) -> None:
    await _branch(backend, state, "items")
    with pytest.raises(InvalidInputError):
        await state.get_branch_messages("long", **bad)
