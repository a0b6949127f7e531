"""Operations on approvals and their evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lionstate.operations.table import Operation, operation
from lionstate.records import approvals

__all__ = ["TABLE"]


def _chain(_params: Mapping[str, Any]) -> frozenset[str]:
    """All evidence is one chain."""
    return frozenset(("approval-evidence",))


TABLE: tuple[Operation, ...] = (
    operation(approvals.create_approval, writes=True, idempotent=False, keys=_chain),
    # A write: an approval whose time is over becomes expired when it is looked at.
    operation(approvals.get_approval, writes=True, keys=_chain),
    operation(approvals.grant_approval, writes=True, idempotent=False, keys=_chain),
    operation(approvals.deny_approval, writes=True, idempotent=False, keys=_chain),
    operation(approvals.consume_approval, writes=True, idempotent=False, keys=_chain),
    operation(approvals.list_approvals),
    operation(approvals.list_approval_evidence),
    operation(approvals.verify_approval_chain),
)
