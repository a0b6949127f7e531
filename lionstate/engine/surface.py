"""Raw SQL for callers: how its parameters are written, and the methods of everything that runs it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from sqlalchemy import Connection, TextClause, text

from lionstate.errors import InvalidInputError

__all__ = ["Params", "SqlReads", "SqlWrites", "bound_text", "rows_of"]

R = TypeVar("R")
Params: TypeAlias = Mapping[str, Any] | Sequence[Any] | None

# Quoted text, quoted names and comments are left alone; a doubled quote inside them is two adjacent pieces.
_PIECES = re.compile(r"""('[^']*'|"[^"]*"|--[^\n]*|/\*.*?\*/)""", re.DOTALL)


def bound_text(sql: str, params: Params) -> tuple[TextClause, dict[str, Any]]:
    """A statement and its named values.

    Args:
        sql: With ``:name`` for a mapping, or ``?`` for a sequence; neither is looked for in quotes and comments.
        params: The values.
    Raises:
        InvalidInputError: The number of ``?`` is not the number of values, or a text was given for the sequence.

    Contract: reference §2.0 "Query surface".
    """
    pieces = _PIECES.split(sql)
    quoted = [re.sub(r":", r"\\:", piece) for piece in pieces[1::2]]
    plain = pieces[0::2]
    if params is None or isinstance(params, Mapping):
        values = dict(params or {})
    else:
        if isinstance(params, (str, bytes)):
            raise InvalidInputError("parameters are a mapping or a sequence, not one text")
        found = sum(piece.count("?") for piece in plain)
        if found != len(params):
            raise InvalidInputError(f"the statement has {found} placeholders and {len(params)} values were given")
        values = {f"p{position}": value for position, value in enumerate(params)}
        names = iter(values)
        plain = [re.sub(r"\?", lambda _: f":{next(names)} ", re.sub(r"(?<!:):(?=\w)", r"\\:", p)) for p in plain]
    woven = [plain[0]]
    for position, piece in enumerate(quoted):
        woven += [piece, plain[position + 1]]
    return text("".join(woven)), values


def rows_of(conn: Connection, sql: str, params: Params = None) -> list[dict[str, Any]]:
    """Run raw SQL; its rows as mappings, [] for a statement without rows."""
    statement, values = bound_text(sql, params)
    result = conn.execute(statement, values)
    return [dict(row) for row in result.mappings()] if result.returns_rows else []


class SqlReads(Protocol):
    """What runs scripts can run queries."""

    async def run(self, script: Callable[[Connection], R], /) -> R:
        """Run one script."""
        ...

    async def fetch_all(self, sql: str, params: Params = None) -> list[dict[str, Any]]:
        """Rows of a query as mappings, not decoded; parameters by name with a mapping, ``?`` with a sequence."""
        return await self.run(lambda conn: rows_of(conn, sql, params))

    async def fetch_one(self, sql: str, params: Params = None) -> dict[str, Any] | None:
        """The first row of a query, or None."""
        rows = await self.fetch_all(sql, params)
        return rows[0] if rows else None


class SqlWrites(SqlReads, Protocol):
    """What holds a write transaction can run statements."""

    async def execute(self, sql: str, params: Params = None) -> None:
        """Run one statement; parameters as in ``fetch_all``."""
        await self.run(lambda conn: rows_of(conn, sql, params))
