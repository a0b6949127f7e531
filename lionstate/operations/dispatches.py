"""Operations on the outbox of dispatches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lionstate.operations.table import Operation, operation, touching
from lionstate.records import dispatch_attempts, dispatches

__all__ = ["TABLE"]

_one = touching("dispatch:dispatch_id")


def _claims(_params: Mapping[str, Any]) -> frozenset[str]:
    """Claims and purges find their rows themselves, under row locks; one at a time is enough."""
    return frozenset(("dispatch-claims",))


TABLE: tuple[Operation, ...] = (
    operation(
        dispatches.enqueue_dispatch,
        writes=True,
        idempotent=False,
        keys=touching("dispatch-dedup:dedup_key", "s:session_id", "run:schedule_run_id"),
    ),
    operation(dispatches.enqueue_revival_heartbeat, writes=True, keys=_claims),
    operation(dispatches.ack_dispatch, writes=True, keys=_one),
    operation(dispatches.retry_dispatch, writes=True, idempotent=False, keys=_one),
    operation(dispatches.purge_dispatch, writes=True, idempotent=False, keys=_one),
    operation(dispatches.purge_dispatches, writes=True, idempotent=False, keys=_claims),
    operation(dispatches.get_dispatch),
    operation(dispatches.list_dispatches),
    operation(dispatches.count_dispatches),
    operation(dispatch_attempts.claim_due_dispatches, writes=True, idempotent=False, keys=_claims),
    operation(dispatch_attempts.finish_dispatch_attempt, writes=True, idempotent=False, keys=_one),
    operation(dispatch_attempts.next_dispatch_at),
)
