"""A session that a bridged process writes is not another program's (decision 37)."""

from __future__ import annotations

import json
import time

from lionstate.migration import StopReason
from lionstate.migration.candidates import note_session
from tests.support.backends import Backend
from tests.support.migration import WHOLE, make_ids, service_of
from tests.support.records import put, put_session

IDS = make_ids(20)


async def _note(backend: Backend, session_id: str) -> None:
    async with backend.direct.transaction() as transaction:
        await transaction.run(lambda conn: note_session(conn, session_id))


async def _foreign(backend: Backend) -> int:
    return (await service_of(backend).status()).foreign_sessions


async def test_a_noted_session_does_not_hold_the_cutover(backend: Backend) -> None:
    await put_session(backend, "s", last_message_at=time.time())
    await backend.execute("UPDATE progressions SET collection = :value", value=json.dumps(IDS))
    assert StopReason.HELD == (await service_of(backend).step(**WHOLE)).stop_reason
    await _note(backend, "s")
    assert 0 == await _foreign(backend)
    step = await service_of(backend).step(**WHOLE)
    assert (StopReason.DONE, 1) == (step.stop_reason, step.cut_over)


async def test_a_later_message_of_another_program_counts_again(backend: Backend) -> None:
    now = time.time()
    await put_session(backend, "s", last_message_at=now)
    await _note(backend, "s")
    await _note(backend, "s")
    await backend.execute("UPDATE sessions SET last_message_at = :at", at=now + 0.001)
    assert 1 == await _foreign(backend)


async def test_nothing_is_kept_of_what_cannot_count(backend: Backend) -> None:
    """A missing session, one without messages, and one whose progression has left the JSON."""
    await put_session(backend, "silent", last_message_at=None)
    await put_session(backend, "s", last_message_at=time.time())
    await put(
        backend,
        "progression_storage_state",
        progression_id="p-s",
        phase="items",
        authority="items",
        generation=1,
        updated_at=1.0,
    )
    for session_id in ("missing", "silent", "s"):
        await _note(backend, session_id)
    assert [] == await backend.rows("SELECT progression_id FROM progression_activity")
