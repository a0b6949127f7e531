"""Versioned definitions of agents and playbooks.

Contract: ADR-0055 D2.
"""

from __future__ import annotations

import time
import uuid
from typing import Any, Final

from sqlalchemy import Connection, func, select

from lionstate.dialects import dialect_of
from lionstate.errors import UniqueConflictError, VersionRaceError
from lionstate.records.arguments import optional, page_limit, page_offset, takes, whole
from lionstate.records.rows import all_rows, page
from lionstate.records.values import MAX_PAGE, check_choice, check_text
from lionstate.schema.definitions import definitions

__all__ = [
    "check_definition",
    "get_definition",
    "list_definition_versions",
    "list_latest_definition_versions",
    "save_definition",
]

# New ones; stores in the field also hold rows of kind `skill`, which stay readable.
DEFINITION_KINDS: Final = ("agent", "playbook")
_RETRIES = 5
_LISTED = ("id", "kind", "name", "version", "created_at", "message")


def check_definition(*, kind: object, name: object, path: object, content: object, message: object = None) -> None:
    """Refuse a definition that cannot be saved.

    Raises:
        InvalidInputError: ``kind`` is neither ``agent`` nor ``playbook``, or a value is not text.
    """
    check_choice("kind", kind, DEFINITION_KINDS, optional=False)
    for label, value in (("name", name), ("path", path), ("content", content)):
        check_text(label, value)
    if message is not None:
        check_text("message", message)


def save_definition(
    conn: Connection, /, *, kind: str, name: str, path: str, content: str, message: str | None = None
) -> int:
    """Insert the next version of a definition and return its number.

    Contract: ADR-0055 D2 (max + 1 per kind and name; a race is retried up to five times).
    """
    check_definition(kind=kind, name=name, path=path, content=content, message=message)
    highest = select(func.max(definitions.c.version)).where(definitions.c.kind == kind, definitions.c.name == name)
    # An insert that a conflict leaves out takes the place of a savepoint around one that fails.
    insert = dialect_of(conn).insert_ignore(definitions)
    for _ in range(_RETRIES + 1):
        version = int(conn.execute(highest).scalar() or 0) + 1
        row = {
            "id": str(uuid.uuid4()),
            "kind": kind,
            "name": name,
            "path": path,
            "content": content,
            "version": version,
            "created_at": time.time(),
            "message": message,
        }
        if conn.execute(insert.values(row)).rowcount:
            return version
    last = UniqueConflictError(f"version {version} exists already")
    raise VersionRaceError(
        f"another writer took the next version {_RETRIES + 1} times; the last error: {last}"
    ) from last


@takes(kind=check_text, name=check_text, version=optional(whole(-(2**31))))
def get_definition(conn: Connection, /, kind: str, name: str, *, version: int | None = None) -> dict[str, Any] | None:
    """A version of a definition, the highest when none is named; None if it is missing.

    Contract: ADR-0055 D2.
    """
    query = select(definitions).where(definitions.c.kind == kind, definitions.c.name == name)
    if version is not None:
        query = query.where(definitions.c.version == version)
    row = conn.execute(query.order_by(definitions.c.version.desc()).limit(1)).mappings().first()
    return None if row is None else dict(row)


@takes(kind=check_text, name=check_text, limit=page_limit, offset=page_offset)
def list_definition_versions(
    conn: Connection, /, kind: str, name: str, *, limit: int = MAX_PAGE, offset: int = 0
) -> list[dict[str, Any]]:
    """One page of the versions of a definition, newest first, without ``path`` and ``content``.

    Contract: ADR-0055 D2.
    """
    query = (
        select(*(definitions.c[column] for column in _LISTED))
        .where(definitions.c.kind == kind, definitions.c.name == name)
        .order_by(definitions.c.version.desc())
    )
    return all_rows(conn, page(query, limit, offset))


@takes(limit=page_limit, offset=page_offset)
def list_latest_definition_versions(
    conn: Connection, /, *, limit: int = MAX_PAGE, offset: int = 0
) -> list[dict[str, Any]]:
    """For every definition of one page its highest version and latest time, by kind and name.

    Contract: ADR-0055 D2; reference §2.4.
    """
    kind, name = definitions.c.kind, definitions.c.name
    latest = (func.max(definitions.c.version).label("version"), func.max(definitions.c.created_at).label("created_at"))
    query = select(kind, name, *latest).group_by(kind, name).order_by(kind, name)
    return all_rows(conn, page(query, limit, offset))
