"""Reads of the history of statuses.

Contract: ADR-0055 D1.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from lionstate.errors import InvalidInputError
from lionstate.records.arguments import optional, page_limit, page_offset, takes
from lionstate.records.rows import all_rows, newest_first, page
from lionstate.records.schemas import choice, described
from lionstate.records.status_vocabulary import ENTITIES, entity_named
from lionstate.records.values import check_text
from lionstate.schema.evidence import status_transitions

__all__ = ["list_status_transitions"]

# Histories that are written elsewhere than by ``update_status``.
_OTHERS = ("dispatch", "schedule")


@described(choice({*ENTITIES, *_OTHERS}))
def _entity_type(name: str, value: object) -> str:
    word = check_text(name, value)
    entity = entity_named(word)
    if entity is None and word not in _OTHERS:
        raise InvalidInputError(f"{name} is not one of {', '.join(sorted((*ENTITIES, *_OTHERS)))}")
    return entity.name if entity is not None else word


@takes(
    entity_type=_entity_type,
    entity_id=optional(check_text),
    reason_code=optional(check_text),
    limit=page_limit,
    offset=page_offset,
)
def list_status_transitions(
    conn: Connection,
    /,
    entity_type: str,
    entity_id: str | None = None,
    *,
    reason_code: str | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[dict[str, Any]]:
    """A page of status changes, newest first."""
    found = newest_first(
        status_transitions, "created_at", entity_type=entity_type, entity_id=entity_id, reason_code=reason_code
    )
    return all_rows(conn, page(found, limit, offset))
