"""Reads the settings from file, environment and flags, and says in one line what is wrong with them."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from lionstate.errors import InvalidInputError

from .files import read_regular
from .model import ENV_PREFIX, Settings

__all__ = ["description_of", "flag_names", "is_switch", "load_settings"]


def load_settings(
    file: str | Path | None = None, *, flags: Mapping[str, str] | None = None, environ: bool = True
) -> Settings:
    """Read the settings.

    Args:
        file: TOML file; None for none.
        flags: Values by dotted name.
        environ: Look into the environment too.
    Raises:
        InvalidInputError: Unreadable file, unknown key or bad value; one line that names key and origin.
    """
    document = _read_toml(file) if file is not None else {}
    for key in _unknown(document):
        raise InvalidInputError(f"unknown setting {key} in {file}")
    variables = _environment() if environ else {}
    for key, name in variables.items():
        if key not in _leaves():
            raise InvalidInputError(f"unknown setting {key} in environment variable {name}")
    nested: dict[str, Any] = {}
    for key, value in (flags or {}).items():
        section, _, leaf = key.partition(".")
        nested.setdefault(section, {})[leaf] = value

    class Bound(Settings):
        _file: ClassVar[Path | None] = Path(file) if file is not None else None
        _environ: ClassVar[bool] = environ

    try:
        loaded = Bound(**nested)
    except ValidationError as exc:
        raise InvalidInputError(_line(exc, file, flags or {}, variables)) from None
    return Settings.model_construct(**{name: getattr(loaded, name) for name in Settings.model_fields})


def _read_toml(file: str | Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_regular(file)[1].decode())
    except OSError as exc:
        raise InvalidInputError(f"cannot read {file}: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise InvalidInputError(f"{file} is not valid TOML: {exc}") from exc


def _unknown(document: Mapping[str, Any]) -> Iterator[str]:
    leaves = _leaves()
    for section, values in document.items():
        if section not in Settings.model_fields:
            yield section
        elif not isinstance(values, dict):
            raise InvalidInputError(f"setting {section} must be a table")
        else:
            yield from (key for leaf in values if (key := f"{section}.{leaf}") not in leaves)


def _environment() -> dict[str, str]:
    # A single underscore after the prefix (LIONSTATE_TEST_PG_DSN) is not a setting of the daemon.
    names = [name for name in os.environ if name.upper().startswith(ENV_PREFIX) and "__" in name]
    return {name[len(ENV_PREFIX) :].lower().replace("__", ".", 1): name for name in names}


def _line(exc: ValidationError, file: str | Path | None, flags: Mapping[str, str], variables: Mapping[str, str]) -> str:
    first = exc.errors(include_input=False, include_url=False, include_context=False)[0]
    key = ".".join(str(part) for part in first["loc"][:2])
    if key in Settings.model_fields and first["type"].startswith("model_"):
        # The whole section in one variable; a file's were found to be tables.
        name = next(name for name in os.environ if name.upper() == f"{ENV_PREFIX}{key.upper()}")
        return f"setting {key} in environment variable {name}: must be a JSON object, as {{}}; or set its values singly"
    if key in flags:
        origin = "flag --" + _flag(key)
    elif key in variables:
        origin = f"environment variable {variables[key]}"
    else:
        origin = str(file) if file else "the environment"
    return f"setting {key} in {origin}: {first['msg']}"


def _leaves() -> dict[str, FieldInfo]:
    return {
        f"{section}.{leaf}": field
        for section, outer in Settings.model_fields.items()
        if isinstance(outer.annotation, type) and issubclass(outer.annotation, BaseModel)
        for leaf, field in outer.annotation.model_fields.items()
    }


def is_switch(key: str) -> bool:
    """Whether a setting is true or false."""
    return _leaves()[key].annotation in (bool, bool | None)


def description_of(key: str) -> str:
    """What a setting does."""
    return _leaves()[key].description or key


def _flag(key: str) -> str:
    return key.replace(".", "-").replace("_", "-")


def flag_names() -> dict[str, str]:
    """Command line flags without `--`, and the setting each one sets."""
    return {_flag(key): key for key in sorted(_leaves())}
