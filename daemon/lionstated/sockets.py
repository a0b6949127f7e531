"""Listening sockets: bound by us, with their mode from birth, or inherited from the service manager."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import socket
import stat
from dataclasses import dataclass, field

from lionstate.engine.ownership import lock_file
from lionstate.errors import BackendUnavailableError, InvalidInputError, OwnershipConflictError

__all__ = ["BoundSocket", "bind_tcp", "bind_unix", "group_id_of", "inherited_sockets"]

_PATH_LIMIT_BYTES = 107
_FIRST_INHERITED_FD = 3


@dataclass(slots=True)
class BoundSocket:
    """A bound, not yet listening socket and what has to go when it ends."""

    sock: socket.socket
    path: str | None = None
    group_id: int | None = None
    _identity: tuple[int, int] | None = field(default=None, repr=False)
    _lock_fd: int | None = field(default=None, repr=False)

    def release(self) -> None:
        """Close it and remove its file, if that is still ours."""
        self.sock.close()
        if self.path is not None and self._identity is not None and _identity(self.path) == self._identity:
            # In a folder that may not be written any more it stays, and the next start there replaces it.
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        self._identity = None
        if self.path is not None and self._lock_fd is not None:
            _unlock(self.path, self._lock_fd)
            self._lock_fd = None


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def bind_unix(path: str, *, group: str | None = None, make_folder: bool = False) -> BoundSocket:
    """Bind a Unix socket that is 0600 from birth, or 0660 for `group`; its folder is made on request.

    A leftover file is removed if nobody answers there. `PATH.lock` is held meanwhile, since a socket that is
    bound and not yet listening looks dead to others.

    Raises:
        InvalidInputError: The path is too long, or the group does not exist.
        OwnershipConflictError: Another process owns the address.
        BackendUnavailableError: The path cannot be used.
    """
    size = len(os.fsencode(path))
    if size > _PATH_LIMIT_BYTES:
        raise InvalidInputError(
            f"the socket's path has {size} bytes, the system allows {_PATH_LIMIT_BYTES}; give a shorter listen.socket"
            f" than {path}"
        )
    group_id = group_id_of(group)
    if make_folder:
        _make_folder(os.path.dirname(path) or ".")
    lock_fd = _lock(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        previous = os.umask(0o177)
        try:
            sock.bind(path)
        finally:
            os.umask(previous)
        if group_id is not None:
            # The group first: the mode opens it to nobody but that group, at no moment.
            os.chown(path, -1, group_id)
            os.chmod(path, 0o660)
    except OSError as exc:
        sock.close()
        _unlock(path, lock_fd)
        if exc.errno == errno.EADDRINUSE:
            raise OwnershipConflictError(f"address already owned: {path}") from exc
        raise BackendUnavailableError(f"cannot bind {path}: {exc.strerror}") from exc
    except BaseException:
        sock.close()
        _unlock(path, lock_fd)
        raise
    return BoundSocket(sock, path, group_id, _identity(path), lock_fd)


def group_id_of(group: str | None) -> int | None:
    """The id of a group given by name or number; None for none.

    Raises:
        InvalidInputError: It does not exist.
    """
    if group is None:
        return None
    try:
        return int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    except KeyError as exc:
        raise InvalidInputError(f"listen.socket_group: there is no group {group}") from exc


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as exc:
        raise BackendUnavailableError(f"the store's folder cannot be made: {exc.strerror}: {folder}") from exc


def _lock(path: str) -> int:
    try:
        return lock_file(path + ".lock")
    except BlockingIOError as exc:
        raise OwnershipConflictError(f"address already owned: {path}") from exc
    except OSError as exc:
        raise BackendUnavailableError(f"cannot bind {path}: {exc.strerror}") from exc


def _unlock(path: str, fd: int) -> None:
    # A folder that may not be written keeps it; a lock file that nobody holds says nothing.
    with contextlib.suppress(OSError):
        os.unlink(path + ".lock")
    os.close(fd)


def _remove_stale(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise BackendUnavailableError(f"cannot bind {path}: it exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except FileNotFoundError:
            return
        except OSError:
            # Full backlog, no permission, timeout: somebody may well be there.
            pass
    raise OwnershipConflictError(f"address already owned: {path}")


def bind_tcp(host: str, port: int) -> BoundSocket:
    """Bind a TCP socket; port 0 takes a free one.

    Raises:
        OwnershipConflictError: The address is in use.
        BackendUnavailableError: The address cannot be used.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With protocol 0 the loop does not set TCP_NODELAY on what it accepts: 44 ms a request.
        sock = socket.socket(family, kind, socket.IPPROTO_TCP)
    except OSError as exc:
        raise BackendUnavailableError(f"cannot bind {host}:{port}: {exc.strerror}") from exc
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except OSError as exc:
        sock.close()
        if exc.errno == errno.EADDRINUSE:
            raise OwnershipConflictError(f"address already owned: {host}:{port}") from exc
        raise BackendUnavailableError(f"cannot bind {host}:{port}: {exc.strerror}") from exc
    return BoundSocket(sock)


def inherited_sockets() -> list[tuple[str, socket.socket]]:
    """Sockets handed over by the service manager (LISTEN_FDS), with their names; [] if none are ours.

    Takes the variables out of the environment, so that children do not see them.
    """
    count = os.environ.pop("LISTEN_FDS", "")
    pid = os.environ.pop("LISTEN_PID", "")
    names = os.environ.pop("LISTEN_FDNAMES", "").split(":")
    if not count.isdecimal() or pid != str(os.getpid()):
        return []
    found: list[tuple[str, socket.socket]] = []
    for index in range(int(count)):
        sock = socket.socket(fileno=_FIRST_INHERITED_FD + index)
        os.set_inheritable(sock.fileno(), False)
        found.append((names[index] if index < len(names) else "", sock))
    return found
