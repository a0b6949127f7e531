"""The write queue on a writer that the test drives: bounds, order, deadlines, classes, drain (design §2.2)."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lionstate.engine import Batch, Ended, NotWritten, Outcome, Refused, Reply, SilentObserver, Unit, Unknown, Written
from lionstate.errors import (
    BackendBusyError,
    BackendError,
    ClosedError,
    DeadlineExceededError,
    InvalidInputError,
    OverloadedError,
)
from lionstate.operations.table import estimated_size
from lionstate.progression.parsed import Later, NeedsParse, ParsedValues
from lionstate.queue import QueueLimits, Ticket, TicketClass, WriteQueue
from tests.support.eventually import eventually


class _Writer:
    """Runs a batch when the test says so; a call's value becomes its outcome."""

    def __init__(self, lanes: int = 1, *, concurrent: bool = False) -> None:
        self.lanes = lanes
        self.dialect: Any = SimpleNamespace(
            capabilities=SimpleNamespace(concurrent_writers=concurrent),
            existing_progressions=lambda _conn, ids: set(ids),
            free_progressions=lambda _conn, ids: set(ids) - self.locked,
            lock_progressions=lambda _conn, ids: {},
        )
        self.locked: set[str] = set()
        self.started: list[tuple[Batch, asyncio.Future[list[Outcome]]]] = []
        self.starts = asyncio.Event()
        self.taken: dict[int, Sequence[Unit]] = {}
        self.batches: list[list[Any]] = []
        self.refuse: Exception | None = None

    def start(self, batch: Batch, ended: Ended) -> None:
        if self.refuse is not None:
            raise self.refuse

        def tell(future: asyncio.Future[list[Outcome]]) -> None:
            error = future.exception()
            ended(None if error else future.result(), error)

        self._started(batch).add_done_callback(tell)

    async def run(self, batch: Batch) -> list[Outcome]:
        return await self._started(batch)

    def _started(self, batch: Batch) -> asyncio.Future[list[Outcome]]:
        future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        self.started.append((batch, future))
        self.starts.set()
        return future

    def begin(self, position: int = 0) -> None:
        """Hold the lock for the batch at ``position``: from now on its tickets are taken."""
        batch, _ = self.started[position]
        self.taken[id(batch)] = batch.take()

    async def end(self, position: int = 0, outcome: Callable[[Any], Outcome] | None = None) -> list[Any]:
        """Run and end the batch at ``position``; returns the values that its calls had."""
        batch, future = self.started.pop(position)
        conn: Any = None
        values: list[Any] = []
        for unit in self.taken.pop(id(batch), None) or batch.take():
            values += unit.fold(conn) if unit.fold is not None else [call(conn) for call in unit.calls]
        make = outcome or (lambda value: NotWritten(value.error) if isinstance(value, Refused) else Written(value))
        future.set_result([make(value) for value in values])
        self.batches.append(values)
        await _settle()
        return values

    async def end_all(self) -> None:
        """Until nothing is started any more."""
        while self.started:
            await self.end()


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class _Room:
    """A queue and its writer, and tickets by name."""

    def __init__(self, lanes: int = 1, *, concurrent: bool = False, observer: Any = None, **limits: Any) -> None:
        self.writer = _Writer(lanes, concurrent=concurrent)
        self.parsed = ParsedValues()
        writer: Any = self.writer
        self.queue = WriteQueue(writer, QueueLimits(**limits), observer or SilentObserver(), self.parsed)

    def ticket(self, value: Any, keys: str | None = "", **fields: Any) -> Ticket:
        """A ticket whose call returns ``value``, or what ``value()`` returns."""

        def call(_conn: Any) -> Any:
            return value() if callable(value) else value

        made = Ticket(
            name="op",
            call=call,
            params={},
            fold=None,
            keys=None if keys is None else frozenset(f"p:{key}" for key in keys),
            size_bytes=1,
            deadline=None,
            kind=TicketClass.REQUEST,
            future=asyncio.get_running_loop().create_future(),
            submitted_at=time.monotonic(),
        )
        return dataclasses.replace(made, **fields)

    def submit(self, value: Any, keys: str | None = "", **fields: Any) -> Ticket:
        """Enter one."""
        ticket = self.ticket(value, keys, **fields)
        self.queue.submit(ticket)
        return ticket

    def submit_maintenance(self, value: Any, keys: str | None = "") -> Ticket:
        """Enter one of the other class."""
        return self.submit(value, keys, kind=TicketClass.MAINTENANCE)


