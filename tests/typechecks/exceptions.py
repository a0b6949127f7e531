"""A caller may catch one class, or the builtin it also is."""

from __future__ import annotations

from typing import assert_type

from lionstate import errors


def code_of(error: errors.StateError) -> str:
    """Every exception carries its bounded code as a string."""
    return error.code


def catches_builtin() -> str:
    """An invalid input is also a `ValueError`."""
    try:
        raise errors.InvalidInputError
    except ValueError as error:
        assert_type(error, ValueError)
        return "invalid"
