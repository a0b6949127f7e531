"""What may be repeated of SQLite's error texts: its own fixed words and names of the schema, never a stored value."""

from __future__ import annotations

import re

from lionstate.schema.ddl import FENCE_MESSAGE

__all__ = ["driver_error", "forget_text", "said", "undecodable_column"]

_UNDECODABLE = re.compile(r"Could not decode to UTF-8 column '(\w{0,64})'", re.IGNORECASE)
# A text that only begins with one of these is not repeated either: what stands behind may come from the store.
_FIXED = re.compile(
    r"access permission denied|attempt to write a readonly database|bad parameter or other API misuse"
    r"|cannot commit - no transaction is active|cannot operate on a closed database\.?"
    r"|cannot start a transaction within a transaction|column index out of range|database disk image is malformed"
    r"|database or disk is full|database schema has changed|database (?:table )?is locked(?:: \w+)?|datatype mismatch"
    r"|disk I/O error|file is not a database|interrupted|large file support is disabled|locking protocol"
    r"|malformed JSON|not authorized|out of memory|parser stack overflow|string or blob too big"
    r"|too many (?:SQL variables|terms in compound SELECT|attached databases - max \d+)|unable to open database file"
    r"|(?:CHECK|NOT NULL) constraint failed: [\w.]+|no such (?:table|column|index|function|module|savepoint): [\w.]+"
    r"|(?:index|table|view) \w+ already exists|table \w+ has no column named \w+|duplicate column name: \w+"
)
_SYNTAX = re.compile(r'near ".*": syntax error|incomplete input|unrecognized token: .*', re.DOTALL)


def driver_error(error: BaseException) -> BaseException:
    """The driver's error within one of SQLAlchemy's; any other as it is."""
    found = getattr(error, "orig", None)
    return found if isinstance(found, BaseException) else error


def said(error: BaseException) -> str:
    """What an error of the driver says, as far as that is SQLite's; else its code by name."""
    text = str(error)
    if text == FENCE_MESSAGE or _FIXED.fullmatch(text):
        return text
    if _SYNTAX.fullmatch(text):
        return "syntax error"
    return str(getattr(error, "sqlite_errorname", None) or type(error).__name__)


def undecodable_column(error: BaseException) -> str | None:
    """The column whose text is not UTF-8, \"\" where it has no plain name; None for every other error.

    The driver quotes the whole text behind it.
    """
    found = _UNDECODABLE.match(str(driver_error(error)))
    return None if found is None else found[1]


def forget_text(error: BaseException, column: str) -> None:
    """Take the quoted text out of an undecodable error: it becomes the cause of ours, and tracebacks print causes."""
    for found in (error, driver_error(error)):
        found.args = (f"Could not decode to UTF-8 column '{column}'", *found.args[1:])
