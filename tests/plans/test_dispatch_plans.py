"""Looking for due dispatches reads the open ones by the index on them, however many have ended."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, Executable

from lionstate.dialects import dialect_of
from lionstate.records import dispatch_attempts
from tests.support.backends import Backend
from tests.support.phases import run


@pytest.mark.parametrize("statement", [dispatch_attempts.NEXT_AT, dispatch_attempts.due(1.0, 32)], ids=["next", "due"])
async def test_due_dispatches_are_found_by_their_index(backend: Backend, statement: Executable) -> None:
    await backend.execute(
        "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 20000)"
        " INSERT INTO dispatch_outbox (id, kind, deliver_to, payload, status, next_attempt_at, created_at)"
        " SELECT 'd' || x, 'k', 'd', '{}', CASE WHEN x % 1000 = 0 THEN 'pending' ELSE 'delivered' END, 1.0, 1.0 FROM n"
    )

    def script(conn: Connection) -> str:
        return dialect_of(conn).explain(conn, statement, {})

    plan: str = await run(backend.direct, script)
    assert "idx_dispatch_outbox_due" in plan, plan
    assert "Seq Scan" not in plan, plan