async def _value(ticket: Ticket) -> Any:
    outcome = await asyncio.wait_for(ticket.future, 5)
    assert isinstance(outcome, Written), outcome
    return outcome.value


async def _code(ticket: Ticket) -> str:
    outcome = await asyncio.wait_for(ticket.future, 5)
    assert not isinstance(outcome, Written), outcome
    return outcome.error.code


async def test_what_waits_is_one_batch() -> None:
    room = _Room()
    first = room.submit("first")
    rest = [room.submit(number) for number in range(5)]
    assert ["first"] == await room.writer.end()
    assert [0, 1, 2, 3, 4] == await room.writer.end()
    assert "first" == await _value(first)
    assert [0, 1, 2, 3, 4] == [await _value(ticket) for ticket in rest]
    assert (0, 0) == (room.queue.depth, room.queue.size_bytes)


async def test_a_full_queue_refuses_at_the_door() -> None:
    room = _Room(max_operations=3)
    room.submit("running")
    waiting = [room.submit(number) for number in range(3)]
    with pytest.raises(OverloadedError) as caught:
        room.submit("one too many")
    assert caught.value.retry_after_seconds is not None
    assert caught.value.retry_after_seconds > 0
    await room.writer.end_all()
    assert [0, 1, 2] == [await _value(ticket) for ticket in waiting]
    room.submit("fits again")


async def test_the_queue_is_bounded_in_bytes_too() -> None:
    room = _Room(max_bytes=100)
    room.submit("running")
    room.submit("a", size_bytes=60)
    with pytest.raises(OverloadedError):
        room.submit("b", size_bytes=41)
    room.submit("c", size_bytes=40)
    assert 100 == room.queue.size_bytes
    await room.writer.end_all()
    assert 0 == room.queue.size_bytes


async def test_one_ticket_over_the_bound_runs_when_nothing_waits() -> None:
    """It could never run otherwise; several at once are refused."""
    room = _Room(max_bytes=100)
    huge = room.submit("huge", size_bytes=1_000)
    await room.writer.end()
    assert "huge" == await _value(huge)
    with pytest.raises(OverloadedError):
        room.queue.submit_all([room.ticket("a", size_bytes=60), room.ticket("b", size_bytes=60)])


async def test_tickets_entered_together_are_entered_all_or_none() -> None:
    room = _Room(max_operations=3)
    room.submit("running")
    room.submit("a")
    with pytest.raises(OverloadedError):
        room.queue.submit_all([room.ticket(number) for number in range(3)])
    assert 1 == room.queue.depth
    room.queue.submit_all([room.ticket(number) for number in range(2)])
    await room.writer.end()
    assert ["a", 0, 1] == await room.writer.end()
    room.queue.submit_all([])


async def test_callers_that_went_away_make_room() -> None:
    room = _Room(max_operations=2)
    room.submit("running")
    gone = [room.submit(number) for number in range(2)]
    for ticket in gone:
        ticket.future.cancel()
    kept = room.submit("kept")
    await room.writer.end_all()
    assert "kept" == await _value(kept)
    assert [["running"], ["kept"]] == room.writer.batches


async def test_a_batch_ends_at_its_bounds() -> None:
    room = _Room(max_batch_operations=3, max_batch_bytes=10)
    room.submit("running")
    for number in range(4):
        room.submit(number)
    for name in "ab":
        room.submit(name, size_bytes=6)
    await room.writer.end_all()
    assert [["running"], [0, 1, 2], [3, "a"], ["b"]] == room.writer.batches


