"""Where a write-ahead log is not safe: lists of mounts as Linux gives them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from lionstate import StateDB
from lionstate.engine import mounts, pragmas
from lionstate.errors import BackendUnavailableError

ROOT = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw"
SHARED = "40 22 0:50 / /srv/with\\040space rw,relatime shared:9 - virtiofs host rw"


@pytest.mark.parametrize(
    ("listed", "path", "kind"),
    [
        ([ROOT], "/var/lib/state.db", None),
        ([ROOT, SHARED], "/srv/with space/state.db", "virtiofs"),
        ([ROOT, SHARED], "/srv/with space also/state.db", None),
        ([SHARED, ROOT], "/srv/with space/state.db", "virtiofs"),
        # A disk image inside what is shared is a file system of its own.
        (
            [SHARED, "41 40 7:0 / /srv/with\\040space/disk rw - ext4 /dev/loop0 rw", ROOT],
            "/srv/with space/disk",
            None,
        ),
        ([ROOT, "50 22 0:60 / /home rw - nfs4 server:/home rw"], "/home/somebody/state.db", "nfs4"),
        ([ROOT, "51 22 0:61 / /mnt rw master:2 - 9p share rw"], "/mnt/state.db", "9p"),
        # Mounted over: the later one is what is there.
        ([ROOT, "52 22 0:62 / /d rw - nfs s:/d rw", "53 52 8:2 / /d rw - xfs /dev/sdb rw"], "/d/state.db", None),
        (["", "nonsense", "- - -", ROOT], "/state.db", None),
    ],
)
def test_the_deepest_mount_counts(listed: list[str], path: str, kind: str | None) -> None:
    """fault 45: ext4, ext4 within virtiofs, 9p and NFS."""
    assert kind == mounts._type_if_shared("\n".join(listed), Path(path))


def test_no_list_is_no_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mounts, "_MOUNTS", tmp_path / "missing")
    assert mounts.shared_file_system(tmp_path) is None


async def test_a_new_store_is_refused_and_one_with_a_log_keeps_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """fault 45: no log is begun on a shared file system, and none is taken from a store that may be in use."""
    async with StateDB(tmp_path / "old.db") as state:
        await state.create_progression("p", ["m"])
    monkeypatch.setattr(pragmas, "shared_file_system", lambda _: "virtiofs")
    with pytest.raises(BackendUnavailableError, match="virtiofs"):
        await StateDB(tmp_path / "new.db").open()
    assert 0 == (tmp_path / "new.db").stat().st_size if (tmp_path / "new.db").exists() else True
    async with StateDB(tmp_path / "old.db") as state:
        assert ["m"] == await state.get_progression("p")
    plain = sqlite3.connect(tmp_path / "old.db")
    assert ("wal",) == plain.execute("PRAGMA journal_mode").fetchone()
    plain.close()
