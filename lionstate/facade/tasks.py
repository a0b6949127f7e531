"""The durable queue of tasks, and the workers that take from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lionstate.facade.runner import Runner
from lionstate.records import task_claims, tasks, workers

__all__ = ["TaskFacade", "WorkerFacade"]


class TaskFacade(Runner):
    """Methods on tasks: runs without a schedule that wait for a worker.

    A worker claims tasks, renews its leases while it works, and finishes each under the lease it holds; what it does
    not finish in time goes back to the queue. A task can therefore run more than once, but never under two leases.
    """

    async def submit_task(
        self,
        *,
        action_kind: str,
        args: Mapping[str, Any],
        execution_target: str,
        required_capabilities: Sequence[str] = (),
        library_ref: str | None = None,
        library_content_hash: str | None = None,
        concurrency_key: str | None = None,
    ) -> str:
        """Put a task at the end of the queue, durably.

        Args:
            action_kind: ``agent``, ``flow``, ``fanout``, ``play`` (or ``playbook``), ``flow_yaml``, ``engine``,
                ``command``; a ``workflow`` is kept but no claim takes it.
            args: What the worker gets; ``admission`` in it may declare ``max_duration_seconds``,
                ``allow_deferred_over_cap`` (wait, however many wait already) and ``notify``: a mapping with a
                ``deliver_to``, perhaps a ``kind`` (else ``terminal_notify``) and a ``dedup_key``, from which a claim
                that skips the task enters a dispatch.
            execution_target: ``host``, ``local_worktree``, ``daytona``, ``remote_agent`` or ``process``.
            required_capabilities: What a worker must advertise; ``warmed-cache`` is no condition.
            library_ref: Kept with the task.
            library_content_hash: Kept with the task.
            concurrency_key: Tasks of one key run one at a time; None: with ``gpu-exclusive`` a key of this host.
        Returns:
            The id of its row in ``schedule_runs``.
        Raises:
            InvalidInputError: A value is not acceptable; nothing was written.
            AdmissionRejectedError: The declared duration does not fit into a lease of 300 s, or the key is held and 2
                tasks wait for it; ``reason`` is the reason code. Nothing was written.

        Cost: three statements, three more with a concurrency key.
        Contract: ADR-0055 D1; reference §2.3, §2.8.
        """
        return await self._run(
            tasks.submit_task,
            action_kind=action_kind,
            args=args,
            execution_target=execution_target,
            required_capabilities=required_capabilities,
            library_ref=library_ref,
            library_content_hash=library_content_hash,
            concurrency_key=concurrency_key,
        )

    async def claim_tasks(
        self,
        *,
        worker_id: str,
        limit: int = 20,
        lease_seconds: float = 300.0,
        advertised_capabilities: Sequence[str] | None = None,
        execution_targets: Sequence[str] | None = None,
        heartbeat_seconds: float = 90.0,
        now: float | None = None,
    ) -> list[dict[str, Any]]:
        """Lease the longest waiting tasks that a worker can serve.

        Args:
            worker_id: Who claims; one that never sent a heartbeat may.
            limit: Tasks, 1 to 20.
            lease_seconds: How long the lease lasts, a year at most.
            advertised_capabilities: What it can do; None: what its heartbeat says.
            execution_targets: Where it runs them; None: what its heartbeat says, ``host`` without one.
            heartbeat_seconds: A worker whose heartbeat is older gets nothing.
            now: Epoch seconds; None is the time of the store's process.
        Returns:
            The rows, ``running`` and leased to the worker until ``lease_expires_at``, longest waiting first; [] when
            nothing waits for it.
        Raises:
            InvalidInputError: A value is not acceptable.

        No task is given to two workers, and no two tasks of one concurrency key run at once. A task whose declared
        duration does not fit into the lease, or that has 2 others before it at a held key and does not park, becomes
        ``skipped`` on the way.
        Cost: an index range scan of the queue, two statements for each task.
        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(
            task_claims.claim_tasks,
            worker_id=worker_id,
            limit=limit,
            lease_seconds=lease_seconds,
            advertised_capabilities=advertised_capabilities,
            execution_targets=execution_targets,
            heartbeat_seconds=heartbeat_seconds,
            now=now,
        )

    async def renew_task(
        self,
        run_id: str,
        *,
        worker_id: str,
        lease_expires_at: float,
        lease_seconds: float = 300.0,
        now: float | None = None,
    ) -> float | None:
        """Let a lease last for ``lease_seconds`` from now on.

        Args:
            run_id: The task.
            worker_id: Who holds the lease.
            lease_expires_at: The lease, by its end in epoch seconds.
            lease_seconds: How long it lasts then, a year at most.
            now: Epoch seconds; None is the time of the store's process.
        Returns:
            The new ``lease_expires_at``; None if this lease does not hold the task any more: stop working on it.
        Raises:
            NotFoundError: The task is missing.

        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(
            tasks.renew_task,
            run_id,
            worker_id=worker_id,
            lease_expires_at=lease_expires_at,
            lease_seconds=lease_seconds,
            now=now,
        )

    async def finish_task(
        self,
        run_id: str,
        *,
        worker_id: str,
        lease_expires_at: float,
        status: str,
        exit_code: int | None = None,
        error_detail: str | None = None,
        reason_code: str | None = None,
        reason_summary: str = "",
        evidence_refs: Sequence[Mapping[str, Any]] | None = None,
    ) -> bool:
        """End a task under the lease that holds it.

        Args:
            run_id: The task.
            worker_id: Who holds the lease.
            lease_expires_at: The lease, by its end in epoch seconds.
            status: ``completed``, ``failed`` or ``timed_out``.
            exit_code: Of the process, if there was one.
            error_detail: For people.
            reason_code: A registered one; None is ``run.completed.ok``, ``run.failed.exit_nonzero`` or
                ``run.failed.exception``, ``run.timed_out.deadline``.
            reason_summary: For people.
            evidence_refs: JSON values that the reason rests on.
        Returns:
            False if this lease does not hold the task any more; nothing was written then.
        Raises:
            InvalidInputError: A value is not acceptable; nothing was written.
            NotFoundError: The task is missing.

        Contract: ADR-0055 D1; reference §2.3, §2.8.
        """
        return await self._run(
            tasks.finish_task,
            run_id,
            worker_id=worker_id,
            lease_expires_at=lease_expires_at,
            status=status,
            exit_code=exit_code,
            error_detail=error_detail,
            reason_code=reason_code,
            reason_summary=reason_summary,
            evidence_refs=evidence_refs,
        )

    async def cancel_task(self, run_id: str, *, actor: str, source: str = "operator") -> bool:
        """Cancel a task that still waits.

        Args:
            run_id: The task.
            actor: Who cancels it.
            source: ``scheduler``, ``operator``, ``system``, ``webhook`` or ``agent``.
        Returns:
            False if it is not ``queued``: it runs or has ended.
        Raises:
            NotFoundError: The task is missing.

        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(tasks.cancel_task, run_id, actor=actor, source=source)

    async def reap_expired_leases(self, *, now: float | None = None, limit: int = 100) -> dict[str, int]:
        """Give the tasks of expired leases back to the queue.

        Args:
            now: Epoch seconds; None is the time of the store's process.
            limit: Tasks, 1 to 1,000, longest expired first.
        Returns:
            ``requeued``, at the place in the queue that they had, and ``failed``: those of a third lease.

        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(task_claims.reap_expired_leases, now=now, limit=limit)

    async def list_tasks(
        self,
        *,
        status: str | Sequence[str] | None = None,
        action_kind: str | None = None,
        concurrency_key: str | None = None,
        leased_by: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[dict[str, Any]]:
        """Read a page of tasks, in the order of the queue.

        Args:
            status: Only with this status, or one of these; None or [] is any.
            action_kind: Only of this kind.
            concurrency_key: Only of this key.
            leased_by: Only those that this worker holds or held last.
            limit: Rows, 1 to 1,000.
            offset: Rows before the page.

        Contract: ADR-0055 D1.
        """
        return await self._run(
            tasks.list_tasks,
            status=status,
            action_kind=action_kind,
            concurrency_key=concurrency_key,
            leased_by=leased_by,
            limit=limit,
            offset=offset,
        )

    async def count_tasks(
        self,
        *,
        status: str | Sequence[str] | None = None,
        action_kind: str | None = None,
        concurrency_key: str | None = None,
        leased_by: str | None = None,
    ) -> int:
        """Count the tasks that ``list_tasks`` would page through.

        Contract: ADR-0055 D1.
        """
        return await self._run(
            tasks.count_tasks,
            status=status,
            action_kind=action_kind,
            concurrency_key=concurrency_key,
            leased_by=leased_by,
        )


class WorkerFacade(Runner):
    """Methods on workers."""

    async def register_heartbeat(
        self,
        *,
        worker_id: str,
        advertised_capabilities: Sequence[str] | None = None,
        execution_targets: Sequence[str] | None = None,
        now: float | None = None,
    ) -> None:
        """Say that a worker is alive and what it can do; what it said before is replaced.

        Args:
            worker_id: One that is not known is inserted.
            advertised_capabilities: At most 1,000 texts; None is none.
            execution_targets: At most 1,000 texts; None or [] is ``host``.
            now: Epoch seconds; None is the time of the store's process.
        Raises:
            InvalidInputError: A value is not acceptable; nothing was written.

        Cost: one statement.
        Contract: ADR-0055 D1; reference §2.3.
        """
        await self._run(
            workers.register_heartbeat,
            worker_id=worker_id,
            advertised_capabilities=advertised_capabilities,
            execution_targets=execution_targets,
            now=now,
        )

    async def get_worker(self, worker_id: str) -> dict[str, Any] | None:
        """Read one worker; None if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(workers.get_worker, worker_id)

    async def list_workers(
        self, *, after_heartbeat_at: float | None = None, limit: int = 100, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Read a page of workers, last alive first.

        Args:
            after_heartbeat_at: Only those that were alive after this time, epoch seconds.
            limit: Rows, 1 to 1,000.
            offset: Rows before the page.

        Contract: ADR-0055 D1.
        """
        return await self._run(workers.list_workers, after_heartbeat_at=after_heartbeat_at, limit=limit, offset=offset)

    async def delete_worker(self, worker_id: str) -> bool:
        """Remove a worker; False if it is missing. Its leases run out by themselves.

        Contract: ADR-0055 D1.
        """
        return await self._run(workers.delete_worker, worker_id)
