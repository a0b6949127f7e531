"""The server of row 3: uvicorn as lionstated runs it, and handlers that write on one raw connection.

``python -m tests.bench.floor_server SOCKET STORE MODULE SYNCHRONOUS``
"""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
import sys
from pathlib import Path

import msgspec
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.bench.floor import SqliteFloor
from tests.bench.stores import Conversation

_OK = b"null"


def make_app(floor: SqliteFloor) -> Starlette:
    """The two writes of lionstated's API, answered as it answers them."""

    async def record_message(request: Request) -> Response:
        given = msgspec.json.decode(await request.body())
        branch, session = given["branch_progression_id"], given["session_progression_id"]
        floor.record(given["msg"], Conversation(given["session_id"], "", session, branch))
        return Response(_OK, media_type="application/json")

    async def append(request: Request) -> Response:
        given = msgspec.json.decode(await request.body())
        floor.append(given["progression_id"], given["message_id"])
        return Response(_OK, media_type="application/json")

    return Starlette(
        routes=[
            Route("/v1/ops/record_message", record_message, methods=["POST"]),
            Route("/v1/ops/append_to_progression", append, methods=["POST"]),
        ]
    )


def main(path: str, store: str, module: str, synchronous: str) -> None:
    """Serve until SIGTERM."""
    floor = SqliteFloor(Path(store), importlib.import_module(module), synchronous)
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(path)
    os.chmod(path, 0o600)
    config = uvicorn.Config(
        make_app(floor),
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        backlog=1024,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[sock]))
    floor.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
