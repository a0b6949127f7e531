"""Which tickets run together, and which go round behind one that waits for a parse (design §2.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from sqlalchemy import Connection

from lionstate.engine import Unit
from lionstate.progression.parsed import Later, NeedsParse
from lionstate.queue.plan import plan, units_of
from lionstate.queue.ticket import Ticket, TicketClass

CONN = cast(Connection, None)
NEED = NeedsParse("p", "[]")


class _Fold:
    """Answers each call with its ``value`` and writes down what it was given."""

    def __init__(self) -> None:
        self.ran: list[list[Any]] = []

    def __call__(self, conn: Connection, calls: Sequence[Mapping[str, Any]], /) -> Sequence[Any]:
        self.ran.append([call["name"] for call in calls])
        return [call["value"] for call in calls]


def _ticket(name: str, keys: Sequence[str] | None, value: Any = None, fold: _Fold | None = None) -> Ticket:
    found = frozenset(keys) if keys is not None else None
    params = {"name": name, "value": value}
    future: asyncio.Future[Any] = cast("asyncio.Future[Any]", None)
    call = (lambda conn: fold(conn, [params])[0]) if fold else (lambda conn: value)
    return Ticket(name, call, params, fold, found, 1, None, TicketClass.REQUEST, future, 0.0)


def _results(units: Sequence[Unit]) -> list[Any]:
    return [
        value
        for unit in units
        for value in (unit.fold(CONN) if unit.fold is not None else [call(CONN) for call in unit.calls])
    ]


def test_a_call_behind_one_that_goes_round_goes_round() -> None:
    tickets = [_ticket("a", ["p:1"], NEED), _ticket("b", ["p:1"], "b"), _ticket("c", ["p:2"], "c")]
    assert [NEED, Later(), "c"] == _results(units_of(plan(tickets)))


def test_going_round_is_handed_on() -> None:
    """b waits for a on p:1, so c waits for b on p:2."""
    tickets = [_ticket("a", ["p:1"], NEED), _ticket("b", ["p:1", "p:2"], "b"), _ticket("c", ["p:2"], "c")]
    assert [NEED, Later(), Later()] == _results(units_of(plan(tickets)))


def test_a_barrier_waits_and_everything_behind_it() -> None:
    tickets = [_ticket("a", ["p:1"], NEED), _ticket("all", None, "all"), _ticket("c", ["p:9"], "c")]
    assert [NEED, Later(), Later()] == _results(units_of(plan(tickets)))


def test_a_fold_runs_what_is_not_behind() -> None:
    fold = _Fold()
    tickets = [
        _ticket("a", ["p:1"], NEED),
        _ticket("b", ["p:1"], "b", fold),
        _ticket("c", ["p:2"], NEED, fold),
        _ticket("d", ["p:3"], "d", fold),
        _ticket("e", ["p:2"], "e"),
    ]
    assert [NEED, Later(), NEED, "d", Later()] == _results(units_of(plan(tickets)))
    assert [["c", "d"]] == fold.ran


def test_going_round_is_handed_on_within_a_fold() -> None:
    """b waits for a on p:1 and is not given to the fold; c of the same fold waits for b on p:2."""
    fold = _Fold()
    tickets = [
        _ticket("a", ["p:1"], NEED),
        _ticket("b", ["p:1", "p:2"], "b", fold),
        _ticket("c", ["p:2", "p:3"], "c", fold),
        _ticket("d", ["p:4"], "d", fold),
    ]
    units = units_of(plan(tickets))
    expected = [NEED, Later(), Later(), "d"]
    assert expected == _results(units)
    assert [["d"]] == fold.ran
    assert expected == [call(CONN) for unit in units for call in unit.calls]


def test_a_fold_with_nothing_to_run_is_not_called() -> None:
    fold = _Fold()
    tickets = [_ticket("a", ["p:1"], NEED), _ticket("b", ["p:1"], "b", fold), _ticket("c", ["p:1"], "c", fold)]
    assert [NEED, Later(), Later()] == _results(units_of(plan(tickets)))
    assert [] == fold.ran


def test_a_second_run_of_the_batch_starts_afresh() -> None:
    """A script may run twice: what the first run left behind is forgotten, folded or one by one."""
    fold = _Fold()
    for first in ([_ticket("a", ["p:1"], "a", fold), _ticket("b", ["p:2"], NEED, fold)], [_ticket("a", ["p:2"], NEED)]):
        units = units_of(plan([*first, _ticket("c", ["p:2"], "c")]))
        expected = [*(ticket.params["value"] for ticket in first), Later()]
        assert expected == _results(units)
        assert expected == _results(units)
        assert expected == [call(CONN) for unit in units for call in unit.calls]


def test_a_call_on_several_progressions_asks_for_its_locks_first() -> None:
    (alone,) = units_of(plan([_ticket("a", ["p:1"])]))
    (pair,) = units_of(plan([_ticket("b", ["p:1", "p:2", "s:1"])]))
    assert (False, True) == (alone.locks_first, pair.locks_first)
