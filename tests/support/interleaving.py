"""Enumerates the interleavings of a few actors on one store, statement by statement, in one thread.

Every actor has a connection of its own and is stopped before each of its statements and before COMMIT; the scheduler
lets one of them go on at a time. A run is a list of choices, so that any of them can be repeated. All of them with at
most so many preemptions (another actor is chosen although the one before could go on) are found depth first; a step
that only came to wait for a lock is no preemption. From where in a transaction that holds the lock one begins to wait
for it makes no difference to anybody: of these runs the one is done in which it is right before the lock is given back,
and the first that was met, by which the others are known.

The later statements of a snapshot of an actor with ``whole_snapshots`` are no steps: nothing that others do is seen by
them, nor the other way round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from sqlalchemy import Connection

from lionstate.dialects import Dialect
from lionstate.engine import SilentObserver, StoreURL
from lionstate.engine.load import Load
from lionstate.engine.script import Deferred, Reply
from lionstate.progression.parsed import ParsedValues

__all__ = ["GIVE_UP_SECONDS", "Actor", "Explored", "Run", "Side", "Status", "Violation", "current", "explore"]

Script = Callable[[Connection], Any]
Body = Callable[["Actor"], Awaitable[Any]]

GIVE_UP_SECONDS = 20.0


class Violation(AssertionError):
    """An interleaving that must not be possible; the message tells how to repeat it."""


class Status(Enum):
    """Where an actor stands."""

    RUNNING = "running"
    READY = "ready"
    WAITING = "waiting"
    DONE = "done"


current: ContextVar[Actor | None] = ContextVar("actor", default=None)
"""Whose statement this is; None for those that are no steps."""


class Actor:
    """One program on the store, with a connection of its own: also the port that a migration service needs.

    Attributes:
        began: The step of the run in which its first statement was let go.
        ended: The step after which it was done: its outcome was acknowledged.
        result: What its body returned, or the error that ended it.
    """

    def __init__(self, side: Side, name: str, progression_id: str, body: Body, *, whole_snapshots: bool) -> None:
        self.side = side
        self.name = name
        self.progression_id = progression_id
        self.url = StoreURL.of(":memory:")
        self.dialect: Dialect = side.dialect
        self.parsed = ParsedValues(inline_bytes=None)
        self.load = Load(SilentObserver())
        self.status = Status.RUNNING
        self.began: int | None = None
        self.ended: int | None = None
        self.result: Any = None
        self.steps = 0
        self.released = False
        self.connection: Any = None
        self._whole_snapshots = whole_snapshots
        self._snapshot = 0
        self._body = body
        self._arrived = asyncio.Event()
        self._permit = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    explicit_transactions = 0

    def start(self) -> None:
        """Run up to the first statement."""
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        current.set(self)
        try:
            self.result = await self._body(self)
        except Exception as error:
            self.result = error
        self._arrive(Status.DONE)

    async def end(self) -> None:
        """Forget a run that was given up."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    def _arrive(self, status: Status) -> None:
        self.status = status
        self._arrived.set()

    async def gate(self, status: Status = Status.READY) -> None:
        """Stop until the scheduler says go."""
        if self._snapshot:
            self._snapshot += 1
            if self._snapshot > 2 and self._whole_snapshots:
                return
        self._arrive(status)
        await self._permit.wait()
        self._permit.clear()

    def go(self) -> None:
        """Let the next statement run."""
        self.steps += 1
        self.resume()
        self._permit.set()

    def resume(self) -> None:
        """A statement runs, or goes on running."""
        self._arrived.clear()
        self.status = Status.RUNNING

    async def arrived(self, seconds: float | None = None) -> bool:
        """Wait until it stands again; False after so many seconds."""
        try:
            await asyncio.wait_for(self._arrived.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def read(self, script: Script) -> Any:
        """Run a script in one snapshot."""
        self._snapshot = 1
        try:
            found = await self.side.read(self, script)
        finally:
            self._snapshot = 0
        return found.finish(found.raw) if isinstance(found, Deferred) else found

    async def write(self, script: Script) -> Any:
        """Run a script in a transaction; acknowledged when this returns."""
        found = await self.side.write(self, script)
        return found.value if isinstance(found, Reply) else found

    async def maintain(self, _name: str, script: Script, *, progressions: Sequence[str] = ()) -> Any:
        """As `write`, for a migration service."""
        return await self.write(script)


class Side(Protocol):
    """One database, as actors and the scheduler see it."""

    dialect: Dialect

    async def open(self, actor: Actor) -> None:
        """Give an actor a connection."""
        ...

    async def read(self, actor: Actor, script: Script) -> Any: ...

    async def write(self, actor: Actor, script: Script) -> Any: ...

    def give_back(self, actor: Actor) -> None:
        """Take its connection back."""
        ...

    async def settle(self, actor: Actor, actors: Sequence[Actor]) -> None:
        """Wait until an actor that runs stands again, be it because it waits for a lock of another."""
        ...

    async def released(self, waiting: Sequence[Actor], actors: Sequence[Actor]) -> None:
        """A transaction has ended: those that wait may go on."""
        ...

    async def direct(self, script: Script) -> Any:
        """Run a script in a transaction that is no step."""
        ...


_Key = tuple[tuple[int, Status], ...]
"""Where every actor stands: steps done, and whether it can go on."""


@dataclass
class Run:
    """One interleaving, step by step.

    Attributes:
        choices: Who was let go.
        enabled: Among whom.
        keys: Where all stood before the step; one more at the end.
        before: Who had done the last step that was no waiting.
        preemptions: How many there had been before the step.
        waits: Steps that came to wait for a lock.
        releases: Steps that ended a transaction which may have held one.
    """

    choices: list[int] = field(default_factory=list)
    enabled: list[list[int]] = field(default_factory=list)
    keys: list[_Key] = field(default_factory=list)
    before: list[int | None] = field(default_factory=list)
    preemptions: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    releases: list[int] = field(default_factory=list)

    def told(self, actors: Sequence[Actor]) -> str:
        """The choices, to repeat them by."""
        return f"{[actor.name for actor in actors]} as {self.choices}"

    def known_waits(self) -> set[tuple[_Key, int]]:
        """Who would come to wait where, not right before the lock is given back."""
        found: set[tuple[_Key, int]] = set()
        for step in self.waits:
            other = self.choices[step]
            release = next((later for later in self.releases if later > step), step)
            for key in self.keys[step + 1 : release]:
                found.add(((*key[:other], self.keys[step][other], *key[other + 1 :]), other))
            if release > step + 1:
                found.add((self.keys[step], other))
        return found


@dataclass
class Explored:
    """What an exploration came to.

    Attributes:
        interleavings: Runs, each another order of statements.
        states: Distinct positions of all actors that were met.
        steps: Statements and COMMITs of all runs.
        waits: Steps that came to wait for a lock.
    """

    interleavings: int = 0
    states: int = 0
    steps: int = 0
    waits: int = 0


async def _run(actors: Sequence[Actor], side: Side, prefix: Sequence[int]) -> Run:
    """Do one interleaving: the prefix, then whoever was last as long as it can."""
    run = Run()
    last: int | None = None
    preempted = 0
    for actor in actors:
        actor.start()
        await actor.arrived(GIVE_UP_SECONDS)
    while True:
        run.keys.append(tuple((actor.steps, actor.status) for actor in actors))
        enabled = [place for place, actor in enumerate(actors) if actor.status is Status.READY]
        if not enabled:
            if all(actor.status is Status.DONE for actor in actors):
                return run
            raise Violation(f"all wait for each other: {run.told(actors)}")
        step = len(run.choices)
        choice = prefix[step] if step < len(prefix) else (last if last in enabled else enabled[0])
        assert choice in enabled, f"the same choices led elsewhere: {run.told(actors)}, then {choice}"
        run.enabled.append(enabled)
        run.before.append(last)
        run.preemptions.append(preempted)
        run.choices.append(choice)
        actor = actors[choice]
        if actor.began is None:
            actor.began = step
        actor.go()
        await side.settle(actor, actors)
        if actor.status is Status.WAITING:
            run.waits.append(step)
            continue
        preempted += last in enabled and choice != last
        last = choice
        if actor.status is Status.DONE:
            actor.ended = step
        if actor.released:
            actor.released = False
            run.releases.append(step)
            await side.released([other for other in actors if other.status is Status.WAITING], actors)


async def explore(
    side: Side,
    make: Callable[[], Awaitable[list[Actor]]],
    check: Callable[[Sequence[Actor]], Awaitable[None]],
    *,
    preemptions: int,
) -> Explored:
    """Do every interleaving with at most so many preemptions, and check what is there after each.

    Args:
        make: Puts a fresh progression and its actors; called once a run.
        check: Raises what is wrong.
    """
    explored = Explored()
    states: set[_Key] = set()
    known: set[tuple[_Key, int]] = set()
    stack: list[tuple[list[int], tuple[_Key, int] | None]] = [([], None)]
    while stack:
        prefix, where = stack.pop()
        if where in known:
            continue
        actors = await make()
        for actor in actors:
            await side.open(actor)
        try:
            run = await _run(actors, side, prefix)
            try:
                await check(actors)
            except AssertionError as error:
                raise Violation(f"{run.told(actors)}: {error}") from error
        finally:
            for actor in actors:
                await actor.end()
                side.give_back(actor)
        explored.interleavings += 1
        explored.steps += len(run.choices)
        explored.waits += len(run.waits)
        states.update(run.keys)
        known |= run.known_waits()
        # The last that is pushed is the first that is done: where a lock was just taken.
        for step in reversed(range(len(prefix), len(run.choices))):
            last = run.before[step]
            for other in run.enabled[step]:
                cost = run.preemptions[step] + (last in run.enabled[step] and other != last)
                if other != run.choices[step] and cost <= preemptions:
                    stack.append(([*run.choices[:step], other], (run.keys[step], other)))
    explored.states = len(states)
    return explored
