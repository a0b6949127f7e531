"""Changes of a session that are no status changes."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, update

from lionstate.dialects import dialect_of
from lionstate.errors import InvalidInputError
from lionstate.records.metadata_merge import check_patch, merge_node_metadata
from lionstate.records.projects import DEFAULT_SOURCE, note_project
from lionstate.records.tombstones import fill_progression
from lionstate.records.values import CheckedRow, check_text, checked_row, encoded_json, finite_number
from lionstate.schema.conversation import sessions

__all__ = [
    "checked_label",
    "checked_provenance",
    "merge_session_node_metadata",
    "repair_session_progression",
    "set_session_provenance",
    "set_session_user_label",
    "touch_session_activity",
    "update_artifact_verification",
]

_MAX_LABEL = 160
_PROVENANCE = ("node_metadata", "project", "project_source", "cc_session_id", "artifacts_path")


def touch_session_activity(conn: Connection, /, session_id: str, *, at: float | None = None) -> None:
    """Move ``last_message_at`` and ``updated_at`` forward to a time, never back; a missing session is a no-op.

    Contract: reference §2.1.
    """
    dialect_of(conn).touch_sessions(conn, {session_id: time.time() if at is None else finite_number("at", at)})


def merge_session_node_metadata(conn: Connection, /, session_id: str, patch: Mapping[str, Any]) -> None:
    """Merge a patch into a session's metadata under the row's lock; a missing session is a no-op.

    Contract: reference §2.1 (RFC 7396; a stored value that is no object is kept under a key of its own).
    """
    check_patch("patch", patch)
    merge_node_metadata(conn, sessions, session_id, patch)


def checked_label(label: object) -> str | None:
    """Trim a label; None when nothing is left.

    Raises:
        InvalidInputError: Not text, over 160 characters, or with control characters.
    """
    if label is None:
        return None
    trimmed = check_text("label", label).strip()
    if len(trimmed) > _MAX_LABEL:
        raise InvalidInputError(f"the label is longer than {_MAX_LABEL} characters")
    if any(unicodedata.category(character) == "Cc" for character in trimmed):
        raise InvalidInputError("the label holds control characters")
    return trimmed or None


def set_session_user_label(conn: Connection, /, session_id: str, label: str | None) -> bool:
    """Set or clear a session's label; False if the session is missing. ``updated_at`` stays.

    Contract: reference §2.1.
    """
    statement = update(sessions).where(sessions.c.id == session_id).values(user_label=checked_label(label))
    return bool(conn.execute(statement).rowcount)


def checked_provenance(given: Mapping[str, Any]) -> CheckedRow:
    """Check what ``set_session_provenance`` was given; None is not given."""
    if isinstance(given, CheckedRow):
        return given
    return checked_row("provenance", sessions, _PROVENANCE, {k: v for k, v in given.items() if v is not None})


def set_session_provenance(
    conn: Connection,
    /,
    session_id: str,
    *,
    node_metadata: Any = None,
    project: str | None = None,
    project_source: str | None = None,
    cc_session_id: str | None = None,
    artifacts_path: str | None = None,
) -> None:
    """Write where a session came from: the values given, ``artifacts_path`` only where none is stored.

    Contract: reference §2.1.
    """
    given = (node_metadata, project, project_source, cc_session_id, artifacts_path)
    values: dict[str, Any] = checked_provenance(dict(zip(_PROVENANCE, given, strict=True)))
    if not values:
        return
    if "artifacts_path" in values:
        values = {**values, "artifacts_path": func.coalesce(sessions.c.artifacts_path, values["artifacts_path"])}
    found = conn.execute(update(sessions).where(sessions.c.id == session_id).values(values)).rowcount
    if found and project is not None:
        note_project(conn, project, project_source or DEFAULT_SOURCE, now=time.time())


def update_artifact_verification(conn: Connection, /, session_id: str, verification: Mapping[str, Any] | None) -> None:
    """Store the result of an artifact verification; a missing session is a no-op.

    Contract: ADR-0055 D5.
    """
    values = {"artifact_verification_json": encoded_json("verification", verification), "updated_at": time.time()}
    conn.execute(update(sessions).where(sessions.c.id == session_id).values(values))


def repair_session_progression(conn: Connection, /, session_id: str, new: str) -> str | None:
    """Fill a missing ``progression_id``; return the one in effect, None if the session is missing.

    Contract: reference §2.1; design decision 18.
    """
    return fill_progression(conn, sessions, session_id, new)
