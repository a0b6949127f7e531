"""Operations on the queue of tasks and on workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lionstate.operations.table import Operation, operation, touching
from lionstate.records import task_claims, tasks, workers

__all__ = ["TABLE"]

_one = touching("run:run_id")
_worker = touching("worker:worker_id")


def _leases(_params: Mapping[str, Any]) -> frozenset[str]:
    """A reaper finds its rows itself, under row locks; one at a time is enough."""
    return frozenset(("task-leases",))


TABLE: tuple[Operation, ...] = (
    operation(tasks.submit_task, writes=True, idempotent=False, keys=touching("task-key:concurrency_key")),
    # Claims of two workers go side by side: neither waits for a row that the other looks at.
    operation(task_claims.claim_tasks, writes=True, idempotent=False, keys=_worker),
    operation(task_claims.reap_expired_leases, writes=True, idempotent=False, keys=_leases),
    operation(tasks.renew_task, writes=True, idempotent=False, keys=_one),
    operation(tasks.finish_task, writes=True, idempotent=False, keys=_one),
    operation(tasks.cancel_task, writes=True, idempotent=False, keys=_one),
    operation(tasks.list_tasks),
    operation(tasks.count_tasks),
    operation(workers.register_heartbeat, writes=True, keys=_worker),
    operation(workers.delete_worker, writes=True, idempotent=False, keys=_worker),
    operation(workers.get_worker),
    operation(workers.list_workers),
)
