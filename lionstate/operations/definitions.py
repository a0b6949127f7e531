"""Operations on versioned definitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lionstate.operations.table import Operation, operation
from lionstate.records import definitions
from lionstate.records.schemas import choice
from lionstate.records.values import rough_size

__all__ = ["TABLE"]


def _keys(params: Mapping[str, Any]) -> frozenset[str]:
    """One version after the other per kind and name."""
    return frozenset((f"d:{params['kind']}:{params['name']}",))


def _prepare(params: dict[str, Any]) -> dict[str, Any]:
    definitions.check_definition(**params)
    return params


TABLE: tuple[Operation, ...] = (
    operation(
        definitions.save_definition,
        writes=True,
        idempotent=False,
        keys=_keys,
        prepare=_prepare,
        size=rough_size,
        schemas={"kind": choice(definitions.DEFINITION_KINDS)},
    ),
    operation(definitions.get_definition),
    operation(definitions.list_definition_versions),
    operation(definitions.list_latest_definition_versions),
)
