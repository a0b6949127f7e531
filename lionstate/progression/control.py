"""The persisted switches that progressions obey: the global compat read and the fence (design decisions 3, 21, 26)."""

from __future__ import annotations

import json
import time
from typing import Any

from sqlalchemy import Connection, bindparam, select

from lionstate.dialects import Statement
from lionstate.schema import fence_exists, install_fence
from lionstate.schema.own import migration_control

__all__ = ["COMPAT_READ_KEY", "FENCE_OFF_KEY", "ensure_fence", "switch_is_on"]

COMPAT_READ_KEY = "compat_read"
FENCE_OFF_KEY = "fence.off"

_SWITCH = Statement(
    select(migration_control.c.value, migration_control.c.expires_at).where(migration_control.c.key == bindparam("key"))
)


def switch_is_on(conn: Connection, /, key: str) -> bool:
    """Whether a switch is set and has not expired; its value is ``{"enabled": bool}`` or a plain JSON boolean.

    Cost: one primary-key seek.
    Contract: design decisions 3, 26.
    """
    rows = _SWITCH.rows(conn, {"key": key})
    if not rows:
        return False
    value, expires_at = rows[0]
    if expires_at is not None and expires_at <= time.time():
        return False
    decoded: Any = json.loads(value)
    return bool(decoded.get("enabled", True)) if isinstance(decoded, dict) else bool(decoded)


def ensure_fence(conn: Connection, /) -> None:
    """Install the fence before the first row leaves the authority of its JSON, unless the operator turned it off.

    On PostgreSQL a first installation waits for open writers of ``progressions``, at most the lane's lock timeout;
    then the whole operation gives way and is tried again.

    Cost: one catalogue row.
    Contract: design decision 21.
    """
    if not fence_exists(conn) and not switch_is_on(conn, FENCE_OFF_KEY):
        install_fence(conn)
