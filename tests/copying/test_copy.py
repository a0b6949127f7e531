"""``StoreCopy``: everything arrives, in both directions, whatever phase a progression is in."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lionstate import StateDB
from lionstate.copying import StoreCopy
from lionstate.copying.tables import COPIED, LASTING
from lionstate.engine.ownership import StoreLock
from lionstate.errors import (
    ConflictError,
    DifferenceError,
    ForeignLineageError,
    InvalidInputError,
    NotEmptyError,
    OwnershipConflictError,
    StateError,
    UncopyableError,
    UnrecognizedStoreError,
)
from lionstate.schema import fence_exists
from lionstate.schema.triggers import delete_trigger_exists
from tests.support.backends import Backend
from tests.support.children import child
from tests.support.migration import service_of, until_done
from tests.support.phases import SHAPES
from tests.support.whole_store import contents, fill

pytestmark = pytest.mark.anyio

WAYS = ("sqlite-sqlite", "sqlite-postgresql", "postgresql-sqlite", "postgresql-postgresql")

# The pages are small, so that a small store has many; after each the child says so and waits to be told to go on.
COPY = """
import asyncio, sys
import lionstate.copying.tables as tables
from lionstate.copying import StoreCopy

tables._PAGE_ROWS = int(sys.argv[3])

def say(stage, done, total):
    print(stage, done, total, flush=True)

asyncio.run(StoreCopy(sys.argv[1], sys.argv[2], on_progress=say).run())
"""


@pytest.fixture(params=[pytest.param(way, marks=[pytest.mark.postgresql] * ("postgresql" in way)) for way in WAYS])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """URLs of two stores that do not exist yet."""
    kinds = request.param.split("-")
    return _url(request, kinds[0], tmp_path, "source", 15), _url(request, kinds[1], tmp_path, "target", 18)


def _url(request: pytest.FixtureRequest, kind: str, folder: Path, name: str, version: int) -> str:
    if kind == "sqlite":
        return str(folder / f"{name}.db")
    server = request.getfixturevalue(f"postgres_{version}")
    database = f"copy_{name}"
    server.drop_database(database)
    return str(server.create_database(database))


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Backend]:
    """A store as a backend, whatever its kind."""
    async with StateDB(url=url) as state:
        yield Backend(state.dialect, state, state)


async def made(url: str, *, messages: int = 1_500, longest: int = 700) -> dict[str, list[str]]:
    """Make and fill the source; what it holds."""
    async with opened(url) as source:
        await fill(source, messages=messages, longest=longest)
        return await contents(source.direct)


def _logs(*urls: str) -> list[str]:
    """Files of SQLite's own beside stores that nobody has open."""
    return [f"{url}{suffix}" for url in urls for suffix in ("-wal", "-shm") if Path(f"{url}{suffix}").exists()]


async def test_every_table_and_phase_arrives(way: tuple[str, str]) -> None:
    """ADR-0055 D1, ADR-0117 D1, D2: each row of each table, own ones included, is equal in the copy."""
    source, target = way
    expected = await made(source)
    stages: list[tuple[str, int, int]] = []
    report = await StoreCopy(source, target, on_progress=lambda *stage: stages.append(stage)).run()
    async with opened(target) as copy:
        assert expected == await contents(copy.direct)
        assert all(expected[copied.name] for copied in COPIED)
        left = [await copy.rows(f"SELECT * FROM {table}") for table in ("migration_lease", "request_receipts")]
        assert [[], []] == left
        assert [] == await copy.rows("SELECT progression_id FROM progression_storage_state WHERE last_xact IS NOT NULL")
        assert await copy.direct.store.read(fence_exists)
        assert await copy.direct.store.read(delete_trigger_exists)
        assert "4" == await copy.direct.schema_version()
    assert {copied.name for copied in COPIED} == {table.name for table in report.tables}
    assert sum(map(len, expected.values())) == report.rows == report.copied_rows
    assert (False, False) == (report.resumed, report.already_finished)
    assert {("copy", report.rows, report.rows), ("verify", 2 * report.rows, 2 * report.rows)} <= set(stages)
    assert [] == _logs(source, target)
    again = await StoreCopy(source, target).run()
    assert (True, 0) == (again.already_finished, again.copied_rows)
    lasting = {copied.name: len(expected[copied.name]) for copied in LASTING}
    assert lasting == {table.name: table.rows for table in again.tables}
    assert {"messages", "progressions", "progression_items", "admin_events"} < set(lasting)