async def test_a_batch_ends_at_its_estimated_hold() -> None:
    """What took long alone runs alone."""
    room = _Room(max_hold_seconds=0.02)
    room.submit(lambda: time.sleep(0.05), name="slow")
    await room.writer.end()
    room.submit("running")
    for name in ("slow", "quick", "quick", "slow", "quick"):
        room.submit(name, name=name)
    await room.writer.end_all()
    assert [["slow"], ["quick", "quick"], ["slow"], ["quick"]] == room.writer.batches[2:]


async def test_a_deadline_that_passed_before_it_was_taken_is_not_written() -> None:
    """Waiting in the queue, and waiting for the writer's lock: answered at the deadline, and never run."""
    room = _Room()
    running = room.submit("running", deadline=time.monotonic() + 0.1)
    waiting = room.submit("waiting", deadline=time.monotonic() + 0.1)
    patient = room.submit("patient")
    assert ["deadline_exceeded", "deadline_exceeded"] == [await _code(running), await _code(waiting)]
    assert not room.writer.started[0][0].wanted()
    await room.writer.end_all()
    assert "patient" == await _value(patient)
    assert [[], ["patient"]] == room.writer.batches


async def test_a_deadline_that_passes_while_it_runs_changes_nothing() -> None:
    room = _Room()
    ticket = room.submit("taken", deadline=time.monotonic() + 0.05)
    batch, future = room.writer.started.pop()
    assert 1 == len(batch.take())
    await asyncio.sleep(0.15)
    assert not ticket.future.done()
    future.set_result([Written("taken")])
    assert "taken" == await _value(ticket)


async def test_a_cancelled_caller_drops_its_ticket() -> None:
    room = _Room()
    room.submit("running")
    tickets = [room.submit(number) for number in range(3)]
    tickets[1].future.cancel()
    await room.writer.end_all()
    assert [["running"], [0, 2]] == room.writer.batches


async def test_a_key_waits_for_its_lane_and_others_do_not() -> None:
    room = _Room(lanes=2)
    room.submit("p1", "p")
    room.submit("p2", "p")
    room.submit("q1", "q")
    room.submit("pq", "pq")
    room.submit("q2", "q")
    assert 2 == len(room.writer.started)
    assert ["q1"] == await room.writer.end(1)
    # p2 waits for p1, pq for p2, q2 for pq.
    assert 1 == len(room.writer.started)
    await room.writer.end_all()
    assert [["q1"], ["p1"], ["p2", "pq", "q2"]] == room.writer.batches


async def test_few_calls_take_no_lane_of_their_own_beside_many() -> None:
    """They would end at once and never join the others again."""
    room = _Room(lanes=3)
    room.queue.submit_all([room.ticket(name, name) for name in "abcd"])
    for name in "xyz":
        room.submit(name, name)
    assert 1 == len(room.writer.started)
    room.submit("w", "w")
    assert 2 == len(room.writer.started)
    await room.writer.end_all()
    assert [["a", "b", "c", "d"], ["x", "y", "z", "w"]] == room.writer.batches


async def test_a_call_beside_a_stuck_batch_waits_for_two_transactions_at_most() -> None:
    room = _Room(lanes=2)
    room.queue.submit_all([room.ticket(name, name) for name in "abcd"])
    room.submit("x", "x")
    assert 1 == len(room.writer.started)
    room.writer.starts.clear()
    await asyncio.wait_for(room.writer.starts.wait(), 5)
    assert ["x"] == await room.writer.end(1)
    await room.writer.end_all()


async def test_unknown_keys_wait_for_everything_and_everything_waits_for_them() -> None:
    room = _Room(lanes=3)
    room.submit("p1", "p")
    room.submit("all", None)
    room.submit("q1", "q")
    assert 1 == len(room.writer.started)
    await room.writer.end()
    assert 1 == len(room.writer.started)
    await room.writer.end_all()
    assert ["p1", "all", "q1"] == [value for batch in room.writer.batches for value in batch]


