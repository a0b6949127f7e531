"""The least read, which shows that the store answers, and a write that leaves nothing, that it takes writes."""

from __future__ import annotations

import time
import uuid

from sqlalchemy import Connection, delete, insert, select

from lionstate.schema.control import schema_meta
from lionstate.schema.opening import OWN_VERSION_KEY
from lionstate.schema.own import request_receipts

__all__ = ["probe_reads", "probe_writes"]

_CALLER = "lionstate:probe"
_VERSION = select(schema_meta.c.value).where(schema_meta.c.key == OWN_VERSION_KEY)


def probe_reads(conn: Connection, /) -> None:
    """Read the version of the store. Cost: one primary-key seek."""
    conn.execute(_VERSION).one_or_none()


def probe_writes(conn: Connection, /) -> None:
    """Write a row and remove it, which needs room in the log as any write does.

    Cost: two statements on a table that is small.
    """
    row = {"caller": _CALLER, "key": uuid.uuid4().hex, "params_hash": "", "outcome": None, "created_at": time.time()}
    conn.execute(insert(request_receipts).values(**row))
    conn.execute(delete(request_receipts).where(request_receipts.c.caller == _CALLER))
