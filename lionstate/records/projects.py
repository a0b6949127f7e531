"""Projects as a side effect of sessions that name one."""

from __future__ import annotations

from sqlalchemy import Connection

from lionstate.dialects import dialect_of
from lionstate.schema.control import projects

__all__ = ["register_project"]

_DEFAULT_SOURCE = "git_remote"
# Only these say where a project is configured; the others are guesses, which do not replace what is known.
_CONFIGURED = ("config_toml", "global_override")


def register_project(conn: Connection, /, name: str, source: str | None, *, now: float) -> None:
    """Note that a project was seen.

    An existing one moves ``last_seen_at`` and ``updated_at``; its ``source`` changes only to a configured one.

    Contract: ADR-0055 D1; reference §2.1, §2.5.
    """
    changes = ["last_seen_at", "updated_at"]
    if source in _CONFIGURED:
        changes.append("source")
    row = {"name": name, "source": source or _DEFAULT_SOURCE, "created_at": now, "updated_at": now, "last_seen_at": now}
    conn.execute(dialect_of(conn).upsert(projects, ["name"], changes).values(row))