async def test_keys_of_a_ticket_that_goes_round_stay_held() -> None:
    """Another ticket of the same key and batch has ended: that must not let a third one overtake."""
    room = _Room(lanes=2)
    need = NeedsParse("p", "[]")
    room.submit("running", "p")
    room.submit("p1", "p")
    answers = iter([need, "p2"])
    room.submit(lambda: next(answers), "p")
    room.submit("p3", "p")
    await room.writer.end()
    batch, future = room.writer.started.pop()
    values = [call(None) for unit in batch.take() for call in unit.calls]  # type: ignore[arg-type]
    assert ["p1", need] == values[:2]
    assert isinstance(values[2], Later)
    future.set_result([Written(value) for value in values])
    late = room.submit("p4", "p")
    await _settle()
    await room.writer.end_all()
    assert "p4" == await _value(late)
    assert ["p2", "p3", "p4"] == [value for values in room.writer.batches[1:] for value in values]


async def test_a_call_alone_waits_for_one_of_its_key_that_goes_round(monkeypatch: pytest.MonkeyPatch) -> None:
    room, parsed = _Room(), asyncio.Event()

    async def learn(need: Any, run: Any) -> None:
        await parsed.wait()

    monkeypatch.setattr(room.parsed, "learn", learn)
    answers = iter((NeedsParse("p", "[]"), "first"))
    first = room.submit(lambda: next(answers), "p")
    await room.writer.end()
    second = room.submit("second", "p")
    await _settle()
    assert not room.writer.started
    parsed.set()
    await eventually(lambda: room.writer.started)
    await room.writer.end_all()
    assert ("first", "second") == (await _value(first), await _value(second))
    assert ["first", "second"] == [value for values in room.writer.batches[1:] for value in values]


