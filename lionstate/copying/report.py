"""What a copy says of itself: while it runs and at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["CopyReport", "OnProgress", "TableCopied", "quiet"]

OnProgress: TypeAlias = Callable[[str, int, int], None]
"""Called with the stage (``check``, ``copy``, ``verify``), the rows done in it and the rows of it in all."""


def quiet(_stage: str, _done: int, _total: int) -> None:
    """Take no notice of progress."""


@dataclass(frozen=True, slots=True)
class TableCopied:
    """One table, equal on both sides.

    Attributes:
        name: The table.
        rows: Its rows.
        digest: Sum of the rows' BLAKE2b-128 over their values, 32 hex digits; does not depend on their order.
    """

    name: str
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What a copy did.

    Attributes:
        source: The store that was read, without its password.
        target: The store that was written, without its password.
        tables: Every table that was copied; of a copy that had been finished before, those that callers write.
        rows: Rows of all tables.
        copied_rows: Rows that this run wrote.
        copied_bytes: Their size, without keys.
        seconds: How long this run took.
        copy_seconds: How long it wrote; the rest is looking and verifying.
        resumed: An earlier run had begun.
        already_finished: An earlier run had finished; the two were compared again, and nothing was written.
        left_out: Tables and columns of the source that are not lionstate's.
    """

    source: str
    target: str
    tables: Sequence[TableCopied]
    rows: int
    copied_rows: int
    copied_bytes: int
    seconds: float
    copy_seconds: float
    resumed: bool
    already_finished: bool
    left_out: Sequence[str]