async def test_a_finished_copy_of_a_source_that_went_on_is_told(way: tuple[str, str]) -> None:
    """Repeated after one more row: exit 6, the table named, neither store changed; also while the copy is in use."""
    source, target = way
    await made(source, messages=50, longest=50)
    await StoreCopy(source, target).run()
    async with opened(source) as state:
        await state.direct.insert_message({"id": "late", "created_at": 1.0, "role": "user", "content": {"n": 1}})
        expected = await contents(state.direct)
    async with opened(target) as copy:
        before = await contents(copy.direct)
        with pytest.raises(DifferenceError, match=r"written since \(messages: source \d+ rows") as caught:
            await StoreCopy(source, target).run()
        assert 6 == caught.value.exit_code
        assert "empty database" in str(caught.value)
        assert before == await contents(copy.direct)
    async with opened(source) as state:
        assert expected == await contents(state.direct)
        await state.direct.execute("DELETE FROM messages WHERE id = 'late'")
    assert (await StoreCopy(source, target).run()).already_finished


async def test_the_copy_lives_on(way: tuple[str, str]) -> None:
    """ADR-0117 D3, D4; decision 37: it reads as the source does, migrates on and has seen no other writer."""
    source, target = way
    await made(source, messages=10, longest=50)
    names = [f"half {shape}" for shape in SHAPES]
    async with opened(source) as before:
        expected = [await _read(before.state, name) for name in names]
    await StoreCopy(source, target).run()
    async with opened(target) as copy:
        assert expected == [await _read(copy.state, name) for name in names]
        await copy.execute("DELETE FROM migration_control WHERE key = 'pause'")
        await copy.execute("UPDATE sessions SET status = 'completed', last_message_at = NULL")
        assert (await copy.direct.migration.status()).foreign_sighted_at is None
        await until_done(service_of(copy))
        assert (await copy.direct.migration.status()).foreign_sighted_at is None
        assert expected[names.index("half dual")] == await copy.state.get_progression("half dual")
        (row,) = await copy.rows("SELECT phase FROM progression_storage_state WHERE progression_id = 'half dual'")
        assert "items" == row["phase"]
        await copy.state.insert_message(
            {"id": "new", "created_at": 1.0, "role": "user", "content": {}, "node_metadata": {"lion_class": "x.Y"}}
        )
        assert "x.Y" == (await copy.state.get_message("new"))["lion_class_str"]


async def _read(state: StateDB, name: str) -> Any:
    try:
        return await state.get_progression(name)
    except StateError as error:
        return error.code


@pytest.mark.timeout(120)
async def test_killed_twice_it_ends_equal(way: tuple[str, str]) -> None:
    """Killed in the middle of a table and again later, the same command goes on; nobody opens what is unfinished."""
    source, target = way
    expected = await made(source)
    for pages in (9, 8):
        with child(COPY, source, target, 300) as process:
            assert process.stdout is not None
            lines = (line.split()[0] for line in process.stdout)
            done = sum(1 for line in lines if line == "copy" and (pages := pages - 1) <= 0 and not process.kill())
            assert done >= 1
        with pytest.raises(ForeignLineageError):
            async with opened(target):
                pass
    report = await StoreCopy(source, target).run()
    assert (True, False) == (report.resumed, report.already_finished)
    assert 0 < report.copied_rows < report.rows
    async with opened(target) as copy:
        assert expected == await contents(copy.direct)


