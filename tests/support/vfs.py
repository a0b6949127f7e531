"""A SQLite VFS that fails on command: the default VFS of the library in use, with some file methods replaced.

Works on the very library that the DBAPI module has loaded, in process, without a package, and deterministically: a
fault names the method, the kind of file and how many calls are let through first (ops notes §6).
"""

from __future__ import annotations

import ctypes
import importlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

__all__ = ["FULL", "IOERR_FSYNC", "IOERR_WRITE", "FaultVfs"]

IOERR_WRITE = 10 | 3 << 8
IOERR_FSYNC = 10 | 4 << 8
FULL = 13

Method = Literal["write", "sync", "truncate"]
Kind = Literal["main", "wal", "journal"]
_KIND_FLAGS: tuple[tuple[int, Kind], ...] = ((0x100, "main"), (0x80000, "wal"), (0x800, "journal"))


class _File(ctypes.Structure):
    pass


_WRITE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_File), ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
_SYNC = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_File), ctypes.c_int)
_TRUNCATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_File), ctypes.c_int64)


class _Methods(ctypes.Structure):
    _fields_ = (
        ("iVersion", ctypes.c_int),
        ("xClose", ctypes.c_void_p),
        ("xRead", ctypes.c_void_p),
        ("xWrite", _WRITE),
        ("xTruncate", _TRUNCATE),
        ("xSync", _SYNC),
        *((f"other{number}", ctypes.c_void_p) for number in range(13)),
    )


_File._fields_ = (("pMethods", ctypes.POINTER(_Methods)),)


class _Vfs(ctypes.Structure):
    pass


_OPEN = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(_Vfs),
    ctypes.c_char_p,
    ctypes.POINTER(_File),
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_int),
)
# The name of a database file is followed by its parameters, so that it must be passed on as the pointer it is.
_OPEN_RAW = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(_File), ctypes.c_int, ctypes.c_void_p
)
_Vfs._fields_ = (
    ("iVersion", ctypes.c_int),
    ("szOsFile", ctypes.c_int),
    ("mxPathname", ctypes.c_int),
    ("pNext", ctypes.c_void_p),
    ("zName", ctypes.c_char_p),
    ("pAppData", ctypes.c_void_p),
    ("xOpen", _OPEN_RAW),
    *((f"other{number}", ctypes.c_void_p) for number in range(15)),
)


@dataclass
class _Fault:
    method: Method
    kind: Kind
    code: int
    skip: int
    times: int | None


def _library(module: ModuleType) -> ctypes.CDLL:
    if module.__name__.startswith("pysqlite3"):
        return ctypes.CDLL(importlib.import_module("pysqlite3._sqlite3").__file__)
    return ctypes.CDLL("libsqlite3.so.0")


class FaultVfs:
    """A registered VFS; one for the life of the process, because connections may outlive a test.

    Attributes:
        name: For ``file:…?vfs=name``.
        calls: How often each method of each kind of file was called, failed calls included.
    """

    _installed: dict[str, FaultVfs] = {}  # noqa: RUF012

    def __init__(self, module: ModuleType) -> None:
        """Register the VFS; use ``of``."""
        self.name = "lionstate-fault"
        self.calls: Counter[tuple[Method, Kind]] = Counter()
        self._faults: list[_Fault] = []
        self._kept: list[Any] = []
        self._patched: dict[tuple[int, Kind], Any] = {}
        library = _library(module)
        library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        base = library.sqlite3_vfs_find(None).contents
        self._vfs = _Vfs()
        ctypes.memmove(ctypes.byref(self._vfs), ctypes.byref(base), ctypes.sizeof(_Vfs))
        self._vfs.zName = self.name.encode()
        self._vfs.pNext = None
        original = base.xOpen

        def x_open(vfs: Any, name: Any, file: Any, flags: int, out: Any) -> int:
            code: int = original(vfs, name, file, flags, out)
            kind = next((kind for flag, kind in _KIND_FLAGS if flags & flag), None)
            if code == 0 and kind is not None and file.contents.pMethods:
                file.contents.pMethods = self._methods(file.contents.pMethods, kind)
            return code

        self._vfs.xOpen = _OPEN_RAW(x_open)
        self._kept.append(self._vfs.xOpen)
        if library.sqlite3_vfs_register(ctypes.byref(self._vfs), 0):
            raise RuntimeError("the VFS could not be registered")

    @classmethod
    def of(cls, module: ModuleType) -> FaultVfs:
        """The VFS of a DBAPI module's library, without faults."""
        found = cls._installed.get(module.__name__)
        if found is None:
            found = cls._installed[module.__name__] = cls(module)
        found._faults.clear()
        found.calls.clear()
        return found

    def _methods(self, original: Any, kind: Kind) -> Any:
        key = (ctypes.addressof(original.contents), kind)
        if key not in self._patched:
            methods = _Methods()
            ctypes.memmove(ctypes.byref(methods), original, ctypes.sizeof(_Methods))
            before = original.contents
            write, sync, truncate = before.xWrite, before.xSync, before.xTruncate
            methods.xWrite = _WRITE(lambda f, d, n, at: self._injected("write", kind) or write(f, d, n, at))
            methods.xSync = _SYNC(lambda f, flags: self._injected("sync", kind) or sync(f, flags))
            methods.xTruncate = _TRUNCATE(lambda f, size: self._injected("truncate", kind) or truncate(f, size))
            self._kept += [methods, methods.xWrite, methods.xSync, methods.xTruncate, write, sync, truncate]
            self._patched[key] = ctypes.pointer(methods)
        return self._patched[key]

    def _injected(self, method: Method, kind: Kind) -> int:
        self.calls[method, kind] += 1
        for fault in self._faults:
            if fault.method == method and fault.kind == kind and fault.times != 0:
                if fault.skip:
                    fault.skip -= 1
                    continue
                if fault.times is not None:
                    fault.times -= 1
                return fault.code
        return 0

    def fail(self, method: Method, kind: Kind, code: int, *, skip: int = 0, times: int | None = None) -> None:
        """Fail calls of a method from now on: ``times`` of them, all when None, after ``skip`` that go through."""
        self._faults.append(_Fault(method, kind, code, skip, times))

    def heal(self) -> None:
        """Let everything through."""
        self._faults.clear()

    @contextmanager
    def failing(self, method: Method, kind: Kind, code: int) -> Iterator[None]:
        """Fail a method inside the block."""
        self.fail(method, kind, code)
        try:
            yield
        finally:
            self.heal()
