"""A COMMIT that raises has an outcome nobody knows yet (design §2.1, "Any error raised by COMMIT itself is unknown").

SQLite: a failed fsync leaves the commit frame in the log; it is not visible now and comes back as committed after a
crash. The writer reopens, commits a row of its own and decides by the number of the batch, or by the rows of a batch
that is a lone append or message to items.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sqlite3
from collections.abc import Awaitable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lionstate.engine import EngineSettings
from lionstate.engine.sqlite import SqliteWriter
from lionstate.errors import (
    BackendError,
    BackendUnavailableError,
    InvalidInputError,
    OutcomeUnknownError,
    StateError,
)
from lionstate.operations import OPERATIONS
from lionstate.progression import items_append
from lionstate.queue import RequestKey
from lionstate.store import Store
from tests.support.children import child
from tests.support.store_calls import append, execute, put_items_progression, put_progression, read_ids
from tests.support.vfs import FULL, IOERR_FSYNC, FaultVfs

_FULL_SYNC = EngineSettings(synchronous="FULL")

# Appends one id with the given faults, reports each outcome, and waits to be killed.
_CRASHING = """
import asyncio, json, sys, sqlite3
from lionstate.engine import EngineSettings
from lionstate.errors import StateError
from lionstate.store import Store
from tests.support.store_calls import append, put_items_progression, put_progression, read_ids
from tests.support.vfs import IOERR_FSYNC, FaultVfs

async def main(path, times, phase):
    vfs = FaultVfs.of(sqlite3)
    store = await Store.open(path, EngineSettings(synchronous="FULL"), vfs=vfs.name)
    await (put_items_progression if phase == "items" else put_progression)(store, "p")
    await read_ids(store, "p")
    outcomes = {}
    for name, faulty in (("before", False), ("doubtful", True), ("after", False)):
        if faulty:
            vfs.fail("sync", "wal", IOERR_FSYNC, times=times or None)
        try:
            await append(store, "p", name)
            outcomes[name] = "written"
        except StateError as error:
            outcomes[name] = error.code
    print(json.dumps(outcomes), flush=True)
    sys.stdin.read()

asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
"""
_PUT = {"json": put_progression, "items": put_items_progression}
_each_phase = pytest.mark.parametrize("phase", _PUT)


def _outcomes_and_ids_after_a_crash(path: Path, times: int, phase: str) -> tuple[dict[str, str], list[str]]:
    with child(_CRASHING, path, times, phase) as process:
        assert process.stdout is not None
        outcomes: dict[str, str] = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        process.wait()
    with sqlite3.connect(path) as conn:
        (text,) = conn.execute("SELECT collection FROM progressions WHERE id = 'p'").fetchone()
        rows = conn.execute("SELECT message_id FROM progression_items ORDER BY ordinal").fetchall()
    conn.close()
    return outcomes, json.loads(text) + [message_id for (message_id,) in rows]


def test_the_fault_exists_a_failed_commit_comes_back_after_a_crash(tmp_path: Path) -> None:
    """Without a commit of one's own after it, the log holds a commit that its writer was told had failed."""
    vfs = FaultVfs.of(sqlite3)
    path = tmp_path / "raw.db"
    conn = sqlite3.connect(f"file:{path}?vfs={vfs.name}", uri=True, isolation_level=None)
    conn.execute("PRAGMA journal_mode = WAL")
    conn.execute("PRAGMA synchronous = FULL")
    conn.execute("CREATE TABLE t (a)")
    vfs.fail("sync", "wal", IOERR_FSYNC, times=1)
    conn.execute("BEGIN IMMEDIATE")
    conn.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(sqlite3.OperationalError):
        conn.execute("COMMIT")
    assert [(0,)] == conn.execute("SELECT count(*) FROM t").fetchall()
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{path}{suffix}", tmp_path / f"crashed.db{suffix}")
    crashed = sqlite3.connect(tmp_path / "crashed.db")
    assert [(1,)] == crashed.execute("SELECT count(*) FROM t").fetchall()
    crashed.close()
    conn.close()


@_each_phase
def test_a_commit_that_failed_once_is_settled_for_good(tmp_path: Path, phase: str) -> None:
    """The answer is ``not_written``, and it stays true after SIGKILL."""
    outcomes, ids = _outcomes_and_ids_after_a_crash(tmp_path / "state.db", 1, phase)
    assert {"before": "written", "doubtful": "backend_unavailable", "after": "written"} == outcomes
    assert ["before", "after"] == ids


