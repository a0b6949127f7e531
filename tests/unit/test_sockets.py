"""Sockets: modes, stale and live files, limits, inheritance."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lionstate.errors import BackendUnavailableError, InvalidInputError, OwnershipConflictError
from lionstated.sockets import bind_tcp, bind_unix, inherited_sockets


@pytest.fixture
def path() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="ls") as folder:
        yield str(Path(folder) / "s.sock")


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_private_from_birth_and_gone_after_release(path: str) -> None:
    """fault 61: whatever the umask is, and without touching it."""
    previous = os.umask(0)
    try:
        bound = bind_unix(path)
        assert mode_of(path) == 0o600
        assert os.umask(0) == 0
    finally:
        os.umask(previous)
    bound.release()
    bound.release()
    assert not os.path.exists(path)


def test_group_opens_it_to_that_group(path: str) -> None:
    bound = bind_unix(path, group=str(os.getegid()))
    assert (mode_of(path), os.stat(path).st_gid) == (0o660, os.getegid())
    bound.release()
    with pytest.raises(InvalidInputError, match="socket_group"):
        bind_unix(path, group="no-such-group")


def test_a_leftover_is_replaced_and_a_live_one_respected(path: str) -> None:
    """fault 61: what a crash leaves is no obstacle."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    first = bind_unix(path)
    # Bound and not yet listening looks dead to a connect: the lock tells.
    with pytest.raises(OwnershipConflictError) as caught:
        bind_unix(path)
    assert (caught.value.exit_code, "address already owned" in str(caught.value)) == (10, True)
    first.release()
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(path)
        foreign.listen()
        with pytest.raises(OwnershipConflictError):
            bind_unix(path)
        assert os.path.exists(path)


def test_a_file_that_is_not_a_socket_is_left_alone(path: str) -> None:
    Path(path).write_text("data")
    with pytest.raises(BackendUnavailableError, match="not a socket"):
        bind_unix(path)
    assert Path(path).read_text() == "data"


def test_release_leaves_a_successors_file(path: str) -> None:
    first = bind_unix(path)
    os.unlink(path)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(path)
        first.release()
        assert os.path.exists(path)


def test_release_in_a_folder_that_is_closed_now(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be removed stays; the next one there replaces it."""

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    bound = bind_unix(path)
    with monkeypatch.context() as closed:
        closed.setattr(os, "unlink", refuse)
        bound.release()
    assert os.path.exists(path)
    bind_unix(path).release()
    assert not os.path.exists(path)


def test_limits_and_missing_folders() -> None:
    with pytest.raises(InvalidInputError, match="107"):
        bind_unix("/tmp/" + "x" * 110)
    with pytest.raises(BackendUnavailableError) as caught:
        bind_unix("/nonexistent/s.sock")
    assert caught.value.exit_code == 4


def test_tcp_has_its_protocol_and_says_who_owns_the_port() -> None:
    bound = bind_tcp("127.0.0.1", 0)
    assert bound.sock.proto == socket.IPPROTO_TCP
    bound.sock.listen()
    with pytest.raises(OwnershipConflictError):
        bind_tcp(*bound.sock.getsockname())
    bound.release()
    with pytest.raises(BackendUnavailableError):
        bind_tcp("192.0.2.1", 0)


def test_inherited_sockets_are_ours_only_by_process_id(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        monkeypatch.setattr("lionstated.sockets._FIRST_INHERITED_FD", os.dup(listener.fileno()))
        monkeypatch.setenv("LISTEN_FDS", "1")
        monkeypatch.setenv("LISTEN_PID", "1")
        assert inherited_sockets() == []
        monkeypatch.setenv("LISTEN_FDS", "1")
        monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
        monkeypatch.setenv("LISTEN_FDNAMES", "ops")
        [(name, sock)] = inherited_sockets()
        assert (name, sock.get_inheritable(), "LISTEN_FDS" in os.environ) == ("ops", False, False)
        sock.close()