async def test_every_stop_is_gone_on_from(way: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """After whatever page it ends, it goes on behind that page."""
    monkeypatch.setattr("lionstate.copying.tables._PAGE_ROWS", 40)
    source, target = way
    expected = await made(source, messages=100, longest=30)
    stops = 0
    while True:
        copy = StoreCopy(source, target, on_progress=_stop_at(3))
        try:
            report = await copy.run()
        except _StoppedError:
            stops += 1
        else:
            break
        if stops > 8:
            report = await StoreCopy(source, target).run()
            break
    assert stops > 8
    assert report.resumed
    async with opened(target) as found:
        assert expected == await contents(found.direct)


class _StoppedError(Exception):
    pass


def _stop_at(pages: int) -> Callable[[str, int, int], None]:
    seen = 0

    def on_progress(stage: str, _done: int, _total: int) -> None:
        nonlocal seen
        seen += stage == "copy"
        if seen >= pages:
            raise _StoppedError

    return on_progress


async def test_a_source_written_meanwhile_is_told(way: tuple[str, str]) -> None:
    """The copy is not published, and the message says which tables and progressions differ."""
    source, target = way
    await made(source, messages=10, longest=5)

    def on_progress(stage: str, _done: int, _total: int) -> None:
        if stage == "verify":
            raise _StoppedError

    with pytest.raises(_StoppedError):
        await StoreCopy(source, target, on_progress=on_progress).run()
    async with opened(source) as writer:
        await writer.state.append_to_progression("half json", "late")
    with pytest.raises(DifferenceError, match=r"written while it was copied.*progressions half json") as caught:
        await StoreCopy(source, target).run()
    assert 6 == caught.value.exit_code
    with pytest.raises(ForeignLineageError):
        async with opened(target):
            pass


async def test_a_source_that_grows_meanwhile_is_told(way: tuple[str, str]) -> None:
    """A row that came after its table was done, and another that refers to it."""
    source, target = way
    await made(source, messages=2, longest=2)

    def on_progress(stage: str, _done: int, total: int) -> None:
        if stage == "copy" and _done > total - 30:
            raise _StoppedError

    with pytest.raises(_StoppedError):
        await StoreCopy(source, target, on_progress=on_progress).run()
    async with opened(source) as writer:
        await writer.put_progression("~late", "[]")
        row = {"id": "~late", "progression_id": "~late", "created_at": 1.0, "updated_at": 1.0, "status": "completed"}
        await writer.state.create_session(row)
        await writer.state.create_branch(
            {"id": "~late", "session_id": "~late", "progression_id": "~late", "created_at": 1}
        )
    with pytest.raises(DifferenceError, match="written while it was copied"):
        await StoreCopy(source, target).run()


async def test_a_target_that_holds_something_is_left_alone(way: tuple[str, str]) -> None:
    """A store, or a copy of another store: refused, and not a row of it changes."""
    source, target = way
    await made(source, messages=10, longest=5)
    async with opened(target) as other:
        await other.put_progression("mine", "[]")
        before = await contents(other.direct)
    with pytest.raises(NotEmptyError):
        await StoreCopy(source, target).run()
    async with opened(target) as other:
        assert before == await contents(other.direct)


async def test_a_copy_of_another_store_is_not_gone_on_with(tmp_path: Path) -> None:
    """Two sources, one target: the second is refused before anything is written."""
    first, second, target = (str(tmp_path / f"{name}.db") for name in ("first", "second", "target"))
    for url in (first, second):
        await made(url, messages=2, longest=2)
    with pytest.raises(_StoppedError):
        await StoreCopy(first, target, on_progress=_stop_at(1)).run()
    with pytest.raises(NotEmptyError, match="another store"):
        await StoreCopy(second, target).run()
    assert (await StoreCopy(first, target).run()).resumed


async def test_two_copies_into_one_database(postgres_15: Any, tmp_path: Path) -> None:
    """Of two at once one ends with an error, and what the other wrote is whole."""
    source = str(tmp_path / "source.db")
    expected = await made(source, messages=2_000, longest=20)
    postgres_15.drop_database("copy_twice")
    target = postgres_15.create_database("copy_twice")
    with pytest.raises(_StoppedError):
        await StoreCopy(source, target, on_progress=_stop_at(1)).run()
    other = tmp_path / "source.db"
    copies: list[Awaitable[Any]] = [StoreCopy(other, target).run()]
    StoreLock.acquire, acquire = (lambda self: None), StoreLock.acquire
    try:
        outcomes = await asyncio.gather(*copies, StoreCopy(source, target).run(), return_exceptions=True)
    finally:
        StoreLock.acquire = acquire
    errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert all(isinstance(error, ConflictError) for error in errors), errors
    assert len(errors) <= 1
    async with opened(target) as copy:
        assert expected == await contents(copy.direct)


async def test_values_that_the_target_cannot_hold_are_named_first(postgres_15: Any, tmp_path: Path) -> None:
    """NUL, JSON that is none, numbers too large, ids too long: all named with table, column and key."""
    source = tmp_path / "source.db"
    await made(str(source), messages=3, longest=2)
    changes = (
        ("messages", "sender = 'a' || char(0)", "m00000000", "messages.sender of m00000000 holds a NUL"),
        ("messages", "content = '{'", "m00000001", "messages.content of m00000001 is not JSON"),
        ("invocations", "session_count = 3000000000", "invocations-0", "session_count of invocations-0 does not fit"),
        ("invocations", "prompt = x'00ff'", "invocations-1", "invocations.prompt of invocations-1 is not text"),
        ("invocations", "skill = printf('%.*c', 3000, 'x')", "invocations-0", "is longer than the 2000 bytes"),
    )
    connection = sqlite3.connect(source)
    for table, change, key, _ in changes:
        connection.execute(f"UPDATE {table} SET {change} WHERE id = ?", (key,))
    connection.commit()
    connection.close()
    postgres_15.drop_database("copy_bad")
    target = postgres_15.create_database("copy_bad")
    with pytest.raises(UncopyableError) as caught:
        await StoreCopy(source, target).run()
    for *_, text in changes:
        assert text in str(caught.value)
    async with StateDB(url=target) as untouched:
        assert (await untouched.store.read(lambda conn: conn.dialect.name), True) == ("postgresql", True)
        assert [] == await untouched.fetch_all("SELECT id FROM messages")
    report = await StoreCopy(source, tmp_path / "copy.db").run()
    assert report.rows == report.copied_rows


async def test_text_that_is_no_text_is_named_first(tmp_path: Path) -> None:
    """SQLite keeps any bytes as text: table, column and key are named before anything is written."""
    source = tmp_path / "source.db"
    await made(str(source), messages=3, longest=2)
    connection = sqlite3.connect(source)
    connection.execute("UPDATE progressions SET collection = CAST(x'5bff5d' AS TEXT) WHERE id = 'half json'")
    connection.commit()
    connection.close()
    with pytest.raises(UncopyableError, match=r"the text of progressions\.collection of half json is not UTF-8"):
        await StoreCopy(source, tmp_path / "copy.db").run()
    assert not (tmp_path / "copy.db").exists()


async def test_broken_references_are_named_first(tmp_path: Path) -> None:
    """A store that a program with foreign keys off has written."""
    source = tmp_path / "source.db"
    await made(str(source), messages=3, longest=2)
    connection = sqlite3.connect(source)
    connection.execute("DELETE FROM invocations")
    connection.commit()
    connection.close()
    with pytest.raises(UncopyableError, match="sessions: 1 rows refer to rows that do not exist"):
        await StoreCopy(source, tmp_path / "copy.db").run()
    assert not (tmp_path / "copy.db").exists()


async def test_what_is_not_two_stores_is_refused(tmp_path: Path) -> None:
    """The same store twice, memory, no store, a target of something else, a daemon's store."""
    source = tmp_path / "source.db"
    await made(str(source), messages=3, longest=2)
    for pair in ((source, f"sqlite:///{source}"), (":memory:", source), (source, ":memory:")):
        with pytest.raises(InvalidInputError):
            StoreCopy(*pair)
    (tmp_path / "text").write_text("no database")
    for target in (tmp_path / "text", tmp_path / "other.db"):
        connection = sqlite3.connect(tmp_path / "other.db")
        connection.execute("CREATE TABLE IF NOT EXISTS somebody (x)")
        connection.close()
        with pytest.raises((NotEmptyError, UnrecognizedStoreError)):
            await StoreCopy(source, target).run()
    with pytest.raises(UnrecognizedStoreError):
        await StoreCopy(tmp_path / "other.db", tmp_path / "new.db").run()
    lock = StoreLock(source)
    lock.acquire()
    try:
        with pytest.raises(OwnershipConflictError):
            await StoreCopy(source, tmp_path / "new.db").run()
    finally:
        lock.release()
    assert not (tmp_path / "new.db").exists()


async def test_a_large_value_is_a_page_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded by the largest value, not by rows times values."""
    source, target = tmp_path / "source.db", tmp_path / "target.db"
    async with opened(str(source)) as state:
        for number in range(5):
            await state.put_progression(f"p{number}", "[" + " " * 3_000_000 + "]")
    sizes: list[int] = []
    from lionstate.copying import tables

    read = tables.Reading.page

    def page(self: Any, conn: Any, /, after: Any) -> Any:
        found = read(self, conn, after)
        sizes.append(found.size_bytes)
        return found

    monkeypatch.setattr(tables.Reading, "page", page)
    await StoreCopy(source, target).run()
    assert 3_000_002 == max(sizes)


@pytest.mark.postgresql
async def test_numbers_that_sqlite_would_change_are_named_first(postgres_15: Any, tmp_path: Path) -> None:
    """Bare numbers of JSON columns: doubles arrive exactly, whole ones above 64 bits stop the copy (exit 3)."""
    postgres_15.drop_database("copy_numbers")
    source = str(postgres_15.create_database("copy_numbers"))
    target = tmp_path / "target.db"
    numbers = [0.1 + 0.2, 1.7976931348623157e308, 2**63 - 1, -1.055793262614264e-300]
    async with StateDB(url=source) as state:
        for place, number in enumerate(numbers):
            row = {"id": f"n{place}", "created_at": 1.0, "role": "user", "content": number}
            await state.insert_message(row)
        for text in ("18446744073709551617", "1e400"):
            await state.execute("UPDATE messages SET content = CAST(? AS JSON) WHERE id = 'n0'", [text])
            with pytest.raises(UncopyableError, match=r"messages\.content of n0 is a number that SQLite would change"):
                await StoreCopy(source, target).run()
        await state.execute("UPDATE messages SET content = '0.30000000000000004' WHERE id = 'n0'")
    await StoreCopy(source, target).run()
    async with StateDB(target) as copy:
        found = await copy.get_messages([f"n{place}" for place in range(len(numbers))])
        assert numbers == [found[f"n{place}"]["content"] for place in range(len(numbers))]
