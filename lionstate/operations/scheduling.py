"""Operations on schedules."""

from __future__ import annotations

from lionstate.operations.table import Operation, operation, touching
from lionstate.records import schedule_sets, schedules

__all__ = ["TABLE"]

_one = touching("schedule:schedule_id")

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
)
