"""``lionstate doctor``: looks at the installation and a store, says what is wrong and what to do; changes nothing."""

from __future__ import annotations

import os
import platform
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lionstate.cli import tables
from lionstate.cli.options import Daemon, Json, Token, Url, run_on
from lionstate.cli.reasons import what_to_do
from lionstate.errors import InvalidInputError, StateError

if TYPE_CHECKING:
    from lionstate.migration import MigrationStatus

__all__ = ["Finding", "doctor"]

Verdict = Literal["ok", "warn", "fail"]
_PATH_LIMIT_BYTES = 107
_LIBRARIES = ("lionstate", "sqlalchemy", "aiosqlite", "asyncpg", "msgspec")
_OF_THE_DAEMON = ("uvicorn", "httptools", "starlette", "prometheus-client")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: What.
        verdict: ``fail`` makes the command exit with something else than 0.
        found: How it is.
        do: What to do; None when it is well.
    """

    check: str
    verdict: Verdict
    found: str
    do: str | None = None


def doctor(
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    socket: Annotated[
        str | None, typer.Option("--socket", help="The daemon's socket, if not beside the store.")
    ] = None,
    pages: Annotated[
        bool, typer.Option("--pages", help="SQLite: read every page of the file, however large it is.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the installation and, with a store or daemon, the store; changes nothing.

    Pages that something has written over are found when they are used, or by --pages.

    Exits with 0 when nothing fails, with the code of the error when the store cannot be looked at, else with 1.
    """
    file = None if url is None or "://" in url else Path(url)
    if pages and file is None:
        raise InvalidInputError("--pages reads a SQLite file: name it with --url")
    findings = [*_installation(), _sqlite()]
    code = 0
    if file is not None:
        findings += _files(file)
        if pages and file.is_file():
            findings.append(_pages(file))
    path = socket or (None if file is None else f"{url}.sock")
    if path is not None:
        findings.append(_socket(path))
    if url is not None or daemon is not None:
        try:
            found = run_on((url, daemon, token), lambda state: state.migration.status(limit=0), reads=True)
        except StateError as error:
            code = error.exit_code
            findings.append(Finding("store", "fail", str(error), _ways_out(error)))
        else:
            findings += _store(found)
    if as_json:
        tables.print_json({"findings": findings})
    else:
        tables.print_rows([[one.verdict, one.check, one.found] for one in findings], ("", "check", "found"))
        for one in findings:
            if one.do is not None:
                tables.note(f"{one.check}: {one.do}")
    raise typer.Exit(code or int(any(one.verdict == "fail" for one in findings)))


def _installation() -> Iterator[Finding]:
    versions = {name: _version(name) for name in (*_LIBRARIES, *_OF_THE_DAEMON)}
    text = ", ".join(f"{name} {found}" for name, found in versions.items() if found is not None)
    missing = [name for name in _LIBRARIES if versions[name] is None]
    again = None if not missing else f"missing: {', '.join(missing)}; pip install --force-reinstall lionstate"
    yield Finding("versions", "fail" if missing else "ok", f"Python {platform.python_version()}, {text}", again)
    absent = [name for name in _OF_THE_DAEMON if versions[name] is None]
    if absent:
        yield Finding("daemon", "warn", f"not installed: {', '.join(absent)}", "pip install 'lionstate[daemon]'")
    else:
        yield Finding("daemon", "ok", "installed")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _sqlite() -> Finding:
    from lionstate.engine.libraries import is_affected, load_module

    module = load_module("auto")
    found = f"{module.__name__.partition('.')[0]} {module.sqlite_version}"
    major, minor, patch = (int(part) for part in module.sqlite_version.split("."))
    if not is_affected((major, minor, patch)):
        return Finding("SQLite", "ok", f"{found}, without the WAL-reset race")
    return Finding(
        "SQLite",
        "warn",
        f"{found}, which has the WAL-reset race",
        "pip install pysqlite3 (0.6.1 or newer); until then let one daemon alone write the file",
    )


