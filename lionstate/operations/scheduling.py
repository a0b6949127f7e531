"""Operations on schedules, their runs and what these add up to."""

from __future__ import annotations

from lionstate.operations.table import Operation, operation, touching
from lionstate.records import schedule_runs, schedule_sets, schedule_statistics, schedules, threshold_metrics

__all__ = ["TABLE"]

_one = touching("schedule:schedule_id")
_run = touching("run:run.id", "schedule:run.schedule_id", "i:run.invocation_id", "run:run.chain_parent_id")
_advanced = touching(
    "schedule:schedule_id", "run:run.id", "schedule:run.schedule_id", "i:run.invocation_id", "run:run.chain_parent_id"
)
_replaced = touching("run:orphan_id", "run:replacement_run.id", "schedule:replacement_run.schedule_id")

TABLE: tuple[Operation, ...] = (
    operation(schedules.create_schedule, writes=True, idempotent=False, keys=touching("schedule:schedule.id")),
    operation(schedules.update_schedule, writes=True, idempotent=False, keys=_one),
    # Its runs go with it, and whatever refers to them is asked.
    operation(schedules.delete_schedule, writes=True, idempotent=False),
    operation(schedule_sets.apply_schedule_set, writes=True, idempotent=False),
    operation(schedules.get_schedule),
    operation(schedules.get_schedule_by_name),
    operation(schedules.get_schedule_history),
    operation(schedules.list_schedules),
    operation(schedules.list_schedules_by_owner_key),
    operation(schedule_runs.create_schedule_run, writes=True, idempotent=False, keys=_run),
    operation(schedule_runs.create_schedule_run_and_advance, writes=True, idempotent=False, keys=_advanced),
    operation(schedule_runs.tombstone_and_replace_schedule_run, writes=True, idempotent=False, keys=_replaced),
    operation(
        schedule_runs.update_schedule_run,
        writes=True,
        idempotent=False,
        keys=touching("run:run_id", "i:invocation_id"),
    ),
    operation(schedule_runs.get_schedule_run),
    operation(schedule_runs.get_schedule_run_by_invocation),
    operation(schedule_runs.list_schedule_runs),
    operation(schedule_runs.list_running_schedule_runs),
    operation(schedule_runs.list_undispatched_schedule_runs),
    operation(schedule_runs.list_dispatched_running_schedule_runs),
    operation(schedule_runs.schedule_run_exists_since),
    operation(schedule_statistics.count_schedule_runs),
    operation(schedule_statistics.count_schedule_runs_batch),
    operation(schedule_statistics.schedule_run_streak),
    operation(schedule_statistics.schedule_run_streaks),
    operation(schedule_statistics.schedule_health_evidence),
    operation(schedule_statistics.sum_schedule_spend),
    operation(threshold_metrics.metric_value),
    operation(threshold_metrics.metric_unreported_sessions),
)
