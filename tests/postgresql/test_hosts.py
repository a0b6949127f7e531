"""A URL with several hosts: the one that takes writes is found, whatever the others do."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from sqlalchemy.engine import make_url

from lionstate import StateDB
from lionstate.errors import BackendUnavailableError, InvalidInputError
from tests.support.backends import database_of
from tests.support.postgres import PostgresServer, free_port


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A host that is reached and never answers, like one whose machine hangs."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as found:
        yield found


def _url(database: str, *ports: int | None) -> str:
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgresql://postgres@{hosts}/{database}?sslmode=disable&connect_timeout=1"


def _attempts(silent: socket.socket) -> int:
    silent.setblocking(False)
    count = 0
    while True:
        try:
            silent.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


async def test_a_host_that_does_not_answer_is_passed_by_once(
    postgres_18: PostgresServer, silent: socket.socket
) -> None:
    """Each pool waits for it once; from then on the host that served last is asked first."""
    server = make_url(database_of(postgres_18, "hosts"))
    url = _url(str(server.database), silent.getsockname()[1], server.port)
    async with StateDB(url=url) as state:
        await state.create_progression("p", ["a"])
        async with state.read_snapshot(), state.read_snapshot():
            assert ["a"] == await state.get_progression("p")
        await state.delete_progression("p")
    assert 2 == _attempts(silent)


async def test_hosts_of_which_none_takes_writes_are_told_with_their_reasons(postgres_18: PostgresServer) -> None:
    server = make_url(database_of(postgres_18, "read_only"))
    postgres_18.execute("ALTER DATABASE read_only SET default_transaction_read_only = on")
    with pytest.raises(BackendUnavailableError, match="host 1: ConnectionRefusedError, host 2: read-only"):
        await StateDB(url=_url("read_only", free_port(), server.port)).open()
    with pytest.raises(BackendUnavailableError, match="host 1: read-only, host 2: read-only"):
        await StateDB(url=_url("read_only", server.port, server.port)).open()


@pytest.mark.parametrize("limit", ["0", "-1", "1.5", "x"])
async def test_what_is_no_time_limit_is_refused(limit: str) -> None:
    with pytest.raises(InvalidInputError, match="connect_timeout"):
        await StateDB(url=f"postgresql://127.0.0.1/db?connect_timeout={limit}").open()
