"""What SIGHUP changes: the settings that may, each with a line in the log; the others stay, and a line says so."""

from __future__ import annotations

from .logs import get_logger
from .settings import Settings, differences, is_live

__all__ = ["settle"]


def settle(old: Settings, fresh: Settings) -> Settings:
    """The settings in force after a reload: `fresh` where they may change, else `old`."""
    log = get_logger()
    changed: dict[str, dict[str, object]] = {}
    for one in differences(old, fresh):
        if is_live(one.key):
            section, _, leaf = one.key.partition(".")
            changed.setdefault(section, {})[leaf] = getattr(getattr(fresh, section), leaf)
            log.info("setting_changed", setting=one.key, was=one.old, now=one.new)
        else:
            log.warning("setting_needs_restart", setting=one.key, stays=one.old, asked=one.new)
    sections = {section: getattr(old, section).model_copy(update=leaves) for section, leaves in changed.items()}
    return Settings.model_construct(**{name: sections.get(name, getattr(old, name)) for name in Settings.model_fields})
