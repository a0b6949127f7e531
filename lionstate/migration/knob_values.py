"""The values of knobs as the store keeps them, in ``migration_control`` (design decision 26)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, select

from lionstate.errors import StateError
from lionstate.migration.knobs import KNOBS, Knobs, KnobSetting, checked_knob
from lionstate.schema.own import migration_control as table

__all__ = ["StoredKnob", "key_of", "read_knobs", "settings_of"]

_PREFIX: Final = "knob."
# Named so before there were others.
_OLD_KEYS: Final = {"verify.budget_seconds": "verify_budget_seconds"}
_OLD_NAMES: Final = {name: key for key, name in _OLD_KEYS.items()}


@dataclass(frozen=True, slots=True)
class StoredKnob:
    """The value of one knob, who set it, why, when and until when (epoch seconds; None: until it is set again)."""

    value: float
    actor: str
    reason: str | None
    since: float
    expires_at: float | None


def key_of(name: str) -> str:
    """The key of a knob in ``migration_control``."""
    return _OLD_NAMES.get(name, _PREFIX + name)


def read_knobs(conn: Connection, /, now: float) -> dict[str, StoredKnob]:
    """The knobs that an operator has set and that have not expired, by name.

    A value that this release does not take (another release has written it) is left out.

    Cost: a primary-key seek for each knob there is.
    """
    found = {}
    columns = (table.c.key, table.c.value, table.c.actor, table.c.reason, table.c.updated_at, table.c.expires_at)
    query = select(*columns).where(table.c.key.in_([key_of(name) for name in KNOBS]))
    for key, text, actor, reason, since, expires_at in conn.execute(query):
        name = _OLD_KEYS.get(key, key.removeprefix(_PREFIX))
        if expires_at is not None and expires_at <= now:
            continue
        try:
            stored: Any = json.loads(text)
            found[name] = StoredKnob(checked_knob(name, stored), actor, reason, since, expires_at)
        except (StateError, ValueError):
            continue
    return found


def settings_of(stored: dict[str, StoredKnob], defaults: Knobs) -> tuple[KnobSetting, ...]:
    """Every knob with its value and where that comes from, in the order of their definition."""
    settings = []
    for name, knob in KNOBS.items():
        default = getattr(defaults, name)
        one = stored.get(name)
        bounds = (default, knob.low, knob.high, knob.what)
        if one is None:
            settings.append(KnobSetting(name, default, *bounds))
        else:
            told = (one.actor, one.reason, one.since, one.expires_at)
            settings.append(KnobSetting(name, one.value, *bounds, *told))
    return tuple(settings)
