"""Operations on progressions."""

from __future__ import annotations

from lionstate.operations.table import Operation, operation, progression_key
from lionstate.progression import append, reads

__all__ = ["TABLE"]

TABLE: tuple[Operation, ...] = (
    operation(append.append_to_progression, writes=True, keys=progression_key, fold=append.append_many),
    operation(reads.get_progression),
)
