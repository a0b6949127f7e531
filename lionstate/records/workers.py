"""Workers: who takes tasks, what it can do, and when it was last alive.

Contract: ADR-0055 D1; reference §2.3.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from lionstate.dialects import dialect_of
from lionstate.records.arguments import optional, page_limit, page_offset, takes, texts
from lionstate.records.rows import all_rows, delete_rows, get_row, newest_first, page
from lionstate.records.values import check_text, finite_number
from lionstate.schema.scheduling import workers

__all__ = ["DEFAULT_TARGETS", "delete_worker", "get_worker", "list_workers", "register_heartbeat"]

DEFAULT_TARGETS = ("host",)
_ABILITIES = ("advertised_capabilities", "execution_targets", "last_heartbeat_at")


@takes(
    worker_id=check_text,
    advertised_capabilities=optional(texts),
    execution_targets=optional(texts),
    now=optional(finite_number),
)
def register_heartbeat(
    conn: Connection,
    /,
    *,
    worker_id: str,
    advertised_capabilities: Sequence[str] | None = None,
    execution_targets: Sequence[str] | None = None,
    now: float | None = None,
) -> None:
    """Insert a worker, or replace what it can do and move its heartbeat."""
    row = {
        "worker_id": worker_id,
        "advertised_capabilities": list(advertised_capabilities or ()),
        "execution_targets": list(execution_targets or DEFAULT_TARGETS),
        "last_heartbeat_at": time.time() if now is None else now,
    }
    conn.execute(dialect_of(conn).upsert(workers, ["worker_id"], _ABILITIES).values(row))


@takes(worker_id=check_text)
def get_worker(conn: Connection, /, worker_id: str) -> dict[str, Any] | None:
    """The row or None."""
    return get_row(conn, workers, worker_id=worker_id)


@takes(after_heartbeat_at=optional(finite_number), limit=page_limit, offset=page_offset)
def list_workers(
    conn: Connection, /, *, after_heartbeat_at: float | None = None, limit: int = 100, offset: int = 0
) -> list[dict[str, Any]]:
    """A page of workers, last alive first."""
    found = newest_first(workers, "last_heartbeat_at")
    if after_heartbeat_at is not None:
        found = found.where(workers.c.last_heartbeat_at > after_heartbeat_at)
    return all_rows(conn, page(found, limit, offset))


@takes(worker_id=check_text)
def delete_worker(conn: Connection, /, worker_id: str) -> bool:
    """Remove a worker; False if it is missing. Its leases run out by themselves."""
    return bool(delete_rows(conn, workers, worker_id=worker_id))
