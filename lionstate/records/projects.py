"""Projects: who works where, and how many sessions each has.

Contract: ADR-0055 D1; reference §2.5.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from sqlalchemy import Connection, Select, case, func, select

from lionstate.records.arguments import changes_of, optional, page_limit, page_offset, takes
from lionstate.records.rows import (
    all_rows,
    delete_rows,
    first_row,
    insert_ignore_row,
    insert_row,
    page,
    update_rows,
)
from lionstate.records.values import check_text
from lionstate.schema.control import projects
from lionstate.schema.conversation import sessions

__all__ = [
    "DEFAULT_SOURCE",
    "ProjectChanges",
    "create_project",
    "delete_project",
    "get_project",
    "list_projects",
    "note_project",
    "register_project",
    "update_project",
]

DEFAULT_SOURCE = "git_remote"
# Only these say where a project is configured; the others are guesses, which do not replace what is known.
_STRONG_SOURCES = ("config_toml", "global_override")
_STUDIO = "studio"


class ProjectChanges(TypedDict, total=False):
    """What ``update_project`` may change."""

    description: str | None
    github: str | None
    path: str | None


def note_project(
    conn: Connection, /, name: str, source: str, *, path: str | None = None, github: str | None = None, now: float
) -> None:
    """Note that a project was seen: insert it, or move its times and take over what is known better."""
    times = {"updated_at": now, "last_seen_at": now}
    places = {"path": path, "github": github}
    if insert_ignore_row(conn, projects, {"name": name, "source": source, "created_at": now, **times, **places}):
        return
    known = {column: value for column, value in places.items() if value is not None}
    if source in _STRONG_SOURCES:
        known["source"] = source
    update_rows(conn, projects, {"name": name}, {**times, **known})


_places = {name: optional(check_text) for name in ("path", "github")}


@takes(name=check_text, source=check_text, **_places)
def register_project(
    conn: Connection, /, name: str, source: str, *, path: str | None = None, github: str | None = None
) -> None:
    """Insert a project, or note that it was seen again."""
    note_project(conn, name, source, path=path, github=github, now=time.time())


@takes(name=check_text, description=optional(check_text), **_places)
def create_project(
    conn: Connection,
    /,
    name: str,
    *,
    github: str | None = None,
    description: str | None = None,
    path: str | None = None,
) -> None:
    """Insert a project of the studio; a name that exists raises."""
    now = time.time()
    times = {"created_at": now, "updated_at": now, "last_seen_at": now}
    insert_row(
        conn,
        projects,
        {"name": name, "source": _STUDIO, "github": github, "description": description, "path": path, **times},
    )


def _counted() -> Select[Any]:
    """Every project with its sessions counted over the partial index on their project."""
    running = func.sum(case((sessions.c.status == "running", 1), else_=0))
    counts = (
        select(sessions.c.project, func.count().label("session_count"), running.label("running_count"))
        .where(sessions.c.project.is_not(None))
        .group_by(sessions.c.project)
        .subquery()
    )
    return select(
        projects,
        func.coalesce(counts.c.session_count, 0).label("session_count"),
        func.coalesce(counts.c.running_count, 0).label("running_count"),
    ).join_from(projects, counts, counts.c.project == projects.c.name, isouter=True)


_LISTED = _counted().order_by(
    func.coalesce(projects.c.last_seen_at, projects.c.updated_at).desc(), projects.c.name.desc()
)


@takes(limit=page_limit, offset=page_offset)
def list_projects(conn: Connection, /, *, limit: int = 1000, offset: int = 0) -> list[dict[str, Any]]:
    """A page of projects, last seen first, with their numbers of sessions."""
    return all_rows(conn, page(_LISTED, limit, offset))


@takes(name=check_text)
def get_project(conn: Connection, /, name: str) -> dict[str, Any] | None:
    """The row with its numbers of sessions, or None."""
    return first_row(conn, _LISTED.where(projects.c.name == name))


@takes(changes_of(projects, ProjectChanges.__annotations__, {"name"}), name=check_text)
def update_project(conn: Connection, /, name: str, **changes: Unpack[ProjectChanges]) -> bool:
    """Change columns; False if the project is missing or nothing is given."""
    given: Mapping[str, Any] = changes
    return bool(given) and bool(update_rows(conn, projects, {"name": name}, {**given, "updated_at": time.time()}))


@takes(name=check_text)
def delete_project(conn: Connection, /, name: str) -> bool:
    """Remove a project of the studio; False if it is missing or another's."""
    return bool(delete_rows(conn, projects, name=name, source=_STUDIO))
