"""Compare-and-set on nullable columns: a value, None for "holds nothing", or no claim at all."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Table

from lionstate.records.arguments import Check, optional

__all__ = ["NO_CURSOR_CLAIM", "NoCursorClaim", "claimed", "claims"]


# A struct, so that it has a form of its own on the wire: an empty object.
class NoCursorClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The type of ``NO_CURSOR_CLAIM``."""


NO_CURSOR_CLAIM: Final = NoCursorClaim()


def claimed(check: Check) -> Check:
    """No claim and None pass, anything else must pass ``check``."""
    inner = optional(check)
    return lambda name, value: value if isinstance(value, NoCursorClaim) else inner(name, value)


def claims(table: Table, **expected: Any) -> list[ColumnElement[bool]]:
    """The tests that these columns still hold what was expected of them."""
    return [table.c[name] == value for name, value in expected.items() if not isinstance(value, NoCursorClaim)]
