"""What of a store a process must be able to write, as the system answers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lionstate import StateDB
from lionstate.engine.rights import what_is_not_writable
from lionstate.errors import BackendUnavailableError


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names that may not be written, whoever runs the tests."""
    names: set[str] = set()
    monkeypatch.setattr(os, "access", lambda path, mode, **_: os.fspath(path) not in names)
    return names


def test_the_folder_counts_while_a_log_has_to_be_made(tmp_path: Path, closed: set[str]) -> None:
    """A link is judged by the file that it leads to: the log lies beside that."""
    (tmp_path / "real").mkdir()
    folder = tmp_path.resolve() / "real"
    path, link = folder / "s.db", tmp_path / "link.db"
    link.symlink_to(path)
    path.touch()
    closed.add(str(tmp_path.resolve()))
    assert what_is_not_writable(link) is None
    closed.add(str(folder))
    assert f"the folder {folder}" == what_is_not_writable(link)
    for log in (f"{path}-wal", f"{path}-shm"):
        assert f"the folder {folder}" == what_is_not_writable(path)
        Path(log).touch()
    assert what_is_not_writable(path) is None
    for name in (f"{path}-shm", f"{path}-wal", str(path)):
        closed.add(name)
        assert name == what_is_not_writable(path)


async def test_it_is_refused_for_writing_alone(tmp_path: Path, closed: set[str]) -> None:
    path = tmp_path / "s.db"
    async with StateDB(path) as state:
        await state.create_progression("p", ["a"])
    closed.add(str(path))
    with pytest.raises(BackendUnavailableError, match=r"may not write .*s\.db; nothing was changed"):
        await StateDB(path).open()
    async with StateDB(path, readonly=True) as state:
        assert ["a"] == await state.get_progression("p")
