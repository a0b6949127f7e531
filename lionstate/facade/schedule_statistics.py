"""What the runs of schedules add up to, and the metrics that threshold schedules watch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lionstate.facade.runner import Runner
from lionstate.records import schedule_statistics, threshold_metrics

__all__ = ["ScheduleStatisticsFacade"]


class ScheduleStatisticsFacade(Runner):
    """Counts, streaks, evidence of health, spend, metrics."""

    async def count_schedule_runs(
        self,
        schedule_id: str,
        *,
        chain_depth: int = 0,
        statuses: Sequence[str] = ("completed", "failed", "cancelled", "timed_out"),
        fired_after: float | None = None,
    ) -> int:
        """Count the runs of a schedule.

        Args:
            schedule_id: A missing one has none.
            chain_depth: 0 are the runs that fired by themselves.
            statuses: Only with one of these.
            fired_after: Only fired at this time, epoch seconds, or later.

        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(
            schedule_statistics.count_schedule_runs,
            schedule_id,
            chain_depth=chain_depth,
            statuses=statuses,
            fired_after=fired_after,
        )

    async def count_schedule_runs_batch(
        self,
        schedule_ids: Sequence[str],
        *,
        chain_depth: int = 0,
        statuses: Sequence[str] = ("completed", "failed", "cancelled", "timed_out"),
    ) -> dict[str, int]:
        """Count the runs of at most 1,000 schedules, as ``count_schedule_runs``; 0 for those without any.

        Cost: one query.
        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(
            schedule_statistics.count_schedule_runs_batch, schedule_ids, chain_depth=chain_depth, statuses=statuses
        )

    async def schedule_run_streak(self, schedule_id: str) -> tuple[int, str | None]:
        """Read how often a schedule failed in a row.

        Returns:
            Among the newest 50 top-level runs the failed ones since one completed or was cancelled, and the status of
            the newest; (0, None) without runs.

        Cost: one range scan of 50 rows.
        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(schedule_statistics.schedule_run_streak, schedule_id)

    async def schedule_run_streaks(self, schedule_ids: Sequence[str]) -> dict[str, tuple[int, str | None]]:
        """Read ``schedule_run_streak`` of at most 1,000 schedules; an entry for every requested id.

        Cost: one query over the runs of these schedules.
        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(schedule_statistics.schedule_run_streaks, schedule_ids)

    async def schedule_health_evidence(self, schedule_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Read what a verdict on the health of at most 1,000 schedules needs.

        Returns:
            For every requested id ``last_recorded_run_at`` (newest top-level run of any status), and of the newest one
            that runs or ended after running ``last_executed_status`` and ``last_executed_run_at``; None without one.

        Cost: two queries over the runs of these schedules.
        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(schedule_statistics.schedule_health_evidence, schedule_ids)

    async def sum_schedule_spend(self, schedule_id: str) -> dict[str, Any]:
        """Read what a schedule has spent.

        Returns:
            ``cost_usd`` and ``tokens`` (in and out) of the sessions of all its runs, and ``unreported_sessions``: the
            ended ones that report no cost. A session counts once, however many runs its invocation has.

        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(schedule_statistics.sum_schedule_spend, schedule_id)

    async def metric_value(self, metric: str, window_start: float) -> float:
        """Read one metric of the whole store.

        Args:
            metric: ``failed_sessions`` (causes: sessions of one invocation and reason count once), ``total_cost_usd``,
                ``p95_latency_ms`` (of invocations that measured their own end), over the window;
                ``github_poll_consecutive_401`` and ``github_poll_healthy_age_minutes`` of enabled pollers, now.
            window_start: Epoch seconds.
        Returns:
            0.0 when there is nothing to measure.
        Raises:
            InvalidInputError: Another metric.

        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(threshold_metrics.metric_value, metric, window_start)

    async def metric_unreported_sessions(self, metric: str, window_start: float) -> int:
        """Count the sessions that ``metric_value`` could not see: for ``total_cost_usd`` ended ones without a cost.

        Args:
            metric: As for ``metric_value``.
            window_start: Epoch seconds, as for ``metric_value``.
        Returns:
            0 for any other metric.

        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(threshold_metrics.metric_unreported_sessions, metric, window_start)