@_each_phase
def test_a_commit_that_cannot_be_settled_is_unknown(tmp_path: Path, phase: str) -> None:
    """While the log cannot be synced nothing else begins; after SIGKILL nothing acknowledged is lost."""
    outcomes, ids = _outcomes_and_ids_after_a_crash(tmp_path / "state.db", 0, phase)
    assert {"before": "written", "doubtful": "outcome_unknown", "after": "backend_unavailable"} == outcomes
    assert ids in (["before"], ["before", "doubtful"])


@pytest.mark.parametrize(
    ("code", "why"),
    [(IOERR_FSYNC, r"\(backend_unavailable\)"), (FULL, r"\(disk_full: make room on the disk of the store first\)")],
)
async def test_the_store_goes_on_when_the_doubt_can_be_settled(tmp_path: Path, code: int, why: str) -> None:
    """No restart is needed, and what was unknown is one of the two (fault 34); the error says how to find out."""
    vfs = FaultVfs.of(sqlite3)
    store = await Store.open(tmp_path / "state.db", _FULL_SYNC, vfs=vfs.name)
    try:
        await put_progression(store, "p")
        with vfs.failing("sync", "wal", code):
            with pytest.raises(OutcomeUnknownError, match=rf"COMMIT failed .*{why}: the write may .*idempotency key"):
                await append(store, "p", "a")
            with pytest.raises(BackendUnavailableError):
                await append(store, "p", "b")
        await append(store, "p", "c")
        await append(store, "p", "a")
        assert await read_ids(store, "p") in (["c", "a"], ["a", "c"])
    finally:
        await store.close()


@_each_phase
async def test_a_commit_that_is_there_after_all_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """The number or the rows in the store decide, not the exception."""
    store = await Store.open(tmp_path / "state.db")
    try:
        await _PUT[phase](store, "p")
        commit = SqliteWriter.commit

        def commit_and_raise(writer: SqliteWriter) -> None:
            commit(writer)
            raise sqlite3.OperationalError("disk I/O error")

        with monkeypatch.context() as patch:
            patch.setattr(SqliteWriter, "commit", commit_and_raise)
            await append(store, "p", "a")
        await append(store, "p", "b")
        assert ["a", "b"] == await read_ids(store, "p")
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("meanwhile", "error"),
    [
        ("UPDATE progression_storage_state SET next_ordinal = 1", BackendError),
        ("UPDATE progression_storage_state SET generation = 2", OutcomeUnknownError),
        ("DELETE FROM progressions", OutcomeUnknownError),
    ],
    ids=["appended", "replaced", "deleted"],
)
async def test_what_others_have_replaced_since_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str, error: type[Exception]
) -> None:
    """That an id is not there tells that it was not written only as long as nobody may have taken it away again."""
    path = tmp_path / "state.db"
    store = await Store.open(path)
    try:
        await put_items_progression(store, "p")

        def another_process_then_raise(writer: SqliteWriter) -> None:
            writer.rollback()
            with sqlite3.connect(path) as other:
                other.execute(meanwhile)
            other.close()
            raise sqlite3.OperationalError("disk I/O error")

        with monkeypatch.context() as patch:
            patch.setattr(SqliteWriter, "commit", another_process_then_raise)
            with pytest.raises(StateError) as raised:
                await append(store, "p", "a")
            assert error is type(raised.value)
    finally:
        await store.close()


@_each_phase
async def test_a_keyed_append_is_there_with_its_receipt(tmp_path: Path, phase: str) -> None:
    """An id that stood there before says nothing of a receipt that was written beside it."""
    vfs = FaultVfs.of(sqlite3)
    store = await Store.open(tmp_path / "state.db", _FULL_SYNC, vfs=vfs.name)
    params = {"progression_id": "p", "message_id": "a"}
    try:
        await _PUT[phase](store, "p")
        await append(store, "p", "a")
        vfs.fail("sync", "wal", IOERR_FSYNC, times=1)
        with pytest.raises(BackendUnavailableError):
            await store.run(OPERATIONS["append_to_progression"], params, key=RequestKey("me", "k"))
        async with store.snapshot() as snapshot:
            assert [] == await snapshot.fetch_all("SELECT * FROM request_receipts")
    finally:
        await store.close()


async def test_a_lone_append_to_items_writes_no_number(tmp_path: Path) -> None:
    """Its row would be one more page of the log than the three of the append itself."""
    store = await Store.open(tmp_path / "state.db")
    try:
        await put_items_progression(store, "p")
        before = await _numbers(store)
        await append(store, "p", "a")
        assert before == await _numbers(store)
        await execute(store, "UPDATE progressions SET created_at = 2")
        assert before != await _numbers(store)
    finally:
        await store.close()


