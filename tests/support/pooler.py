"""Start and stop a PgBouncer in transaction mode before a test server."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import make_url

from tests.support.postgres import (
    PostgresServer,
    PostgresUnavailableError,
    die_with_parent,
    free_port,
    unprivileged_account,
)

__all__ = ["Pooler", "pooler_before"]

_PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
_READY = "listening on 127.0.0.1"


class Pooler:
    """A running PgBouncer."""

    def __init__(self, port: int) -> None:
        """Name it by its port."""
        self.port = port

    def dsn(self, dsn: str) -> str:
        """The URL of the same database through the pooler."""
        return make_url(dsn).set(port=self.port).render_as_string(hide_password=False)


@contextmanager
def pooler_before(server: PostgresServer, *, connections: int) -> Iterator[Pooler]:
    """Run a PgBouncer that has so many connections to each database of the server.

    Raises:
        PostgresUnavailableError: There is no PgBouncer on this machine.
    """
    if _PROGRAM is None:
        raise PostgresUnavailableError("no pgbouncer on this machine")
    port, account = free_port(), unprivileged_account()
    target = make_url(server.dsn())
    with tempfile.TemporaryDirectory(prefix="ls-pooler") as name:
        folder = Path(name)
        (folder / "users").write_text('"postgres" ""\n', encoding="utf-8")
        settings = folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host={target.host} port={target.port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {folder / 'users'}\npool_mode = transaction\n"
            f"default_pool_size = {connections}\nmax_client_conn = 200\nquery_wait_timeout = 30\n",
            encoding="utf-8",
        )
        if account is not None:
            for path in (folder, *folder.iterdir()):
                os.chown(path, account.uid, account.gid)
        process = subprocess.Popen(
            [_PROGRAM, str(settings)],
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            preexec_fn=die_with_parent,
            **({} if account is None else account.popen_arguments()),
        )
        assert process.stderr is not None
        try:
            said = ""
            for line in process.stderr:
                said += line
                if _READY in line:
                    break
            else:
                raise RuntimeError(f"PgBouncer did not start:\n{said}")
            # What it goes on to say would fill the pipe.
            with subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL) as rest:
                yield Pooler(port)
                process.kill()
                rest.wait(10)
        finally:
            process.kill()
            process.wait(10)
            process.stderr.close()
