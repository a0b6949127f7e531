"""Operations that change the status or the invocation of sessions and branches."""

from __future__ import annotations

from lionstate.operations.table import Operation, operation, touching
from lionstate.records import imported_sessions, session_lifecycle

__all__ = ["TABLE"]

TABLE: tuple[Operation, ...] = (
    operation(
        session_lifecycle.update_session,
        writes=True,
        idempotent=False,
        keys=touching("s:session_id", "i:invocation_id", "m:first_msg_id", "m:last_msg_id"),
    ),
    operation(session_lifecycle.finalize_branch, writes=True, idempotent=False, keys=touching("b:branch_id")),
    # The invocation that it points at now changes too, and only the row knows which: it waits for its row lock.
    operation(
        session_lifecycle.attach_session_invocation, writes=True, keys=touching("s:session_id", "i:invocation_id")
    ),
    operation(session_lifecycle.sessions_by_source_kind),
    # It deletes what nothing else holds: nothing else may begin to.
    operation(imported_sessions.delete_imported_session, writes=True, idempotent=False),
)
