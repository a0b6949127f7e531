"""Shows and the plays they are made of.

Contract: ADR-0055 D1; reference §2.2.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from sqlalchemy import Connection, select

from lionstate.engine import Refused
from lionstate.records.arguments import Rule, optional, page_limit, page_offset, row_of, saying, takes
from lionstate.records.rows import all_rows, get_row, insert_ignore_row, newest_first, page
from lionstate.records.schemas import choice, nullable
from lionstate.records.status import StatusReason, change_record, record_changes, record_initial_status
from lionstate.records.status_vocabulary import ENTITIES
from lionstate.records.values import check_choice, check_text
from lionstate.schema.execution import plays, shows

__all__ = [
    "PlayChanges",
    "ShowChanges",
    "create_play",
    "create_show",
    "get_play",
    "get_show",
    "get_show_by_topic",
    "list_plays",
    "list_shows",
    "status_of",
    "update_play",
    "update_show",
]


class ShowChanges(StatusReason, total=False):
    """What ``update_show`` may change; a status takes its reason along."""

    topic: str
    goal: str | None
    repo: str | None
    base_branch: str | None
    integration_branch: str | None
    status: str
    show_dir: str
    status_source: str
    updated_at: float


class PlayChanges(StatusReason, total=False):
    """What ``update_play`` may change; a status takes its reason along."""

    name: str
    playbook: str | None
    effort: str | None
    status: str
    attempt: int
    session_id: str | None
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    worktree: str | None
    branch: str | None
    merge_sha: str | None
    merged_at: float | None
    gate_passed: int | None
    gate_feedback: str | None
    depends_on: Sequence[str]
    sort_order: int
    updated_at: float


_SHOW_COLUMNS = ShowChanges.__annotations__.keys() - StatusReason.__annotations__.keys()
_PLAY_COLUMNS = PlayChanges.__annotations__.keys() - StatusReason.__annotations__.keys()


def status_of(entity_type: str) -> Rule:
    """The status of the row in the argument named like the entity must be of its vocabulary."""

    def rule(params: dict[str, Any]) -> dict[str, Any]:
        check_choice("status", params[entity_type].get("status"), ENTITIES[entity_type].statuses)
        return params

    status = nullable(choice(ENTITIES[entity_type].statuses))
    return saying({entity_type: {"properties": {"status": status}}})(rule)


@takes(status_of("show"), show=row_of(shows, _SHOW_COLUMNS | {"id", "created_at"}, ("id", "topic", "show_dir")))
def create_show(conn: Connection, /, show: Mapping[str, Any]) -> None:
    """Insert a show and its first history row; an id that exists stays as it is, a topic that exists raises."""
    now = time.time()
    row = {"status": "active", "created_at": now, **show, "updated_at": now}
    if insert_ignore_row(conn, shows, row):
        record_initial_status(conn, "show", row["id"], row["status"], actor="create_show", now=now)


@takes(show_id=check_text)
def get_show(conn: Connection, /, show_id: str) -> dict[str, Any] | None:
    """The row or None."""
    return get_row(conn, shows, id=show_id)


@takes(topic=check_text)
def get_show_by_topic(conn: Connection, /, topic: str) -> dict[str, Any] | None:
    """The row or None."""
    return get_row(conn, shows, topic=topic)


@takes(status=optional(check_text), limit=page_limit, offset=page_offset)
def list_shows(
    conn: Connection, /, *, status: str | None = None, limit: int = 1000, offset: int = 0
) -> list[dict[str, Any]]:
    """A page of shows, last changed first."""
    return all_rows(conn, page(newest_first(shows, "updated_at", status=status), limit, offset))


@takes(record_changes("show", "show_id", _SHOW_COLUMNS), show_id=check_text)
def update_show(conn: Connection, /, show_id: str, **changes: Unpack[ShowChanges]) -> Refused | None:
    """Change columns; a status goes through ``update_status``."""
    return change_record(conn, "show", show_id, changes)


@takes(
    status_of("play"),
    play=row_of(plays, _PLAY_COLUMNS | {"id", "show_id", "created_at"}, ("id", "show_id", "name")),
)
def create_play(conn: Connection, /, play: Mapping[str, Any]) -> None:
    """Insert a play and its first history row; an id that exists stays as it is, a name in use in the show raises."""
    now = time.time()
    row = {"status": "pending", "created_at": now, "updated_at": now, **play}
    if insert_ignore_row(conn, plays, row):
        record_initial_status(conn, "play", row["id"], row["status"], actor="create_play", now=now)


@takes(play_id=check_text)
def get_play(conn: Connection, /, play_id: str) -> dict[str, Any] | None:
    """The row or None."""
    return get_row(conn, plays, id=play_id)


@takes(show_id=check_text, limit=page_limit, offset=page_offset)
def list_plays(conn: Connection, /, show_id: str, *, limit: int = 1000, offset: int = 0) -> list[dict[str, Any]]:
    """A page of the plays of a show, in their order."""
    order = (plays.c.sort_order, plays.c.created_at, plays.c.id)
    return all_rows(conn, page(select(plays).where(plays.c.show_id == show_id).order_by(*order), limit, offset))


@takes(record_changes("play", "play_id", _PLAY_COLUMNS), play_id=check_text)
def update_play(conn: Connection, /, play_id: str, **changes: Unpack[PlayChanges]) -> Refused | None:
    """Change columns; a status goes through ``update_status``."""
    return change_record(conn, "play", play_id, changes)
