"""The fold planner (pure): which waiting tickets run together, in what order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from lionstate.engine import Call, Unit
from lionstate.errors import BackendError
from lionstate.progression.parsed import Later, NeedsParse
from lionstate.queue.ticket import Fold, Ticket

__all__ = ["LeftBehind", "Run", "arranged", "plan", "units_of"]


@dataclass(slots=True)
class Run:
    """Tickets that run next to each other: one fold, or a single ticket."""

    fold: Fold | None
    tickets: list[Ticket] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    barrier: bool = False


def plan(tickets: Sequence[Ticket]) -> list[Run]:
    """Arrange tickets so that the order of arrival per key is kept.

    A ticket joins an earlier run of its fold unless a later run touches one of its keys; an operation with unknown
    keys is a barrier. Cost: tickets times the runs behind the one that is joined.

    Contract: design §2.2.
    """
    runs: list[Run] = []
    open_runs: dict[int, int] = {}
    for ticket in tickets:
        if ticket.keys is None:
            runs.append(Run(None, [ticket], barrier=True))
            open_runs.clear()
            continue
        position = open_runs.get(id(ticket.fold)) if ticket.fold is not None else None
        if position is not None and any(
            later.barrier or not later.keys.isdisjoint(ticket.keys) for later in runs[position + 1 :]
        ):
            position = None
        if position is None:
            runs.append(Run(ticket.fold))
            position = len(runs) - 1
            if ticket.fold is not None:
                open_runs[id(ticket.fold)] = position
        runs[position].tickets.append(ticket)
        runs[position].keys |= ticket.keys
    return runs


def arranged(tickets: Sequence[Ticket]) -> tuple[Sequence[Ticket], Sequence[Unit]]:
    """Tickets in the order in which a batch runs them, and the engine's form of it."""
    if len(tickets) == 1:
        (ticket,) = tickets
        return tickets, (Unit((ticket.call,), locks_first=ticket.fold is None and len(ticket.progressions) > 1),)
    runs = plan(tickets)
    return [ticket for run in runs for ticket in run.tickets], units_of(runs)


class LeftBehind:
    """The keys of the calls of a running batch that must go round, so that later ones on them go round too."""

    def __init__(self) -> None:
        """Nothing is left behind."""
        self._keys: set[str] = set()
        self._everything = False

    def clear(self) -> None:
        """A batch may run again: its first call starts afresh."""
        self._keys.clear()
        self._everything = False

    def stops(self, ticket: Ticket) -> bool:
        """Whether an earlier call that this one may depend on was left behind."""
        if ticket.keys is None:
            return self._everything or bool(self._keys)
        return self._everything or not self._keys.isdisjoint(ticket.keys)

    def note(self, ticket: Ticket, value: Any) -> Any:
        """Take down a call that goes round; returns its value."""
        if isinstance(value, (NeedsParse, Later)):
            if ticket.keys is None:
                self._everything = True
            else:
                self._keys |= ticket.keys
        return value


def units_of(runs: Sequence[Run]) -> list[Unit]:
    """The engine's form of a batch: a call behind one that goes round on the same key goes round as well."""
    left = LeftBehind()
    return [_unit_of(run, left, is_first=position == 0) for position, run in enumerate(runs)]


def _unit_of(run: Run, left: LeftBehind, *, is_first: bool) -> Unit:
    tickets = run.tickets
    calls = [_guarded(ticket, left, is_first=is_first and place == 0) for place, ticket in enumerate(tickets)]
    fold = run.fold
    if fold is None or len(tickets) == 1:
        return Unit(calls, locks_first=fold is None and any(len(ticket.progressions) > 1 for ticket in tickets))

    def together(conn: Connection) -> list[Any]:
        if is_first:
            left.clear()
        going = []
        for ticket in tickets:
            if left.stops(ticket):
                # At once: a later call of this very fold may share another key with it.
                left.note(ticket, Later())
            else:
                going.append(ticket)
        values = fold(conn, [ticket.params for ticket in going]) if going else ()
        if len(values) != len(going):
            raise BackendError(f"a fold of {len(going)} calls returned {len(values)} values")
        found = iter(values)
        ran = set(map(id, going))
        return [left.note(ticket, next(found) if id(ticket) in ran else Later()) for ticket in tickets]

    return Unit(calls, together)


def _guarded(ticket: Ticket, left: LeftBehind, *, is_first: bool) -> Call:
    def call(conn: Connection) -> Any:
        if is_first:
            left.clear()
        return left.note(ticket, Later() if left.stops(ticket) else ticket.call(conn))

    return call
