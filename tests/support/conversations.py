"""A small conversation to test on, and messages for it."""

from __future__ import annotations

from typing import Any

from tests.support.backends import Backend

__all__ = ["INSTRUCTION", "conversation", "message", "put_items_progression", "stored_message"]

INSTRUCTION = "lionagi.protocols.messages.instruction.Instruction"


def message(message_id: str = "m", **fields: Any) -> dict[str, Any]:
    """A message as a caller hands it over."""
    return {"id": message_id, "created_at": 5.0, "role": "user", "content": {"text": message_id}, **fields}


def stored_message(message_id: str = "m", **fields: Any) -> dict[str, Any]:
    """What ``get_message`` gives for ``message(message_id)``."""
    return {
        **message(message_id),
        "node_metadata": None,
        "embedding": None,
        "sender": None,
        "recipient": None,
        "channel": None,
        "lion_class": 0,
        "lion_class_str": "__unknown__",
        **fields,
    }


async def put_items_progression(backend: Backend, progression_id: str) -> None:
    """An empty progression whose authority is its item rows."""
    await backend.put_progression(progression_id, "[]")
    await backend.execute(
        "INSERT INTO progression_storage_state (progression_id, phase, authority, generation, source_count,"
        " backfill_next, next_ordinal, frozen_count, updated_at, cutover_at)"
        " VALUES (:id, 'items', 'items', 1, 0, 0, 0, 0, 1.0, 1.0)",
        id=progression_id,
    )


async def conversation(backend: Backend, *, items: bool = False) -> None:
    """Session ``s`` on progression ``sp`` with branch ``b`` on progression ``bp``, both last active at 10."""
    for progression_id in ("sp", "bp"):
        if items:
            await put_items_progression(backend, progression_id)
        else:
            await backend.put_progression(progression_id, "[]")
    session = {"id": "s", "progression_id": "sp", "created_at": 1.0, "updated_at": 10.0, "last_message_at": 10.0}
    await backend.state.create_session(session)
    await backend.state.create_branch({"id": "b", "session_id": "s", "progression_id": "bp", "created_at": 2.0})