def _message(content: Any) -> dict[str, Any]:
    return {"id": "m", "created_at": 1.0, "role": "user", "content": content, "node_metadata": {}}


async def _record(store: Store, content: str = "x") -> None:
    params = {"msg": _message({"text": content}), "session_id": "s", "branch_progression_id": "p"}
    await store.run(OPERATIONS["record_message"], params)


_SESSION = (
    "INSERT INTO sessions (id, created_at, updated_at, node_metadata, status, progression_id)"
    " VALUES ('s', 1, 1, '{}', 'running', 'p')"
)
_BRANCH = (
    "INSERT INTO branches (id, created_at, node_metadata, session_id, progression_id) VALUES ('b', 1, '{}', 's', 'p')"
)
_ANOTHER_PROCESS_RECORDS = [
    "INSERT INTO messages (id, created_at, node_metadata, content, role, lion_class)"
    " VALUES ('m', 1.0, '{}', '{\"text\": \"x\"}', 'user', 0)",
    "INSERT INTO progression_items VALUES ('p', 0, 'm')",
    "UPDATE progression_storage_state SET next_ordinal = 1",
]


async def _in_doubt(
    store: Store, monkeypatch: pytest.MonkeyPatch, call: Awaitable[Any], path: Path, meanwhile: list[str] | None
) -> type[Exception] | None:
    """What a call gets whose COMMIT raises: after it (None), or before it, while others run this SQL."""
    commit = SqliteWriter.commit

    def raising(writer: SqliteWriter) -> None:
        if meanwhile is None:
            commit(writer)
        else:
            writer.rollback()
            with closing(sqlite3.connect(path)) as other, other:
                for sql in meanwhile:
                    other.execute(sql)
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteWriter, "commit", raising)
        try:
            await call
        except StateError as raised:
            return type(raised)
    return None


async def test_a_lone_message_writes_no_number_unless_it_is_there(tmp_path: Path) -> None:
    """Where nothing is appended, nothing but the number tells whether the new content was written."""
    store = await Store.open(tmp_path / "state.db")
    try:
        await put_items_progression(store, "p")
        before = await _numbers(store)
        await _record(store)
        assert before == await _numbers(store)
        await _record(store, "y")
        assert before != await _numbers(store)
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("meanwhile", "error"),
    [
        ([], BackendError),
        (["UPDATE progression_storage_state SET generation = 2"], OutcomeUnknownError),
        ([sql.replace('"x"', '"z"') for sql in _ANOTHER_PROCESS_RECORDS], OutcomeUnknownError),
        # The same, but the activity of the session is lost.
        ([_SESSION, *_ANOTHER_PROCESS_RECORDS], OutcomeUnknownError),
        (None, None),
    ],
    ids=["not there", "replaced", "other content of another process", "other activity", "there"],
)
async def test_a_lone_message_in_doubt_is_looked_up_by_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: list[str] | None, error: type[Exception] | None
) -> None:
    path = tmp_path / "state.db"
    store = await Store.open(path)
    try:
        await put_items_progression(store, "p")
        assert error is await _in_doubt(store, monkeypatch, _record(store), path, meanwhile)
        await _record(store, "later")
        assert ["m"] == await read_ids(store, "p")
    finally:
        await store.close()


@pytest.mark.parametrize("content", [5, 1.5, 1e300, 2**70, -0.0, "5", [1, 2], {"a": None}, True], ids=repr)
async def test_a_committed_lone_message_is_recognized_whatever_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: Any
) -> None:
    path = tmp_path / "state.db"
    store = await Store.open(path)
    try:
        await put_items_progression(store, "p")
        await execute(store, _SESSION)
        params = {"msg": _message(content), "session_id": "s", "branch_progression_id": "p"}
        call = store.run(OPERATIONS["record_message"], params)
        if content == 2**70:
            with pytest.raises(InvalidInputError):
                await call
            return
        assert None is await _in_doubt(store, monkeypatch, call, path, None)
        several = {"msgs": [_message("first"), {**_message("last"), "id": "n"}, {**_message("x"), "id": "n"}]}
        call = store.run(OPERATIONS["insert_messages"], {**several, "progression_ids": ["p"]})
        assert None is await _in_doubt(store, monkeypatch, call, path, None)
        assert ["m", "n"] == await read_ids(store, "p")
    finally:
        await store.close()


