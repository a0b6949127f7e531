"""POSIX locks belong to the process: one SQLite library per file, and no plain ``open()`` (design §2.4)."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
from pathlib import Path

import pytest

from lionstate import StateDB
from lionstate.engine.libraries import is_affected
from lionstate.engine.url import StoreURL
from lionstate.errors import BackendUnavailableError
from tests.support.children import ROOT, output_of

two_libraries = pytest.mark.skipif(
    importlib.util.find_spec("pysqlite3") is None and not os.environ.get("CI"),
    reason="there is no wheel of pysqlite3 for this machine",
)

# A writer's process closes a plain handle on the store; another process then believes that it is the last one, moves
# the log and removes it; what the writer commits afterwards goes into a file that has no name any more.
_PLAIN_OPEN = """
import sqlite3, subprocess, sys
path, how = sys.argv[1:]
conn = sqlite3.connect(path, isolation_level=None)
conn.execute("PRAGMA journal_mode = WAL")
conn.execute("CREATE TABLE t (a)")
conn.execute("INSERT INTO t VALUES ('before')")
if how == "open":
    open(path, "rb").close()
foreign = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM t').fetchall(); c.close()"
subprocess.run([sys.executable, "-c", foreign, path], check=True)
conn.execute("INSERT INTO t VALUES ('acknowledged')")
count = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM t').fetchone()[0])"
print(subprocess.run([sys.executable, "-c", count, path], check=True, capture_output=True, text=True).stdout)
"""


@two_libraries
@pytest.mark.linux
@pytest.mark.parametrize(("how", "rows"), [("open", 1), ("stat", 2)])
def test_a_plain_open_loses_an_acknowledged_commit(tmp_path: Path, how: str, rows: int) -> None:
    """The fault itself, so that the rule against it stays believable."""
    assert rows == int(output_of(_PLAIN_OPEN, tmp_path / "raw.db", how))


# Files of the product that may open files, and which: never a store.
_MAY_OPEN = {
    "lionstate/artifacts.py": "files under an artifact root",
    "lionstate/startup.py": "the null device",
    "lionstate/copying/backup.py": "a backup and its manifest, which nobody has open as a store",
    "lionstate/engine/file_copies.py": "makes a missing file with O_EXCL; the folder",
    "lionstate/lionagi/fingerprints.py": "sources of another package",
    "daemon/lionstated/child_process.py": "pipes to the child",
    "daemon/lionstated/settings/files.py": "configuration, tokens, certificate and private key",
    "lionstate/engine/libraries.py": "makes a missing store file with O_EXCL, before SQLite has it; reads /proc",
    "lionstate/engine/ownership.py": "the daemon's own lock file",
    "lionstate/copying/places.py": "makes a missing file with O_EXCL",
    "daemon/lionstated/api/status_page.py": "the files of the page",
    "daemon/lionstated/settings/__main__.py": "the configuration of this repository",
    "daemon/lionstated/settings/text.py": "the README of this repository",
    "lionstate/engine/mounts.py": "the list of mounts in /proc",
    "daemon/lionstated/settings/load.py": "the configuration",
    "daemon/lionstated/sockets.py": "the lock of a socket",
}
_OPENING = {"open", "read_bytes", "read_text", "write_bytes", "write_text", "copyfile", "copy", "copy2", "fdopen"}
_OF_MODULES = {"os", "io", "shutil", "Path", "builtins"}


def _opens(tree: ast.AST) -> list[int]:
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id == "open":
            found.append(node.lineno)
        if isinstance(called, ast.Attribute) and called.attr in _OPENING:
            owner = called.value
            ours = called.attr in ("open", "copy") and not (isinstance(owner, ast.Name) and owner.id in _OF_MODULES)
            if not ours:
                found.append(node.lineno)
    return found


def test_no_product_code_opens_a_file_that_may_be_a_store() -> None:
    """Sizes by ``stat``, versions by a query, copies by the backup API."""
    files = [*ROOT.glob("lionstate/**/*.py"), *ROOT.glob("daemon/lionstated/**/*.py")]
    assert len(files) > 50
    found = {
        str(file.relative_to(ROOT)): lines
        for file in files
        if (lines := _opens(ast.parse(file.read_text(encoding="utf-8"))))
    }
    assert {} == {name: lines for name, lines in found.items() if name not in _MAY_OPEN}


@pytest.mark.parametrize(
    "line",
    [
        "open(path)",
        "Path(p).read_bytes()",
        "path.read_text()",
        "os.open(p, 0)",
        "shutil.copy(a, b)",
        "shutil.copyfile(a, b)",
    ],
)
def test_the_lint_sees_an_open(line: str) -> None:
    """It can fail."""
    assert [1] == _opens(ast.parse(line))


_OPEN_BOTH = """
import asyncio, json, sys
from lionstate.engine import EngineSettings
from lionstate.errors import StateError
from lionstate.store import Store

