"""Operations on artifacts and the audit trail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lionstate.operations.table import Operation, operation
from lionstate.records import evidence
from lionstate.records.schemas import MAPPING, TEXT
from lionstate.records.values import rough_size

__all__ = ["TABLE"]


def _artifact_keys(params: Mapping[str, Any]) -> frozenset[str]:
    """The natural key, and the parents, which must be there first."""
    invocation, session = params.get("invocation_id"), params.get("session_id")
    found = {f"a:{(invocation, session, params['kind'], params['name'])!r}"}
    if invocation is not None:
        found.add(f"i:{invocation}")
    if session is not None:
        found.add(f"s:{session}")
    return frozenset(found)


def _nothing(_params: Mapping[str, Any]) -> frozenset[str]:
    """An event touches no row that anything else touches."""
    return frozenset()


_NAME = {**TEXT, "minLength": 1}

TABLE: tuple[Operation, ...] = (
    operation(
        evidence.insert_artifact,
        writes=True,
        keys=_artifact_keys,
        prepare=evidence.check_artifact,
        size=rough_size,
        schemas={"kind": _NAME, "name": _NAME, "content": MAPPING},
    ),
    operation(evidence.get_artifact),
    operation(evidence.list_artifacts_for_invocation),
    operation(evidence.list_artifacts_for_session),
    operation(
        evidence.insert_admin_event,
        writes=True,
        idempotent=False,
        keys=_nothing,
        prepare=evidence.check_event,
        size=rough_size,
        schemas={"details": MAPPING},
    ),
    operation(evidence.list_admin_events),
)