async def test_a_parse_that_fails_answers_its_tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hangs, and the keys are free again."""
    room = _Room()

    async def broken(*_args: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(room.parsed, "learn", broken)
    ticket = room.submit(NeedsParse("p", "[]"), "p")
    await room.writer.end()
    assert "backend" == await _code(ticket)
    after = room.submit("after", "p")
    await room.writer.end()
    assert "after" == await _value(after)


async def test_a_value_that_changes_at_every_parse_ends_busy() -> None:
    room = _Room()
    ticket = room.submit(lambda: NeedsParse("p", "[]"), "p")
    for _ in range(40):
        if ticket.future.done():
            break
        await room.writer.end()
    assert "backend_busy" == await _code(ticket)


async def test_effects_follow_the_commit_and_their_errors_do_not_reach_callers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    room = _Room()
    seen: list[Any] = []

    def fail() -> None:
        raise RuntimeError("a defect")

    room.queue.on_commit += [lambda tickets: fail(), lambda tickets: seen.append(len(tickets))]
    first = room.submit(Reply("a", lambda: seen.append("a")))
    await room.writer.end()
    second = room.submit(Reply("b", fail))
    third = room.submit(Refused(InvalidInputError()))
    await room.writer.end_all()
    assert ("a", "b") == (await _value(first), await _value(second))
    assert "invalid_input" == await _code(third)
    assert ["a", 1, 1] == seen
    assert 3 == len(caplog.records)


@pytest.mark.parametrize("outcome", [NotWritten(BackendError()), Unknown()])
async def test_effects_do_not_follow_what_is_not_known_to_be_written(outcome: Outcome) -> None:
    room = _Room()
    seen: list[str] = []
    ticket = room.submit(Reply("a", lambda: seen.append("a")))
    await room.writer.end(outcome=lambda _: outcome)
    assert outcome.error.code == await _code(ticket)  # type: ignore[union-attr]
    assert [] == seen


async def test_a_writer_that_dies_in_the_middle_leaves_unknown() -> None:
    room = _Room()
    taken = room.submit("taken", "p")
    batch, future = room.writer.started.pop()
    batch.take()
    future.set_exception(KeyboardInterrupt())
    assert "outcome_unknown" == await _code(taken)
    again = room.submit("again", "p")
    await room.writer.end()
    assert "again" == await _value(again)


async def test_a_writer_with_too_few_outcomes_leaves_unknown_and_the_queue_usable() -> None:
    """A defect of ours must not hang a caller or keep a key."""
    room = _Room()
    tickets = [room.submit("a", "p")]
    loop = asyncio.get_running_loop()
    caught: list[Any] = []
    loop.set_exception_handler(lambda _loop, context: caught.append(context["exception"]))
    try:
        batch, future = room.writer.started.pop()
        batch.take()
        future.set_result([])
        assert ["outcome_unknown"] == [await _code(ticket) for ticket in tickets]
    finally:
        loop.set_exception_handler(None)
    assert [ValueError] == [type(error) for error in caught]
    again = room.submit("again", "p")
    await room.writer.end()
    assert "again" == await _value(again)


async def test_a_writer_that_refuses_to_start_writes_nothing() -> None:
    room = _Room()
    room.writer.refuse = ClosedError()
    assert "closed" == await _code(room.submit("a", "p"))
    room.writer.refuse = None
    room.submit("b", "p")
    assert ["b"] == await room.writer.end()


async def test_maintenance_is_not_starved_by_requests() -> None:
    room = _Room(maintenance_after_batches=3, maintenance_after_seconds=60)
    room.submit("r0")
    room.submit_maintenance("m0")
    order: list[Any] = []
    for number in range(1, 8):
        room.submit(f"r{number}")
        order += await room.writer.end()
    assert ["r0", "r1", "r2", "m0"] == order[:4]


async def test_maintenance_that_waited_long_enough_goes_first() -> None:
    room = _Room(maintenance_after_batches=1_000, maintenance_after_seconds=0.05)
    room.submit("r0")
    room.submit_maintenance("m0")
    room.submit("r1")
    await asyncio.sleep(0.06)
    await room.writer.end_all()
    assert [["r0"], ["m0"], ["r1"]] == room.writer.batches


async def test_requests_are_not_starved_by_maintenance() -> None:
    """However much maintenance is due, it is one ticket, then a batch of requests."""
    room = _Room(maintenance_after_batches=0, maintenance_after_seconds=0)
    room.submit("r0")
    for number in range(3):
        room.submit_maintenance(f"m{number}")
    for number in range(1, 4):
        room.submit(f"r{number}")
    await room.writer.end_all()
    assert [["r0"], ["m0"], ["r1", "r2", "r3"], ["m1"], ["m2"]] == room.writer.batches


async def test_a_request_alone_takes_a_turn_as_well() -> None:
    room = _Room(maintenance_after_batches=0, maintenance_after_seconds=0)
    room.submit_maintenance("m0")
    await room.writer.end()
    room.submit("r0")
    room.submit_maintenance("m1")
    room.submit("r1")
    await room.writer.end_all()
    assert [["m0"], ["r0"], ["m1"], ["r1"]] == room.writer.batches


async def test_maintenance_alone_takes_a_turn_as_well() -> None:
    room = _Room(maintenance_after_batches=0, maintenance_after_seconds=0)
    room.submit_maintenance("m0")
    room.submit_maintenance("m1")
    room.submit("r0")
    await room.writer.end_all()
    assert [["m0"], ["r0"], ["m1"]] == room.writer.batches


async def test_maintenance_alone_runs_at_once() -> None:
    room = _Room(maintenance_after_batches=1_000, maintenance_after_seconds=60)
    for number in range(3):
        room.submit_maintenance(number)
    await room.writer.end_all()
    assert [[0], [1], [2]] == room.writer.batches


def _busy(_value: Any) -> Outcome:
    return NotWritten(BackendBusyError())


async def test_a_batch_that_gave_way_is_split() -> None:
    """PostgreSQL: the free tickets run together again, the locked ones alone, the order of a key kept."""
    room = _Room(concurrent=True)
    room.submit("running")
    tickets = [room.submit(name, name[0]) for name in ("p1", "q1", "r1", "q2")]
    await room.writer.end()
    room.writer.locked = {"q"}
    await room.writer.end(outcome=_busy)
    await room.writer.end()  # the probe
    room.writer.batches.clear()
    await room.writer.end_all()
    assert [["p1"], ["q1"], ["r1"], ["q2"]] == room.writer.batches
    assert ["p1", "q1", "r1", "q2"] == [await _value(ticket) for ticket in tickets]


async def test_free_tickets_of_a_batch_that_gave_way_run_together() -> None:
    room = _Room(concurrent=True)
    room.submit("running")
    for name in ("p1", "r1", "q1"):
        room.submit(name, name[0])
    await room.writer.end()
    room.writer.locked = {"q"}
    await room.writer.end(outcome=_busy)
    await room.writer.end()
    room.writer.batches.clear()
    await room.writer.end_all()
    assert [["p1", "r1"], ["q1"]] == room.writer.batches


async def test_rows_that_stay_locked_end_busy_and_sqlite_does_not_go_round() -> None:
    room = _Room(concurrent=True, busy_wait_seconds=0.1)
    ticket = room.submit("p1", "p")
    rounds = 0
    while not ticket.future.done():
        if room.writer.started:
            await room.writer.end(outcome=_busy)
            rounds += 1
        await asyncio.sleep(0.005)
    assert rounds > 2
    assert "backend_busy" == await _code(ticket)
    room = _Room(concurrent=False)
    ticket = room.submit("p1", "p")
    await room.writer.end(outcome=_busy)
    assert "backend_busy" == await _code(ticket)


async def test_a_probe_that_fails_answers_its_tickets() -> None:
    room = _Room(concurrent=True)
    room.submit("running")
    tickets = [room.submit(name, name[0]) for name in ("p1", "q1")]
    await room.writer.end()
    await room.writer.end(outcome=_busy)
    _, future = room.writer.started.pop()
    future.set_exception(RuntimeError("gone"))
    assert ["backend", "backend"] == [await _code(ticket) for ticket in tickets]
    again = room.submit("again", "pq")
    await room.writer.end()
    assert "again" == await _value(again)


async def test_a_deadline_ends_going_round() -> None:
    room = _Room(concurrent=True)
    ticket = room.submit("p1", "p", deadline=time.monotonic() + 0.1)
    while not ticket.future.done():
        if room.writer.started:
            await room.writer.end(outcome=_busy)
        await asyncio.sleep(0.005)
    assert await _code(ticket) in ("deadline_exceeded", "backend_busy")


async def test_drain_finishes_what_waits_and_refuses_what_comes() -> None:
    room = _Room()
    tickets = [room.submit(number) for number in range(3)]
    draining = asyncio.ensure_future(room.queue.drain(5))
    await asyncio.sleep(0)
    with pytest.raises(ClosedError):
        room.submit("late")
    await room.writer.end_all()
    assert 0 == await draining
    assert [0, 1, 2] == [await _value(ticket) for ticket in tickets]


async def test_drain_refuses_what_is_left_when_its_budget_ends() -> None:
    """What runs is answered when it ends; what goes round by then is refused, not lost."""
    room = _Room()
    running = room.submit(lambda: NeedsParse("p", "[]"), "p")
    left = [room.submit(number) for number in range(3)]
    gone = room.submit("gone")
    gone.future.cancel()
    room.writer.begin()
    assert 3 == await room.queue.drain(0.05)
    assert ["closed"] * 3 == [await _code(ticket) for ticket in left]
    assert not running.future.done()
    await room.writer.end()
    assert "closed" == await _code(running)
    assert [] == room.writer.started


async def test_drain_of_an_idle_queue_is_immediate() -> None:
    assert 0 == await _Room().queue.drain(0)


async def test_every_outcome_is_counted_once() -> None:
    counted: list[tuple[str, str]] = []

    class Observer(SilentObserver):
        def operation(self, name: str, outcome: str, count: int = 1) -> None:
            counted.extend([(name, outcome)] * count)

    room = _Room(observer=Observer())
    room.submit("a", name="a")
    await room.writer.end()
    room.submit(Refused(InvalidInputError()), name="b")
    await room.writer.end()
    room.submit("c", name="c")
    await room.writer.end(outcome=lambda _: Unknown())
    late = room.submit("d", name="d", deadline=time.monotonic())
    with pytest.raises(DeadlineExceededError):
        raise (await late.future).error
    await room.writer.end()
    expected = [("a", "written"), ("b", "not_written"), ("c", "unknown"), ("d", "deadline_exceeded")]
    await eventually(lambda: len(counted) >= len(expected))
    assert expected == sorted(counted)
    await room.queue.drain(1)
    assert len(expected) == len(counted)


async def test_a_lone_call_that_went_round_is_counted_while_nothing_else_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: nothing told of it before the next call, because no sweep was due while it was parsed for."""
    counted: list[str] = []

    class Observer(SilentObserver):
        def operation(self, name: str, outcome: str, count: int = 1) -> None:
            counted.append(outcome)

    room = _Room(observer=Observer())

    async def slowly(need: Any, run: Any) -> None:
        await asyncio.sleep(0.12)

    monkeypatch.setattr(room.parsed, "learn", slowly)
    answers = iter((NeedsParse("x", "[]"), None))
    ticket = room.submit(lambda: next(answers), "x")
    await room.writer.end()
    await eventually(lambda: room.writer.started)
    await room.writer.end()
    assert None is await _value(ticket)
    await eventually(lambda: counted)
    assert ["written"] == counted


