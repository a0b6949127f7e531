"""The two groups of tables: what LionAGI stores share, and lionstate's own."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Table

from lionstate.schema import (
    control,
    conversation,
    definitions,
    delivery,
    evidence,
    execution,
    own,
    scheduling,
)

__all__ = ["OWN_TABLES", "RECORD_TABLES"]

# The 28 tables, in the order of ADR-0055 D1.
RECORD_TABLES: Final[tuple[Table, ...]] = (
    conversation.message_types,
    conversation.messages,
    conversation.progressions,
    conversation.sessions,
    conversation.branches,
    execution.invocations,
    execution.shows,
    execution.plays,
    execution.teams,
    execution.team_messages,
    scheduling.schedules,
    scheduling.schedule_runs,
    scheduling.workers,
    definitions.definitions,
    definitions.engine_defs,
    definitions.workflow_defs,
    control.schema_meta,
    control.projects,
    control.session_signals,
    control.engine_runs,
    control.session_controls,
    control.run_tags,
    control.approvals,
    control.approval_evidence,
    evidence.artifacts,
    evidence.status_transitions,
    evidence.admin_events,
    delivery.dispatch_outbox,
)

OWN_TABLES: Final[tuple[Table, ...]] = (
    own.progression_items,
    own.progression_storage_state,
    own.progression_sizes,
    own.progression_activity,
    own.progression_orders,
    own.progression_proofs,
    own.migration_control,
    own.migration_lease,
    own.request_receipts,
    own.writer_batches,
)
