"""Operations on projects, signals, controls, engine runs, tags and statistics."""

from __future__ import annotations

from lionstate.operations.table import Operation, operation, touching
from lionstate.records import controls, engine_runs, projects, run_tags, signals, statistics

__all__ = ["TABLE"]

_project = touching("j:name")
_run = touching("er:run_id", "s:session_id")
_control = touching("control:control_id")
_tag = touching("s:session_id")

TABLE: tuple[Operation, ...] = (
    operation(projects.register_project, writes=True, keys=_project),
    operation(projects.create_project, writes=True, idempotent=False, keys=_project),
    operation(projects.update_project, writes=True, keys=_project),
    operation(projects.delete_project, writes=True, idempotent=False, keys=_project),
    operation(projects.get_project),
    operation(projects.list_projects),
    operation(signals.insert_session_signal, writes=True, idempotent=False, keys=touching("s:session_id")),
    operation(signals.get_session_signals_after),
    operation(controls.insert_session_control, writes=True, idempotent=False, keys=touching("s:session_id")),
    operation(controls.mark_session_control_applying, writes=True, idempotent=False, keys=_control),
    operation(controls.finalize_session_control, writes=True, idempotent=False, keys=_control),
    operation(controls.resolve_claimed_session_control, writes=True, idempotent=False, keys=_control),
    operation(controls.get_session_control),
    operation(controls.list_pending_session_controls),
    operation(engine_runs.insert_engine_run, writes=True, idempotent=False, keys=_run),
    operation(engine_runs.update_engine_run, writes=True, keys=_run),
    operation(
        engine_runs.set_engine_run_lineage,
        writes=True,
        keys=touching("er:run_id", "i:invocation_id", "s:signal_session_id", "s:parent_session_id"),
    ),
    operation(engine_runs.record_engine_run_outcome, writes=True, keys=_run),
    operation(engine_runs.get_engine_run),
    operation(engine_runs.list_engine_runs),
    operation(engine_runs.list_engine_run_summaries),
    operation(run_tags.create_run_tag, writes=True, idempotent=False, keys=_tag),
    operation(run_tags.delete_run_tag, writes=True, idempotent=False, keys=_tag),
    operation(run_tags.list_run_tags),
    operation(run_tags.count_run_tags),
    operation(run_tags.list_sessions_with_tags),
    operation(statistics.activity_stats),
    operation(statistics.spend_stats),
    operation(statistics.store_stats),
    operation(statistics.spend_rollup),
)
