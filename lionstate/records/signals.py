"""Signals of sessions: an append-only sequence for each.

Contract: ADR-0055 D1; reference §2.5.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, select

from lionstate.dialects import dialect_of
from lionstate.records.arguments import mapping, page_limit, takes, whole
from lionstate.records.rows import all_rows, insert_row, page
from lionstate.records.values import check_text, finite_number
from lionstate.schema.control import session_signals

__all__ = ["get_session_signals_after", "insert_session_signal"]


@takes(session_id=check_text, kind=check_text, op_id=check_text, ts=finite_number, payload=mapping)
def insert_session_signal(
    conn: Connection, /, *, session_id: str, kind: str, op_id: str = "", ts: float, payload: Mapping[str, Any]
) -> int:
    """Insert a signal with the session's next number and return it; a missing session raises.

    The number is taken under a lock of the session's word, which LionAGI takes too, so that none is lost or doubled.
    """
    dialect_of(conn).lock_word(conn, session_id)
    last = select(func.coalesce(func.max(session_signals.c.seq), 0)).where(session_signals.c.session_id == session_id)
    seq = int(conn.execute(last).scalar_one()) + 1
    row = {"session_id": session_id, "seq": seq, "kind": kind, "op_id": op_id, "ts": ts, "payload": payload}
    insert_row(conn, session_signals, {"id": uuid.uuid4().hex, **row})
    return seq


@takes(session_id=check_text, after_seq=whole(-1), limit=page_limit)
def get_session_signals_after(
    conn: Connection, /, session_id: str, after_seq: int, *, limit: int = 500
) -> list[dict[str, Any]]:
    """A page of a session's signals, ascending; a payload that is no object reads as {}."""
    found = select(session_signals).where(session_signals.c.session_id == session_id)
    rows = all_rows(conn, page(found.where(session_signals.c.seq > after_seq).order_by(session_signals.c.seq), limit))
    for row in rows:
        if not isinstance(row["payload"], dict):
            row["payload"] = {}
    return rows
