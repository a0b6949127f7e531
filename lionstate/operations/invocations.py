"""Operations on invocations."""

from __future__ import annotations

from lionstate.operations.table import Operation, operation, touching
from lionstate.records import invocations

__all__ = ["TABLE"]

_one = touching("i:invocation_id")

TABLE: tuple[Operation, ...] = (
    operation(invocations.create_invocation, writes=True, keys=touching("i:invocation.id")),
    operation(invocations.update_invocation, writes=True, idempotent=False, keys=_one),
    operation(invocations.merge_invocation_node_metadata, writes=True, keys=_one),
    operation(invocations.get_invocation),
    operation(invocations.list_invocations),
    operation(invocations.count_invocations),
    operation(invocations.list_running_invocations_for_reaping),
    operation(invocations.list_sessions_for_invocation),
    operation(invocations.list_sessions_for_invocations),
)
