"""Who has a file open under another name: lists of locks as Linux gives them, and processes that have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lionstate import StateDB
from lionstate.engine import other_names
from lionstate.engine.other_names import openers_by_another_name
from lionstate.errors import BackendUnavailableError
from tests.support.children import child

DB, INDEX, OTHER_DB, OTHER_INDEX = "fd:01:10", "fd:01:11", "fd:01:20", "fd:01:21"
FILE, OWN_INDEX = (os.makedev(0xFD, 1), 10), (os.makedev(0xFD, 1), 11)


def shared(process: int, file: str) -> str:
    return f"1: POSIX  ADVISORY  READ {process} {file} 1073741826 1073742335"


def opened(process: int, index: str, first: int = 128) -> str:
    return f"2: POSIX  ADVISORY  READ {process} {index} {first} 128"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], set()),
        ([shared(7, DB), opened(7, INDEX)], set()),
        ([shared(7, DB), opened(7, OTHER_INDEX)], {7}),
        # The read mark beside it makes it one lock.
        ([shared(7, DB), opened(7, INDEX, 127)], set()),
        # A list that changes while it is read tells of one lock twice.
        ([shared(7, DB), shared(7, DB), opened(7, OTHER_INDEX)], {7}),
        ([shared(7, DB), opened(7, INDEX), shared(7, DB)], set()),
        # It is just opening it, or may not write beside it and has no index at all.
        ([shared(7, DB)], set()),
        ([shared(7, DB), shared(7, OTHER_DB), opened(7, OTHER_INDEX)], set()),
        ([shared(7, DB), shared(8, DB), opened(8, INDEX), opened(7, OTHER_INDEX), opened(9, INDEX)], {7}),
        # Whoever cannot be seen counts together, as 0 or less.
        ([shared(0, DB), shared(-1, DB), opened(0, INDEX), opened(-1, INDEX)], set()),
        ([shared(0, DB), shared(-1, DB), opened(0, INDEX), opened(-1, OTHER_INDEX)], {0}),
        # What waits for a lock does not have it; other locks and other programs' bytes are none of it.
        (["1: -> POSIX  ADVISORY  READ 7 fd:01:10 1073741826 1073742335", opened(7, OTHER_INDEX)], set()),
        (["1: FLOCK  ADVISORY  READ 7 fd:01:10 0 EOF", opened(7, OTHER_INDEX)], set()),
        (["1: POSIX  ADVISORY  WRITE 7 fd:01:10 1073741824 1073742335", opened(7, OTHER_INDEX)], set()),
        (["1: POSIX  ADVISORY  READ 7 fd:01:10 0 99", opened(7, OTHER_INDEX)], set()),
        (["", "nonsense", "1: POSIX  ADVISORY  READ x fd:01:10 0 1", "1: POSIX  ADVISORY  READ 7 x:y 0 1"], set()),
    ],
)
def test_who_holds_the_file_and_not_its_index(lines: list[str], expected: set[int]) -> None:
    assert expected == other_names._elsewhere("\n".join(lines), FILE, OWN_INDEX)


def test_an_index_that_is_not_there_is_nobodys() -> None:
    """Another number's locks do not count for it."""
    assert {7} == other_names._elsewhere("\n".join([shared(7, DB), opened(7, INDEX)]), FILE, None)


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([{7}, {7}, {7}, {7}, {7}, {7}, {7}], [7]),
        # The first two count as one.
        ([set(), {7}, {7}, {7}, {7}, {7}, {7}], [7]),
        ([{7}, {7}, {7}, set(), {7}, {7}, {7}], [7]),
        ([{7}, {7}, {7}, set(), {7}, {7}, {8}], []),
        ([{7, 8}, {7}, set(), set()], []),
        ([set(), set()], []),
    ],
)
def test_one_look_may_miss_what_the_others_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: list[set[int]], expected: list[int]
) -> None:
    """Seen: in one of 16,000 looks, and the store that it had missed was opened under its second name."""
    found = iter(looks)
    monkeypatch.setattr(other_names, "_look", lambda path: next(found))
    monkeypatch.setattr(other_names, "_PAUSE_SECONDS", 0.0)
    assert expected == openers_by_another_name(tmp_path / "s.db")
    assert [] == list(found)


def test_a_system_that_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_names, "_LOCKS", tmp_path / "absent")
    (tmp_path / "s.db").touch()
    assert [] == openers_by_another_name(tmp_path / "s.db")


_HOLDER = """
import asyncio, sys
from lionstate import StateDB

async def main():
    async with StateDB(sys.argv[1]) as state:
        await state.create_progression("p", ["a"])
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await state.append_to_progression("p", "b")

asyncio.run(main())
"""


async def test_a_store_that_another_process_has_open(tmp_path: Path) -> None:
    """Under its name it is shared; moved it is refused, through a link back too, but for reading; nothing is made."""
    path, moved = tmp_path / "s.db", tmp_path / "e.db"
    with child(_HOLDER, path) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert "open\n" == holder.stdout.readline()
        async with StateDB(path) as state:
            await state.append_to_progression("p", "c")
        path.rename(moved)
        before = sorted(os.listdir(tmp_path))
        for link in (False, True):
            if link:
                path.symlink_to(moved)
            with pytest.raises(BackendUnavailableError, match=f"process {holder.pid} has this very file") as caught:
                await StateDB(path if link else moved).open()
            assert "opened_elsewhere" == caught.value.reason
        path.unlink()
        assert before == sorted(os.listdir(tmp_path))
        async with StateDB(moved, readonly=True) as state:
            assert {"one": 1} == await state.fetch_one("SELECT 1 AS one")
        moved.rename(path)
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert 0 == holder.wait(30)
    async with StateDB(path) as state:
        assert ["a", "c", "b"] == await state.get_progression("p")
        assert [{"integrity_check": "ok"}] == await state.fetch_all("PRAGMA integrity_check")


async def test_a_store_that_this_process_has_open(tmp_path: Path) -> None:
    path, moved = tmp_path / "s.db", tmp_path / "e.db"
    async with StateDB(path) as state:
        path.rename(moved)
        with pytest.raises(BackendUnavailableError, match="under another name"):
            await StateDB(moved).open()
        moved.rename(path)
        await state.create_progression("p", ["a"])
        async with StateDB(path) as again:
            assert ["a"] == await again.get_progression("p")
