"""Threads and the loop wake each other by pipes: nothing is lost, doubled or reordered; the pipes are given back."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest

from lionstate.engine.mailbox import Jobs, Replies
from lionstate.engine.threads import Mailbox, WorkerThread
from lionstate.errors import ClosedError


async def test_results_come_in_the_order_of_the_jobs() -> None:
    thread = WorkerThread("worker")
    thread.start()
    found = await asyncio.gather(*(thread.submit(lambda number=number: number) for number in range(1_000)))
    assert list(range(1_000)) == found
    await _end(thread)


async def test_threads_that_share_a_mailbox_take_each_job_once() -> None:
    mailbox = Mailbox()
    threads = [WorkerThread(f"worker-{number}", mailbox) for number in range(3)]
    for thread in threads:
        thread.start()
    taken: list[int] = []
    lock = threading.Lock()

    def take(number: int) -> None:
        with lock:
            taken.append(number)

    await asyncio.gather(*(threads[0].submit(lambda number=number: take(number)) for number in range(500)))
    assert list(range(500)) == sorted(taken)
    for thread in threads:
        thread.end()
    for thread in threads:
        assert await asyncio.to_thread(thread.join)
    mailbox.close_after(threads)


async def test_a_reply_that_raises_does_not_hold_up_the_others() -> None:
    loop = asyncio.get_running_loop()
    caught: list[Any] = []
    loop.set_exception_handler(lambda _loop, context: caught.append(context["exception"]))
    replies, last = Replies(loop), loop.create_future()

    def fails(_result: Any, _error: BaseException | None) -> None:
        raise ValueError

    try:
        replies.send(fails, 1, None)
        replies.send(lambda result, _error: last.set_result(result), 2, None)
        assert 2 == await asyncio.wait_for(last, 5)
    finally:
        loop.set_exception_handler(None)
        replies.close()
    assert [ValueError] == [type(error) for error in caught]


async def test_an_error_of_a_job_reaches_its_caller() -> None:
    thread = WorkerThread("worker")
    thread.start()

    def fails() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await thread.submit(fails)
    await _end(thread)
    with pytest.raises(ClosedError):
        thread.submit(fails)


async def test_another_loop_gets_its_results_too() -> None:
    thread = WorkerThread("worker")
    thread.start()
    assert 1 == await thread.submit(lambda: 1)

    async def elsewhere() -> int:
        return await thread.submit(lambda: 2)

    assert 2 == await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
    await _end(thread)


async def test_the_pipes_are_given_back_once_no_thread_can_use_them() -> None:
    before = len(os.listdir("/proc/self/fd"))
    mailbox = Mailbox()
    thread = WorkerThread("worker", mailbox)
    thread.start()
    assert 1 == await thread.submit(lambda: 1)
    mailbox.close_after([thread])
    assert 2 == await thread.submit(lambda: 2)
    await _end(thread)
    assert before == len(os.listdir("/proc/self/fd"))


def test_a_job_waits_in_the_pipe_for_its_thread() -> None:
    jobs = Jobs()
    jobs.put(None)
    assert jobs.get() is None
    jobs.close()


async def _end(thread: WorkerThread) -> None:
    thread.end()
    assert await asyncio.to_thread(thread.join)
    thread.mailbox.close_after([thread])
