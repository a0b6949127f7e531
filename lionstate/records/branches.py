"""Branches."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, select, update

from lionstate.dialects import dialect_of
from lionstate.errors import InvalidInputError
from lionstate.records.arguments import page_limit, page_offset, takes
from lionstate.records.rows import all_rows, page
from lionstate.records.schemas import columns_schema, row_schema
from lionstate.records.tombstones import fill_progression, refuse_deleted
from lionstate.records.values import MAX_PAGE, CheckedRow, check_text, checked_row
from lionstate.schema.conversation import branches

__all__ = [
    "BRANCH_SCHEMA",
    "CHANGES_SCHEMAS",
    "checked_branch",
    "checked_changes",
    "create_branch",
    "get_branch",
    "list_branches",
    "repair_branch_progression",
    "update_branch",
]

_GIVEN: Final = tuple(column.name for column in branches.columns)
_WRITABLE: Final = (
    "name",
    "user",
    "node_metadata",
    "system_msg_id",
    "model",
    "provider",
    "agent_name",
    "status",
    "started_at",
    "ended_at",
)


BRANCH_SCHEMA: Final = row_schema(branches, _GIVEN, ("id", "session_id", "progression_id"))
CHANGES_SCHEMAS: Final = columns_schema(branches, _WRITABLE)


def checked_branch(branch: Mapping[str, Any]) -> CheckedRow:
    """Check a branch that is to be created.

    Raises:
        InvalidInputError: ``id``, ``session_id`` or ``progression_id`` is missing, or a value has no stored form.
    """
    if isinstance(branch, CheckedRow):
        return branch
    return checked_row("branch", branches, _GIVEN, branch, required=("id", "session_id", "progression_id"))


def create_branch(conn: Connection, /, branch: Mapping[str, Any]) -> None:
    """Create a branch; an existing id is left untouched.

    Contract: ADR-0055 D1; reference §2.1; design decision 18.
    """
    row = {"node_metadata": None, **checked_branch(branch)}
    if row.get("created_at") is None:
        row["created_at"] = time.time()
    refuse_deleted(conn, row["progression_id"])
    conn.execute(dialect_of(conn).insert_ignore(branches).values(row))


@takes(branch_id=check_text)
def get_branch(conn: Connection, /, branch_id: str) -> dict[str, Any] | None:
    """One branch; None if it is missing.

    Contract: ADR-0055 D1.
    """
    row = conn.execute(select(branches).where(branches.c.id == branch_id)).mappings().first()
    return None if row is None else dict(row)


@takes(session_id=check_text, limit=page_limit, offset=page_offset)
def list_branches(
    conn: Connection, /, session_id: str, *, limit: int = MAX_PAGE, offset: int = 0
) -> list[dict[str, Any]]:
    """One page of the branches of a session, oldest first.

    Contract: ADR-0055 D1.
    """
    query = select(branches).where(branches.c.session_id == session_id)
    return all_rows(conn, page(query.order_by(branches.c.created_at, branches.c.id), limit, offset))


def checked_changes(fields: Mapping[str, Any]) -> CheckedRow:
    """Check the columns that ``update_branch`` is to write.

    Raises:
        InvalidInputError: A column does not exist, is not writable, or a value has no stored form.
    """
    if isinstance(fields, CheckedRow):
        return fields
    unknown = sorted(fields.keys() - set(_WRITABLE))
    if unknown:
        raise InvalidInputError(f"a branch has no writable column {', '.join(map(ascii, unknown))}")
    return checked_row("branch", branches, _WRITABLE, fields)


def update_branch(conn: Connection, /, branch_id: str, **fields: Any) -> None:
    """Write columns of a branch; no columns and a missing branch are no-ops.

    Contract: reference §2.1.
    """
    changes = checked_changes(fields)
    if changes:
        conn.execute(update(branches).where(branches.c.id == branch_id).values(changes))


def repair_branch_progression(conn: Connection, /, branch_id: str, new: str) -> str | None:
    """Fill a missing ``progression_id``; return the one in effect, None if the branch is missing.

    Contract: reference §2.1; design decision 18.
    """
    return fill_progression(conn, branches, branch_id, new)
