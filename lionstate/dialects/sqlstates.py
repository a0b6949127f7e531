"""What the error codes of a PostgreSQL server mean (appendix A of its manual), and what an operator can do about it."""

from __future__ import annotations

from typing import Final

from lionstate.errors import (
    BackendBusyError,
    BackendError,
    BackendUnavailableError,
    ConflictError,
    ForeignKeyError,
    InvalidInputError,
    StateError,
    UniqueConflictError,
)

__all__ = ["error_of_state"]

# The server cannot be used as it was named, or now.
_UNAVAILABLE = ("08", "28", "3D", "53", "57", "58", "XX", "25006")
_QUERY_CANCELED = "57014"
_DISK_FULL = "53100"
# What somebody has to set up first.
_ADVICE: Final = {
    "3D000": "the database that the URL names does not exist: create it (createdb NAME), or correct the URL",
    "28P01": "the server refuses the password of the URL: correct it, or set the role's (ALTER ROLE NAME PASSWORD …)",
    "28000": "the server refuses the user of the URL: create it (CREATE ROLE NAME LOGIN), or let it in by pg_hba.conf",
    "42501": "the user of the URL lacks a right in the database: grant it (to make a store: CREATE on the schema), or"
    " connect as the owner of its tables",
}


def error_of_state(state: str) -> StateError:
    """The error that a code of the server means; it names the code, never a value."""
    if state in ("55P03", "40P01", "40001"):
        return BackendBusyError(f"rows stayed locked or the transaction had to give way ({state})")
    if state == "23503":
        return ForeignKeyError()
    if state == "23505":
        return UniqueConflictError()
    if state.startswith("23"):
        return ConflictError(f"the database refused the row ({state})")
    if state.startswith(("22", "54")):
        return InvalidInputError(f"the database cannot store a value ({state})")
    if state in _ADVICE:
        return BackendUnavailableError(f"{_ADVICE[state]} ({state}); nothing was changed")
    if state == _DISK_FULL:
        return BackendUnavailableError(f"the server's disk is full ({state}): make room there", reason="disk_full")
    if state.startswith(_UNAVAILABLE) and state != _QUERY_CANCELED:
        return BackendUnavailableError(f"the database cannot be used ({state}): is it up and as the URL says?")
    return BackendError(f"the database failed ({state})")
