"""A write that leaves nothing: it shows whether the store takes writes again."""

from __future__ import annotations

import time
import uuid

from sqlalchemy import Connection, delete, insert

from lionstate.schema.own import request_receipts

__all__ = ["probe_writes"]

_CALLER = "lionstate:probe"


def probe_writes(conn: Connection, /) -> None:
    """Write a row and remove it, which needs room in the log as any write does.

    Cost: two statements on a table that is small.
    """
    row = {"caller": _CALLER, "key": uuid.uuid4().hex, "params_hash": "", "outcome": None, "created_at": time.time()}
    conn.execute(insert(request_receipts).values(**row))
    conn.execute(delete(request_receipts).where(request_receipts.c.caller == _CALLER))
