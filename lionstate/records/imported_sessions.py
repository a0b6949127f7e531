"""Deletion of a session that an importer wrote, and of what only it holds.

Contract: ADR-0055 D1; reference §2.1; design decision 18.
"""

from __future__ import annotations

from sqlalchemy import Connection

from lionstate.records.arguments import takes
from lionstate.records.rows import get_row
from lionstate.records.session_removal import lock_conversations, plan_removal, remove_sessions
from lionstate.records.values import check_text
from lionstate.schema.conversation import sessions

__all__ = ["delete_imported_session"]


@takes(session_id=check_text, require_source_kind=check_text)
def delete_imported_session(conn: Connection, /, session_id: str, *, require_source_kind: str) -> bool:
    """Delete an imported session, its branches, and the progressions and messages that nothing else holds."""
    if not require_source_kind.startswith("imported_") or get_row(conn, sessions, id=session_id) is None:
        return False
    lock_conversations(conn)
    session = get_row(conn, sessions, id=session_id)
    if session is None or session["source_kind"] != require_source_kind:
        return False
    remove_sessions(conn, [session_id], plan_removal(conn, [session_id], careful=False))
    return True
