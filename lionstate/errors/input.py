"""What is wrong with what a caller gave; nothing was changed."""

from __future__ import annotations

from lionstate.errors.base import StateError

__all__ = ["ArtifactPathError", "InvalidInputError", "MissingKeyError"]


class InvalidInputError(StateError, ValueError):
    """An argument is not acceptable; nothing was changed."""

    code = "invalid_input"
    http_status = 400
    exit_code = 2


class ArtifactPathError(InvalidInputError):
    """An artifact contract or one of its paths is not acceptable (ADR-0055 D5)."""

    code = "artifact_path"


class MissingKeyError(InvalidInputError, KeyError):
    """A mapping lacks a key that it must have; nothing was changed."""

    code = "missing_key"
    # A KeyError shows its message in quotes.
    __str__ = Exception.__str__
