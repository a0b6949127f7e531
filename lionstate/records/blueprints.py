"""Engine and workflow definitions: named, unversioned, changed in place.

Contract: ADR-0055 D1; reference §2.4.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from sqlalchemy import Connection, Table

from lionstate.records.arguments import changes_of, optional, page_limit, page_offset, row_of, takes
from lionstate.records.rows import all_rows, delete_rows, get_row, insert_row, newest_first, page, update_rows
from lionstate.records.values import check_text
from lionstate.schema.definitions import engine_defs, workflow_defs

__all__ = [
    "EngineDefChanges",
    "WorkflowDefChanges",
    "create_engine_def",
    "create_workflow_def",
    "delete_engine_def",
    "delete_workflow_def",
    "get_engine_def",
    "get_engine_def_by_name",
    "get_workflow_def",
    "get_workflow_def_by_name",
    "list_engine_defs",
    "list_workflow_defs",
    "update_engine_def",
    "update_workflow_def",
]


class EngineDefChanges(TypedDict, total=False):
    """What ``update_engine_def`` may change."""

    name: str
    kind: str
    model: str | None
    max_depth: int | None
    max_agents: int | None
    options: Mapping[str, Any] | None
    description: str | None


class WorkflowDefChanges(TypedDict, total=False):
    """What ``update_workflow_def`` may change; the specification is not looked into."""

    name: str
    description: str | None
    spec_json: Any


_OWN = {"id", "created_at", "updated_at"}
_ENGINE = EngineDefChanges.__annotations__.keys()
_WORKFLOW = WorkflowDefChanges.__annotations__.keys()


def _create(conn: Connection, table: Table, defn: Mapping[str, Any]) -> None:
    now = time.time()
    insert_row(conn, table, {"created_at": now, "updated_at": now, **defn})


def _update(conn: Connection, table: Table, def_id: str, changes: Mapping[str, Any]) -> None:
    if changes:
        update_rows(conn, table, {"id": def_id}, {**changes, "updated_at": time.time()})


@takes(defn=row_of(engine_defs, _ENGINE | _OWN, ("id", "name", "kind")))
def create_engine_def(conn: Connection, /, defn: Mapping[str, Any]) -> None:
    """Insert a definition; an id or name that exists raises."""
    _create(conn, engine_defs, defn)


@takes(def_id=check_text)
def get_engine_def(conn: Connection, /, def_id: str) -> dict[str, Any] | None:
    """The row or None."""
    return get_row(conn, engine_defs, id=def_id)


@takes(name=check_text)
def get_engine_def_by_name(conn: Connection, /, name: str) -> dict[str, Any] | None:
    """The row or None."""
    return get_row(conn, engine_defs, name=name)


@takes(kind=optional(check_text), limit=page_limit, offset=page_offset)
def list_engine_defs(
    conn: Connection, /, *, kind: str | None = None, limit: int = 100, offset: int = 0
) -> list[dict[str, Any]]:
    """A page of definitions, last changed first."""
    return all_rows(conn, page(newest_first(engine_defs, "updated_at", kind=kind), limit, offset))


@takes(changes_of(engine_defs, _ENGINE, {"def_id"}), def_id=check_text)
def update_engine_def(conn: Connection, /, def_id: str, **changes: Unpack[EngineDefChanges]) -> None:
    """Change columns; a missing definition is silent."""
    _update(conn, engine_defs, def_id, changes)


@takes(def_id=check_text)
def delete_engine_def(conn: Connection, /, def_id: str) -> bool:
    """Remove a definition; False if it is missing."""
    return bool(delete_rows(conn, engine_defs, id=def_id))


@takes(defn=row_of(workflow_defs, _WORKFLOW | _OWN, ("id", "name")))
def create_workflow_def(conn: Connection, /, defn: Mapping[str, Any]) -> None:
    """Insert a definition; an id or name that exists raises."""
    _create(conn, workflow_defs, defn)


@takes(def_id=check_text)
def get_workflow_def(conn: Connection, /, def_id: str) -> dict[str, Any] | None:
    """The row or None."""
    return get_row(conn, workflow_defs, id=def_id)


@takes(name=check_text)
def get_workflow_def_by_name(conn: Connection, /, name: str) -> dict[str, Any] | None:
    """The row or None."""
    return get_row(conn, workflow_defs, name=name)


@takes(limit=page_limit, offset=page_offset)
def list_workflow_defs(conn: Connection, /, *, limit: int = 100, offset: int = 0) -> list[dict[str, Any]]:
    """A page of definitions, last changed first."""
    return all_rows(conn, page(newest_first(workflow_defs, "updated_at"), limit, offset))


@takes(changes_of(workflow_defs, _WORKFLOW, {"def_id"}), def_id=check_text)
def update_workflow_def(conn: Connection, /, def_id: str, **changes: Unpack[WorkflowDefChanges]) -> None:
    """Change columns; a missing definition is silent."""
    _update(conn, workflow_defs, def_id, changes)


@takes(def_id=check_text)
def delete_workflow_def(conn: Connection, /, def_id: str) -> bool:
    """Remove a definition; False if it is missing."""
    return bool(delete_rows(conn, workflow_defs, id=def_id))
