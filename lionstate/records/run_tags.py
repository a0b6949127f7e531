"""Tags on sessions.

Contract: ADR-0055 D1; reference §2.5 (LionAGI has the table and no methods).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from lionstate.errors import InvalidInputError
from lionstate.records.arguments import page_limit, page_offset, takes, texts
from lionstate.records.rows import all_rows, delete_rows, insert_ignore_row, page
from lionstate.records.schemas import TEXT, described, list_of
from lionstate.records.values import check_text
from lionstate.schema.control import run_tags

__all__ = ["count_run_tags", "create_run_tag", "delete_run_tag", "list_run_tags", "list_sessions_with_tags"]

_TAGS_AT_ONCE = 100


_TAG = {**TEXT, "minLength": 1}


@described(_TAG)
def _tag(name: str, value: object) -> str:
    tag = check_text(name, value).strip()
    if not tag:
        raise InvalidInputError(f"{name} must not be blank")
    return tag


@described({**list_of(_TAG, _TAGS_AT_ONCE), "minItems": 1})
def _tags(name: str, value: object) -> list[str]:
    tags = sorted({_tag(name, tag) for tag in texts(name, value)})
    if not 1 <= len(tags) <= _TAGS_AT_ONCE:
        raise InvalidInputError(f"{name} must hold 1 to {_TAGS_AT_ONCE} tags")
    return tags


@takes(session_id=check_text, tag=_tag)
def create_run_tag(conn: Connection, /, session_id: str, tag: str) -> bool:
    """Tag a session; False if it has the tag, a missing session raises."""
    return insert_ignore_row(conn, run_tags, {"session_id": session_id, "tag": tag, "created_at": time.time()})


@takes(session_id=check_text, tag=_tag)
def delete_run_tag(conn: Connection, /, session_id: str, tag: str) -> bool:
    """Take a tag off a session; False if it does not have it."""
    return bool(delete_rows(conn, run_tags, session_id=session_id, tag=tag))


@takes(session_id=check_text, limit=page_limit, offset=page_offset)
def list_run_tags(conn: Connection, /, session_id: str, *, limit: int = 1000, offset: int = 0) -> list[str]:
    """One page of the tags of a session, each page in the order of their text."""
    found = select(run_tags.c.tag).where(run_tags.c.session_id == session_id).order_by(run_tags.c.tag)
    return sorted(conn.execute(page(found, limit, offset)).scalars())


@takes(limit=page_limit, offset=page_offset)
def count_run_tags(conn: Connection, /, *, limit: int = 100, offset: int = 0) -> list[dict[str, Any]]:
    """A page of tags with the number of sessions that carry each, most used first."""
    count = func.count().label("session_count")
    found = select(run_tags.c.tag, count).group_by(run_tags.c.tag).order_by(count.desc(), run_tags.c.tag)
    return all_rows(conn, page(found, limit, offset))


@takes(tags=_tags, limit=page_limit, offset=page_offset)
def list_sessions_with_tags(
    conn: Connection, /, tags: Sequence[str], *, limit: int = 100, offset: int = 0
) -> list[str]:
    """A page of the ids of sessions that carry every one of the tags, last tagged first."""
    latest = func.max(run_tags.c.created_at)
    found = (
        select(run_tags.c.session_id)
        .where(run_tags.c.tag.in_(tags))
        .group_by(run_tags.c.session_id)
        .having(func.count() == len(tags))
        .order_by(latest.desc(), run_tags.c.session_id.desc())
    )
    return list(conn.execute(page(found, limit, offset)).scalars())
