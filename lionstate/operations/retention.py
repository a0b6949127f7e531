"""Operations that remove what is old."""

from __future__ import annotations

from lionstate.operations.table import Operation, operation
from lionstate.records import retention

__all__ = ["TABLE"]

TABLE: tuple[Operation, ...] = (
    operation(retention.prune_sessions, writes=True, idempotent=False),
    operation(retention.preview_prune),
    operation(retention.remove_deleted_rows, writes=True, idempotent=False),
)
