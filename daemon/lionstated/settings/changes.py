"""Which settings differ, and which may change while the daemon runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .model import Settings
from .text import leaf_text

__all__ = ["Difference", "differences", "is_live", "settings_table"]

_LIVE_SECTIONS = frozenset(("maintenance", "delivery", "shutdown"))
_LIVE = frozenset(("log.level", "log.access_ratio"))
_FIXED = frozenset(("maintenance.accept_foreign_writers",))


class Difference(NamedTuple):
    """One setting with two values, as text with secrets masked."""

    key: str
    old: str
    new: str


def differences(old: Settings, new: Settings) -> Iterator[Difference]:
    """Every setting whose values differ, in the order of the file."""
    for section in Settings.model_fields:
        before, after = getattr(old, section), getattr(new, section)
        for leaf in type(before).model_fields:
            if getattr(before, leaf) != getattr(after, leaf):
                yield Difference(f"{section}.{leaf}", leaf_text(before, leaf), leaf_text(after, leaf))


def is_live(key: str) -> bool:
    """Whether SIGHUP changes a setting; the others need a restart."""
    return key in _LIVE or (key.partition(".")[0] in _LIVE_SECTIONS and key not in _FIXED)


def settings_table() -> str:
    """Every setting as a Markdown table: name, default, whether SIGHUP changes it, what it does."""
    defaults = Settings.model_construct()
    lines = ["| setting | default | changes by | |", "|---|---|---|---|"]
    for section in Settings.model_fields:
        values = getattr(defaults, section)
        for leaf, field in type(values).model_fields.items():
            key, text = f"{section}.{leaf}", (field.description or "").replace("|", "\\|")
            lines.append(f"| `{key}` | `{leaf_text(values, leaf)}` | {'SIGHUP' if is_live(key) else ''} | {text} |")
    return "\n".join(lines) + "\n"
