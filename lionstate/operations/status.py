"""Operations on statuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lionstate.operations.table import Operation, operation
from lionstate.records import status, transitions
from lionstate.records.status_vocabulary import entity_named

__all__ = ["TABLE"]


def _entity_key(params: Mapping[str, Any]) -> frozenset[str] | None:
    entity = entity_named(params["entity_type"])
    return None if entity is None else frozenset((f"{entity.prefix}:{params['entity_id']}",))


TABLE: tuple[Operation, ...] = (
    operation(status.update_status, writes=True, idempotent=False, keys=_entity_key),
    operation(transitions.list_status_transitions),
)
