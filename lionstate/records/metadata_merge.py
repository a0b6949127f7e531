"""JSON merge patches (RFC 7396) on ``node_metadata``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Table

from lionstate.errors import InvalidInputError
from lionstate.records.rows import lock_row, update_rows
from lionstate.records.values import encoded_json

__all__ = ["check_patch", "merge_node_metadata", "merged"]


def merged(stored: Any, patch: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a merge patch to a value: None removes a key, a mapping merges, anything else replaces."""
    result = dict(stored) if isinstance(stored, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            result[name] = merged(result.get(name), value)
        else:
            result[name] = value
    return result


def check_patch(params: dict[str, Any]) -> dict[str, Any]:
    """Refuse a ``patch`` that is no mapping or cannot be stored."""
    if not isinstance(params["patch"], Mapping):
        raise InvalidInputError(f"patch must be a mapping, not {type(params['patch']).__name__}")
    encoded_json("patch", params["patch"])
    return params


def merge_node_metadata(conn: Connection, table: Table, row_id: str, patch: Mapping[str, Any]) -> None:
    """Merge a patch into a row's metadata and set ``updated_at``; a missing row is silent.

    A stored value that is no object is kept under ``_discarded_node_metadata``, with ``_discarded_at``.

    Contract: reference §2.1.
    """
    row = lock_row(conn, table, id=row_id)
    if row is None:
        return
    now, stored = time.time(), row["node_metadata"]
    result = merged(stored, patch)
    if stored is not None and not isinstance(stored, Mapping):
        result |= {"_discarded_node_metadata": stored, "_discarded_at": now}
    update_rows(conn, table, {"id": row_id}, {"node_metadata": result, "updated_at": now})
