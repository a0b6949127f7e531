"""Operations on progressions."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any

from lionstate.operations.table import Operation, operation, progression_key
from lionstate.progression import append, delete, reads, replace
from lionstate.progression.collection import PreparedCollection
from lionstate.records.schemas import ID, list_of, nullable, whole_number

__all__ = ["TABLE"]

_CALL_BYTES = 256
_ID_BYTES = 40
_COLLECTION = {"collection": nullable(list_of(ID))}


def _collection_size(params: Mapping[str, Any]) -> int:
    """Bytes of a collection: measured when it is prepared, estimated from its length before."""
    collection = params.get("collection")
    if isinstance(collection, PreparedCollection):
        return _CALL_BYTES + collection.text_bytes
    return _CALL_BYTES + (len(collection) * _ID_BYTES if isinstance(collection, Sized) else 0)


def _append_size(params: Mapping[str, Any]) -> int:
    message_id = params["message_id"]
    return _CALL_BYTES + (len(message_id) if isinstance(message_id, Sized) else 0)


TABLE: tuple[Operation, ...] = (
    operation(
        append.append_to_progression,
        writes=True,
        keys=progression_key,
        fold=append.append_many,
        size=_append_size,
        schemas={"message_id": ID},
    ),
    operation(
        replace.create_progression,
        writes=True,
        keys=progression_key,
        prepare=replace.prepare_collection,
        size=_collection_size,
        schemas=_COLLECTION,
    ),
    operation(
        replace.set_progression,
        writes=True,
        keys=progression_key,
        prepare=replace.prepare_collection,
        size=_collection_size,
        schemas=_COLLECTION,
    ),
    operation(delete.delete_progression, writes=True, idempotent=False, keys=progression_key),
    operation(reads.get_progression),
    operation(
        reads.list_progression_items,
        schemas={"limit": whole_number(1, reads.MAX_LIMIT)},
    ),
    operation(reads.count_progression_items),
    operation(reads.get_progression_generation),
)