async def test_a_lone_system_message_in_doubt_is_told_by_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process recorded it and not as the branch's system message: ours was not written."""
    path = tmp_path / "state.db"
    store = await Store.open(path)
    try:
        await put_items_progression(store, "p")
        await execute(store, _SESSION)
        await execute(store, _BRANCH)
        params = {
            "msg": _message({"text": "x"}),
            "session_id": "s",
            "branch_progression_id": "p",
            "system_branch_id": "b",
        }
        call = store.run(OPERATIONS["record_message"], params)
        assert BackendError is await _in_doubt(store, monkeypatch, call, path, _ANOTHER_PROCESS_RECORDS)
    finally:
        await store.close()


async def test_a_doubt_about_rows_that_cannot_be_read_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: the look met a damaged value, and every later write was refused for it."""
    path = tmp_path / "state.db"
    store = await Store.open(path)
    try:
        await put_items_progression(store, "p")
        await put_items_progression(store, "q")
        damaged = [sql.replace('\'{"text": "x"}\'', "CAST(X'ff22' AS TEXT)") for sql in _ANOTHER_PROCESS_RECORDS]
        assert OutcomeUnknownError is await _in_doubt(store, monkeypatch, _record(store), path, damaged)
        await append(store, "q", "a")
        monkeypatch.setattr(items_append, "_is_there", _raise)
        assert OutcomeUnknownError is await _in_doubt(store, monkeypatch, append(store, "q", "b"), path, None)
        await append(store, "q", "c")
        assert ["a", "b", "c"] == await read_ids(store, "q")
    finally:
        await store.close()


def _raise(*_: Any, **__: Any) -> None:
    raise sqlite3.DatabaseError("database disk image is malformed")


async def _numbers(store: Store) -> list[int]:
    async with store.snapshot() as snapshot:
        return [row["batch"] for row in await snapshot.fetch_all("SELECT batch FROM writer_batches")]


async def test_a_failed_commit_of_an_explicit_transaction_is_settled_too(tmp_path: Path) -> None:
    """``transaction()`` has the same three outcomes as a batch."""
    vfs = FaultVfs.of(sqlite3)
    store = await Store.open(tmp_path / "state.db", _FULL_SYNC, vfs=vfs.name)
    insert = "INSERT INTO progressions (id, created_at, collection) VALUES (:id, 1, '[]')"
    try:
        await put_progression(store, "p")
        for times, expected in ((1, BackendUnavailableError), (None, OutcomeUnknownError)):
            with pytest.raises(expected):
                async with store.transaction() as turn:
                    await turn.execute(insert, {"id": f"q{times}"})
                    vfs.fail("sync", "wal", IOERR_FSYNC, times=times)
            vfs.heal()
        await append(store, "p", "a")
        async with store.snapshot() as snapshot:
            found = {row["id"] for row in await snapshot.fetch_all("SELECT id FROM progressions")}
        assert found in ({"p"}, {"p", "qNone"})
    finally:
        await store.close()


async def test_a_memory_store_keeps_its_rows_after_a_failed_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is the store: it is never reopened."""
    store = await Store.open(":memory:")
    try:
        await put_progression(store, "p")
        await append(store, "p", "a")

        def fail(_writer: SqliteWriter) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        with monkeypatch.context() as patch:
            patch.setattr(SqliteWriter, "commit", fail)
            with pytest.raises(Exception, match="I/O"):
                await append(store, "p", "b")
        await append(store, "p", "c")
        assert ["a", "c"] == await read_ids(store, "p")
    finally:
        await store.close()


async def test_a_full_disk_refuses_truthfully_and_needs_no_restart(tmp_path: Path) -> None:
    """Fault 46: reads work while the disk is full, and writes resume by themselves."""
    vfs = FaultVfs.of(sqlite3)
    store = await Store.open(tmp_path / "state.db", vfs=vfs.name)
    try:
        await put_progression(store, "p")
        await append(store, "p", "a")
        with vfs.failing("write", "wal", FULL):
            results = await asyncio.gather(
                *(append(store, "p", f"lost{number}") for number in range(20)), return_exceptions=True
            )
            codes = {getattr(found, "code", None) for found in results}
            assert codes <= {"backend_unavailable", "outcome_unknown"}
            assert ["a"] == await read_ids(store, "p")
        await append(store, "p", "b")
        refused = {
            f"lost{number}" for number, found in enumerate(results) if isinstance(found, BackendUnavailableError)
        }
        ids = await read_ids(store, "p")
        assert ["a", "b"] == [found for found in ids if not found.startswith("lost")]
        assert refused.isdisjoint(ids)
    finally:
        await store.close()
