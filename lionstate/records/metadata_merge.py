"""JSON merge patches (RFC 7396) on ``node_metadata``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Table

from lionstate.errors import InvalidInputError
from lionstate.records.rows import lock_row, update_rows
from lionstate.records.schemas import MAPPING, described
from lionstate.records.values import encoded_json

__all__ = ["check_patch", "merge_node_metadata", "merge_patch"]


def merge_patch(target: Any, patch: Any) -> Any:
    """Merge as RFC 7396 says; pure. Neither argument is changed."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


@described(MAPPING)
def check_patch(name: str, patch: object) -> object:
    """Refuse a patch that is no mapping or cannot be stored."""
    if not isinstance(patch, Mapping):
        raise InvalidInputError(f"{name} must be a mapping, not {type(patch).__name__}")
    encoded_json(name, patch)
    return patch


def merge_node_metadata(conn: Connection, table: Table, row_id: str, patch: Mapping[str, Any]) -> None:
    """Merge a patch into a row's metadata and set ``updated_at``; a missing row is silent.

    A stored value that is no object is kept under ``_discarded_node_metadata``, with ``_discarded_at``.

    Contract: reference §2.1.
    """
    row = lock_row(conn, table, id=row_id)
    if row is None:
        return
    now, stored = time.time(), row["node_metadata"]
    if stored is not None and not isinstance(stored, Mapping):
        stored = {"_discarded_node_metadata": stored, "_discarded_at": now}
    update_rows(conn, table, {"id": row_id}, {"node_metadata": merge_patch(stored, patch), "updated_at": now})
