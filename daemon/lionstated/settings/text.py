"""Settings as text: the commented defaults file, and the values in force with secrets masked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, SecretStr

from .model import Delivery, Settings

__all__ = ["config_text", "effective_json", "effective_text", "leaf_text", "mask_url", "put_table"]

# Up to the last @: a password that was not escaped may hold anything.
_USER_INFO = re.compile(r"(://[^:@]*:).*(?=@)", re.DOTALL)
_PARAMETER = re.compile(r"(password\s*=\s*)[^&]+", re.IGNORECASE)


def mask_url(url: str) -> str:
    """The URL, or what was meant to be one, with its passwords replaced by asterisks; in doubt too much of it."""
    return _PARAMETER.sub(r"\1***", _USER_INFO.sub(r"\1***", url))


def _masked(value: object) -> object:
    if isinstance(value, list):
        return [_masked(one) for one in value]
    return mask_url(value.get_secret_value()) if isinstance(value, SecretStr) else value


def _shown_value(section: BaseModel, leaf: str) -> object:
    """What may be seen of a value: no password of a URL, and of a command its program."""
    value = getattr(section, leaf)
    if isinstance(section, Delivery) and leaf == "command" and len(value) > 1:
        return [value[0], f"*** ({len(value) - 1} arguments)"]
    return _masked(value)


def _toml_value(value: object) -> str:
    if value is None:
        return '""'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def leaf_text(section: BaseModel, leaf: str) -> str:
    """One value as TOML, secrets masked."""
    return _toml_value(_shown_value(section, leaf))


def _shown(settings: Settings, only_changed: bool) -> Iterator[tuple[str, BaseModel, list[str]]]:
    """Each section with the names of its values that are to be shown."""
    defaults = Settings.model_construct()
    for section in Settings.model_fields:
        values, usual = getattr(settings, section), getattr(defaults, section)
        leaves = [
            leaf
            for leaf in type(values).model_fields
            if not only_changed or getattr(values, leaf) != getattr(usual, leaf)
        ]
        if leaves:
            yield section, values, leaves


def effective_text(settings: Settings, *, only_changed: bool = False) -> str:
    """The settings in force as TOML, secrets masked.

    Args:
        settings: Any.
        only_changed: Leave out what has its default.
    """
    lines: list[str] = []
    for section, values, leaves in _shown(settings, only_changed):
        lines += [f"[{section}]", *(f"{leaf} = {leaf_text(values, leaf)}" for leaf in leaves), ""]
    return "\n".join(lines)


def effective_json(settings: Settings, *, only_changed: bool = False) -> str:
    """The same as one JSON object of objects, in one line; null is "not set"."""
    found = {
        section: {leaf: _shown_value(values, leaf) for leaf in leaves}
        for section, values, leaves in _shown(settings, only_changed)
    }
    return json.dumps(found) + "\n"


def config_text() -> str:
    """The text of `config/lionstated.toml`: every setting with its default, commented."""
    lines = [
        "# Settings of lionstated. A line of `#` and no space is a default: take the `#` away to",
        "# change it. Environment: LIONSTATE_ + upper case, dots as __ (LIONSTATE_QUEUE__MAX_OPERATIONS).",
        "# Flags: -- + dots and underscores as dashes (--queue-max-operations). Empty text means: not set.",
    ]
    defaults = Settings.model_construct()
    for section in Settings.model_fields:
        values = getattr(defaults, section)
        lines += ["", f"# {type(values).__doc__}", f"[{section}]"]
        for leaf, field in type(values).model_fields.items():
            lines += [f"# {field.description}", f"#{leaf} = {leaf_text(values, leaf)}"]
    return "\n".join(lines) + "\n"


def put_table(name: str, table: str) -> None:
    """Write a generated table between the marks of its name in the README of the checkout in the current folder."""
    readme = Path("README.md")
    start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, rest = readme.read_text(encoding="utf-8").split(start)
    readme.write_text(before + start + table + end + rest.split(end)[1], encoding="utf-8")