async def main(first, second, module_1, module_2):
    store = await Store.open(first, EngineSettings(sqlite_module=module_1))
    try:
        other = await Store.open(second, EngineSettings(sqlite_module=module_2))
        await other.close()
        print("opened")
    except StateError as error:
        print(error.code)
    await store.close()
    other = await Store.open(second, EngineSettings(sqlite_module=module_2))
    print("later", other.sqlite_info[0])
    await other.close()

asyncio.run(main(*sys.argv[1:]))
"""


@two_libraries
@pytest.mark.parametrize(
    ("same_file", "modules", "expected"),
    [
        (True, ("stdlib", "pysqlite3"), "two_sqlite_libraries"),
        (False, ("pysqlite3", "stdlib"), "two_sqlite_libraries"),
        (True, ("pysqlite3", "pysqlite3"), "opened"),
        (False, ("stdlib", "stdlib"), "opened"),
    ],
)
def test_a_second_library_in_one_process_is_refused(
    tmp_path: Path, same_file: bool, modules: tuple[str, str], expected: str
) -> None:
    """On whatever file, as long as a store is open through the first; a new file is no exception."""
    first = tmp_path / "a.db"
    second = first if same_file else tmp_path / "b.db"
    lines = output_of(_OPEN_BOTH, first, second, *modules).splitlines()
    assert expected == lines[0]
    assert lines[1].startswith("later 3.")


_FOREIGN_HANDLE = """
import asyncio, json, sqlite3, sys
from lionstate import StateDB
from lionstate.engine import EngineSettings
from lionstate.errors import StateError

async def attempt(path, module):
    try:
        async with StateDB(path, settings=EngineSettings(sqlite_module=module)):
            return "opened"
    except StateError as error:
        return error.code

async def main(path):
    found = [await attempt(path, "pysqlite3")]
    handle = sqlite3.connect(path)
    handle.execute("SELECT count(*) FROM sqlite_master").fetchone()
    found.append(await attempt(path, "pysqlite3"))
    found.append(await attempt(path + ".other", "pysqlite3"))
    handle.close()
    found.append(await attempt(path, "pysqlite3"))
    print(json.dumps(found))

asyncio.run(main(sys.argv[1]))
"""


@two_libraries
@pytest.mark.linux
def test_a_store_that_the_process_has_open_otherwise_is_refused(tmp_path: Path) -> None:
    """With two libraries mapped an open handle on the inode may be the other library's."""
    found = json.loads(output_of(_FOREIGN_HANDLE, tmp_path / "state.db"))
    assert ["opened", "two_sqlite_libraries", "opened", "opened"] == found


_OWN = """
import asyncio, sys
from lionstate.errors import OwnershipConflictError
from lionstate.store import Store

async def main(path):
    try:
        store = await Store.open(path, own=True)
    except OwnershipConflictError as error:
        print(error)
        return
    print("owned", flush=True)
    sys.stdin.readline()
    await store.close()

asyncio.run(main(sys.argv[1]))
"""


def test_a_store_has_one_owner(tmp_path: Path) -> None:
    """Decision 27: the second daemon is told who the first is; a killed owner leaves nothing to clean up."""
    from tests.support.children import child

    path = tmp_path / "state.db"
    with child(_OWN, path) as first:
        assert first.stdout is not None
        assert "owned\n" == first.stdout.readline()
        assert output_of(_OWN, path).startswith(f"the store is owned by process {first.pid}, ")
        first.kill()
        first.wait()
        with child(_OWN, path) as second:
            assert second.stdout is not None
            assert "owned\n" == second.stdout.readline()
    assert (tmp_path / "state.db.lionstated.lock").exists()
    assert (tmp_path / "state.db") == StoreURL.of(path).path


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 4), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 0), True),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 53, 4), False),
    ],
)
def test_the_verdict_on_a_version(version: tuple[int, int, int], affected: bool) -> None:
    """Fault 44: 3.7.0 to 3.51.2, fixed in 3.44.6, 3.50.7 and 3.51.3."""
    assert affected is is_affected(version)


async def test_a_store_under_two_names_is_refused(tmp_path: Path) -> None:
    """SQLite names its log after the path: two names of one file are two logs, and acknowledged writes are lost."""
    path = tmp_path / "state.db"
    async with StateDB(path) as state:
        await state.create_progression("p")
    (tmp_path / "other.db").hardlink_to(path)
    for name in ("state.db", "other.db"):
        with pytest.raises(BackendUnavailableError, match="several hard links"):
            await StateDB(tmp_path / name).open()
    (tmp_path / "other.db").unlink()
    async with StateDB(path) as state:
        assert [] == await state.get_progression("p")
