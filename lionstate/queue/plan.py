"""The fold planner (pure): which waiting tickets run together, in what order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lionstate.engine import Unit
from lionstate.queue.ticket import Fold, Ticket

__all__ = ["Run", "plan", "unit_of"]


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


def unit_of(run: Run) -> Unit:
    """The engine's form of a run."""
    calls = [ticket.call for ticket in run.tickets]
    fold = run.fold
    if fold is None or len(calls) == 1:
        return Unit(calls)
    params = [ticket.params for ticket in run.tickets]
    return Unit(calls, lambda conn: fold(conn, params))
