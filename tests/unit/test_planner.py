"""The fold planner: order of arrival per key, cuts and barriers (design §2.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lionstate.engine import Unit
from lionstate.progression.parsed import Later, NeedsParse
from lionstate.queue.plan import Run, plan, units_of
from lionstate.queue.ticket import Fold, Ticket, TicketClass


def _fold_a(conn: Any, calls: Sequence[Mapping[str, Any]], /) -> Sequence[Any]:
    return [("a", call["n"]) for call in calls]


def _fold_b(conn: Any, calls: Sequence[Mapping[str, Any]], /) -> Sequence[Any]:
    return [("b", call["n"]) for call in calls]


_FOLDS: dict[str, Fold | None] = {"a": _fold_a, "b": _fold_b, "": None}


@pytest.fixture(scope="module", autouse=True)
def _loop() -> Iterator[None]:
    """Tickets hold futures; the planner never looks at them."""
    global _LOOP
    _LOOP = asyncio.new_event_loop()
    yield
    _LOOP.close()


_LOOP: asyncio.AbstractEventLoop


def _ticket(number: int, fold: str, keys: frozenset[str] | None) -> Ticket:
    return Ticket(
        name=fold,
        call=lambda _conn: ("alone", number),
        params={"n": number},
        fold=_FOLDS[fold],
        keys=keys,
        size_bytes=1,
        deadline=None,
        kind=TicketClass.REQUEST,
        future=_LOOP.create_future(),
        submitted_at=0.0,
    )


_requests = st.lists(
    st.tuples(
        st.sampled_from(["a", "a", "b", ""]), st.one_of(st.none(), st.frozensets(st.sampled_from("pqrs"), max_size=3))
    ),
    max_size=40,
)


def _planned(requests: Sequence[tuple[str, frozenset[str] | None]]) -> tuple[list[Ticket], list[Run]]:
    tickets = [_ticket(number, fold, keys) for number, (fold, keys) in enumerate(requests)]
    return tickets, plan(tickets)


def _conflict(one: Ticket, other: Ticket) -> bool:
    return one.keys is None or other.keys is None or not one.keys.isdisjoint(other.keys)


@given(_requests)
def test_every_ticket_runs_once(requests: Sequence[tuple[str, frozenset[str] | None]]) -> None:
    tickets, runs = _planned(requests)
    assert sorted(map(id, tickets)) == sorted(id(ticket) for run in runs for ticket in run.tickets)


@given(_requests)
def test_tickets_with_a_key_in_common_keep_their_order(requests: Sequence[tuple[str, frozenset[str] | None]]) -> None:
    tickets, runs = _planned(requests)
    place = {id(ticket): place for place, ticket in enumerate(ticket for run in runs for ticket in run.tickets)}
    for position, ticket in enumerate(tickets):
        for later in tickets[position + 1 :]:
            if _conflict(ticket, later):
                assert place[id(ticket)] < place[id(later)]


@given(_requests)
def test_a_run_is_one_fold_and_a_barrier_is_alone(requests: Sequence[tuple[str, frozenset[str] | None]]) -> None:
    _, runs = _planned(requests)
    for run in runs:
        if len(run.tickets) > 1:
            assert run.fold is not None
            assert {id(run.fold)} == {id(ticket.fold) for ticket in run.tickets}
            assert all(ticket.keys is not None for ticket in run.tickets)


def _numbers(requests: Sequence[tuple[str, str | None]]) -> list[list[int]]:
    _, runs = _planned([(fold, None if keys is None else frozenset(keys)) for fold, keys in requests])
    return [[ticket.params["n"] for ticket in run.tickets] for run in runs]


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([("a", "p"), ("a", "q"), ("a", "p")], [[0, 1, 2]]),
        ([("a", "p"), ("b", "q"), ("a", "r")], [[0, 2], [1]]),
        ([("a", "p"), ("b", "q"), ("a", "q")], [[0], [1], [2]]),
        ([("a", "p"), ("b", "q"), ("a", "q"), ("a", "r")], [[0], [1], [2, 3]]),
        ([("a", "p"), ("", None), ("a", "q")], [[0], [1], [2]]),
        ([("a", "p"), ("a", None), ("a", "q")], [[0], [1], [2]]),
        ([("", "p"), ("", "p")], [[0], [1]]),
        ([("a", "pq"), ("b", "r"), ("a", "s"), ("b", "s"), ("a", "q")], [[0, 2, 4], [1, 3]]),
        ([("a", "p"), ("b", "p"), ("a", "q"), ("b", "q"), ("a", "p")], [[0, 2], [1, 3], [4]]),
    ],
)
def test_runs(requests: Sequence[tuple[str, str | None]], expected: list[list[int]]) -> None:
    assert expected == _numbers(requests)


def _run_units(units: Sequence[Unit]) -> list[Any]:
    conn: Any = None
    return [
        value
        for unit in units
        for value in (unit.fold(conn) if unit.fold is not None else [call(conn) for call in unit.calls])
    ]


@given(_requests)
def test_units_run_each_ticket_with_its_own_parameters(requests: Sequence[tuple[str, frozenset[str] | None]]) -> None:
    _, runs = _planned(requests)
    found = _run_units(units_of(runs))
    assert [ticket.params["n"] for run in runs for ticket in run.tickets] == [number for _, number in found]


def test_calls_behind_a_parse_go_round_with_it() -> None:
    """And only those: other keys are decided now."""
    requests = [("", "p"), ("a", "p"), ("a", "q"), ("", "pq"), ("b", "q"), ("", "r")]
    tickets, runs = _planned([(fold, frozenset(keys)) for fold, keys in requests])
    need = NeedsParse("p", "[]")
    tickets[0].call = lambda _conn: need
    by_number = dict(
        zip([ticket.params["n"] for run in runs for ticket in run.tickets], _run_units(units_of(runs)), strict=True)
    )
    assert need is by_number[0]
    assert {1, 3, 4} == {number for number, value in by_number.items() if isinstance(value, Later)}
    assert {2, 5} == {number for number, value in by_number.items() if isinstance(value, tuple)}