def _files(path: Path) -> Iterator[Finding]:
    from lionstate.engine.mounts import shared_file_system
    from lionstate.engine.other_names import named_openers, openers_by_another_name
    from lionstate.engine.ownership import StoreLock

    try:
        found = path.stat()
    except OSError as error:
        # What follows from that, the store itself says.
        yield Finding("file", "warn", f"{error.strerror}: {path}", "name a store that is there with --url")
        return
    others = stat.S_IMODE(found.st_mode) & 0o007
    yield Finding(
        "file",
        "warn" if others else "ok",
        f"mode {stat.S_IMODE(found.st_mode):04o}, owner {found.st_uid}:{found.st_gid}",
        f"everybody on this machine can use it: chmod o-rwx {path} and its -wal and -shm" if others else None,
    )
    if found.st_nlink > 1:
        do = "keep one name and remove the others: each would have a log of its own, so it is opened under none"
        yield Finding("links", "fail", f"the file has {found.st_nlink} names (hard links)", do)
    if elsewhere := openers_by_another_name(path):
        do = (
            "stop that process first, or put the file back under the name that it had: nothing writes it under this one"
        )
        yield Finding("name", "fail", f"{named_openers(elsewhere)} has the file open under another name", do)
    folder = path.resolve().parent
    writable = os.access(folder, os.W_OK | os.X_OK) and os.access(path, os.W_OK)
    yield Finding(
        "rights",
        "ok" if writable else "fail",
        "this user can write the store and its folder" if writable else "this user cannot write it or its folder",
        None if writable else "run as the owner of the store; the log lies beside the file",
    )
    kind = shared_file_system(folder)
    yield Finding(
        "file system",
        "ok" if kind is None else "fail",
        "local" if kind is None else f"{kind} is shared between machines",
        None if kind is None else "move the store to a local disk: a write-ahead log is not safe there",
    )
    owner = StoreLock(path).owner()
    yield Finding("owner", "ok", "no daemon owns the store" if owner is None else f"a daemon, process {owner}")


def _pages(path: Path) -> Finding:
    from lionstate.engine.file_copies import damage_of
    from lionstate.engine.libraries import load_module

    damage = damage_of(path, load_module("auto"))
    if not damage:
        return Finding("pages", "ok", "every page was read, and is whole")
    do = "stop what writes it, keep the file and its -wal, and take the last backup that is whole: lionstate restore"
    return Finding("pages", "fail", f"damaged, {len(damage)} findings, the first: {' '.join(damage[0].split())}", do)


def _socket(path: str) -> Finding:
    size = len(os.fsencode(path))
    if size > _PATH_LIMIT_BYTES:
        return Finding(
            "socket",
            "fail",
            f"its path has {size} bytes, {_PATH_LIMIT_BYTES} are allowed",
            "give a shorter listen.socket",
        )
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return Finding("socket", "ok", f"not there; its path has {size} bytes of {_PATH_LIMIT_BYTES}")
    if not stat.S_ISSOCK(mode):
        return Finding(
            "socket", "fail", f"{path} is not a socket", "move that file away, or give another listen.socket"
        )
    if mode & 0o007:
        return Finding("socket", "fail", f"mode {stat.S_IMODE(mode):04o}", f"chmod o-rwx {path}")
    return Finding("socket", "ok", f"mode {stat.S_IMODE(mode):04o}")


def _store(found: MigrationStatus) -> Iterator[Finding]:
    phases = ", ".join(f"{count:,} {phase}" for phase, count in found.phases.items())
    if found.not_ready is None:
        yield Finding("store", "ok", f"opens, its schema is known; {phases}")
    else:
        do = what_to_do(found.not_ready)
        yield Finding("store", "fail", f"the daemon is not ready: {found.not_ready}; {phases}", do)
    blocked = found.phases.get("blocked", 0)
    if blocked:
        yield Finding("blocked", "warn", f"{blocked:,} progressions", "lionstate progression-migrate blocked list")
    fence = found.fence
    if fence.installed or not fence.guarded:
        yield Finding("fence", "ok", "installed" if fence.installed else "not needed yet")
    else:
        do = "lionstate progression-migrate fence install"
        yield Finding("fence", "fail", f"missing, with {fence.guarded:,} progressions behind it", do)
    sessions: Any = found.foreign_sessions
    if sessions or found.foreign_progressions:
        yield Finding(
            "foreign writers",
            "warn",
            f"{sessions or 0} sessions and {found.foreign_progressions} progressions were written by another program",
            "switch it off or bridge it (lionstate.lionagi) before the cutover",
        )
    else:
        yield Finding("foreign writers", "ok", "none seen" if sessions is not None else "not looked for")


def _ways_out(error: StateError) -> str:
    if error.code == "daemon_unreachable" and isinstance(error.__cause__, TimeoutError):
        return (
            "wake the daemon's process (kill -CONT), or relieve its machine; if it stays silent, kill it and start it"
            " again: nothing that it acknowledged is lost"
        )
    return {
        "closed": "try again",
        "ownership_conflict": "ask the daemon: pass --daemon with its address",
        "backend_busy": "try again when the other program has ended its transaction",
        "daemon_unreachable": "start the daemon, or name its address with --daemon",
        "access_denied": "pass --token, or run as the daemon's user or a member of listen.socket_group",
    }.get(error.code, "see the message; nothing was changed")
