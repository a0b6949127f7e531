"""Who has a SQLite file open under another name, by the locks that the operating system tells of.

SQLite locks the file itself but names the log and its index after the path: two names are two logs of one file.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["named_openers", "openers_by_another_name"]

_LOCKS: Final = Path("/proc/locks")
# What every connection holds for reading: in a file with a log for as long as it is open, and on that log's index.
_SHARED_BYTE: Final = 0x40000002
_INDEX_BYTES: Final = (120, 128)
_LOOKS: Final = 6
_ENOUGH: Final = 5
_PAUSE_SECONDS: Final = 0.05
# What is listed of processes that this one may not see; all of them are one group.
_UNSEEN: Final = 0


@dataclass(slots=True)
class _Held:
    """Locks of connections that a process holds, by device and number of the file."""

    files: Counter[tuple[int, int]] = field(default_factory=Counter)
    indexes: Counter[tuple[int, int]] = field(default_factory=Counter)


def openers_by_another_name(path: Path) -> list[int]:
    """The ids of the processes that have the file open, each with an index (-shm) that is not beside this name.

    Neither the file nor anything beside it is opened: closing a descriptor would drop this process's locks on it.

    Returns:
        Ascending; 0 for any that this process may not see. [] where locks are not told (anything but Linux), and where
        a file system gives its files other numbers there.

    Cost: two reads of the list of locks; 250 ms and five more only before somebody is named, so that who is just
        opening or closing it is not.
    """
    # The list changes while it is read, and what is in it may be left out: one look of several may not see it.
    seen = Counter(_look(path) | _look(path))
    for left in reversed(range(_LOOKS - 1)):
        if not seen:
            break
        time.sleep(_PAUSE_SECONDS)
        seen.update(_look(path))
        seen = Counter({process: count for process, count in seen.items() if count + left >= _ENOUGH})
    return sorted(seen)


def named_openers(processes: Iterable[int]) -> str:
    """What ``openers_by_another_name`` found, for people."""
    return "process " + ", ".join(str(process or "not visible from here") for process in processes)


def _look(path: Path) -> set[int]:
    name = os.path.realpath(path)
    try:
        file, listed = _identity(name), _listed()
    except OSError:
        return set()
    try:
        index = _identity(f"{name}-shm")
    except FileNotFoundError:
        index = None
    except OSError:
        return set()
    return _elsewhere(listed, file, index)


def _listed() -> str:
    """The list, in as few reads as can be: between two of them it changes."""
    with _LOCKS.open("rb", buffering=0) as file:
        return b"".join(iter(lambda: file.read(1 << 20), b"")).decode("ascii", "replace")


def _identity(name: str) -> tuple[int, int]:
    found = os.stat(name)
    return found.st_dev, found.st_ino


def _elsewhere(listed: str, file: tuple[int, int], index: tuple[int, int] | None) -> set[int]:
    """Who holds ``file`` more often than ``index``, and has as many indexes as files.

    Without an index there is no second log: who is between the two locks has none yet, nor has a reader that may not
    write beside the file, and an exclusive connection keeps everybody else out by itself.
    """
    found = set()
    for process, held in _by_process(listed).items():
        missing = held.files[file] - (0 if index is None else held.indexes[index])
        if missing > 0 and held.indexes.total() >= held.files.total():
            found.add(process)
    return found


def _by_process(listed: str) -> dict[int, _Held]:
    processes: dict[int, _Held] = {}
    told: set[tuple[int, tuple[int, int], int, int]] = set()
    for line in listed.splitlines():
        # number, "POSIX", "ADVISORY", "READ" or "WRITE", process, major:minor:number of the file, first byte, last byte
        words = line.split()
        if len(words) != 8 or words[1] != "POSIX" or words[3] != "READ":
            continue
        try:
            process, first = int(words[4]), int(words[6])
            last = first if words[7] == "EOF" else int(words[7])
            major, minor, number = words[5].split(":")
            identity = (os.makedev(int(major, 16), int(minor, 16)), int(number))
        except ValueError:
            continue
        lock = (process, identity, first, last)
        if process > _UNSEEN and lock in told:
            # No process has one lock twice: the list moved on while it was read.
            continue
        told.add(lock)
        held = processes.setdefault(max(process, _UNSEEN), _Held())
        if first <= _SHARED_BYTE <= last:
            held.files[identity] += 1
        elif _INDEX_BYTES[0] <= first and last == _INDEX_BYTES[1]:
            held.indexes[identity] += 1
    return processes