async def test_an_observer_that_fails_stands_in_nobodys_way() -> None:
    class Observer(SilentObserver):
        def batch(self, operations: int) -> None:
            raise RuntimeError("the observer's matter")

    room, heard = _Room(observer=Observer()), []
    room.queue.on_commit.append(lambda tickets: heard.extend(tickets))
    for number in range(40):
        ticket = room.submit(number)
        await room.writer.end()
        assert number == await _value(ticket)
    assert 40 == len(heard)
    assert 0 == await room.queue.drain(1)


async def test_a_storm_keeps_the_order_of_every_key() -> None:
    """Random keys and lanes, parses and locks: each key sees its tickets in the order of their arrival."""
    import random

    chance = random.Random(3)
    room = _Room(lanes=3, concurrent=True, busy_wait_seconds=60)
    written: list[tuple[int, str]] = []
    tickets = []
    for number in range(300):
        keys = "".join(chance.sample("pqrstuv", chance.choice([1, 1, 1, 2])))
        parses = iter([NeedsParse(keys[0], "[]")] * chance.choice([0, 0, 0, 1]))

        def call(number: int = number, keys: str = keys, parses: Any = parses) -> Any:
            need = next(parses, None)
            return need if need is not None else (number, keys)

        tickets.append(room.submit(call, keys if number % 37 else None))
        if chance.random() < 0.3 and room.writer.started:
            await _one_step(room, chance, written)
    while not all(ticket.future.done() for ticket in tickets):
        await _one_step(room, chance, written)
    assert 300 == len(written)
    for key in "pqrstuv":
        numbers = [number for number, keys in written if key in keys]
        assert sorted(numbers) == numbers


async def _one_step(room: _Room, chance: Any, written: list[tuple[int, str]]) -> None:
    if not room.writer.started:
        await asyncio.sleep(0.005)
        return
    position = chance.randrange(len(room.writer.started))
    if chance.random() < 0.2 and hasattr(room.writer.started[position][0], "taken"):
        room.writer.locked = set(chance.sample("pqrstuv", 2))
        batch, future = room.writer.started.pop(position)
        future.set_result([_busy(None) for unit in batch.take() for _ in unit.calls])
        await _settle()
        return
    values: Sequence[Any] = await room.writer.end(position)
    written += [value for value in values if isinstance(value, tuple)]


def test_sizes_count_what_is_in_the_parameters() -> None:
    assert estimated_size({}) == 256
    assert 1_000_000 <= estimated_size({"content": "x" * 1_000_000}) < 1_001_000
    ids = [f"{number:036d}" for number in range(1_000)]
    assert 36_000 <= estimated_size({"message_ids": ids}) < 60_000
    nested = {"rows": [{"content": {"text": "y" * 5_000}, "blob": b"z" * 5_000}]}
    assert 10_000 <= estimated_size(nested) < 11_000
