"""Artifacts, status transitions and the audit trail.

Contract: ADR-0055 D1; layout as LionAGI 0.36.0 creates it.
"""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, Table, Text

from lionstate.schema.base import index, metadata
from lionstate.schema.types import Json

artifacts = Table(
    "artifacts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("invocation_id", Text, ForeignKey("invocations.id", ondelete="CASCADE")),
    Column("session_id", Text, ForeignKey("sessions.id")),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("content", Json, nullable=False),
    Column("file_path", Text),
    index("idx_artifacts_created", "created_at"),
    index("idx_artifacts_invocation", "invocation_id", where="invocation_id IS NOT NULL"),
    index("idx_artifacts_invocation_time", "invocation_id", "created_at", where="invocation_id IS NOT NULL"),
    index("idx_artifacts_kind", "kind"),
    index(
        "idx_artifacts_natural_key_both",
        "invocation_id",
        "session_id",
        "kind",
        "name",
        where="invocation_id IS NOT NULL AND session_id IS NOT NULL",
        unique=True,
    ),
    index(
        "idx_artifacts_natural_key_inv_only",
        "invocation_id",
        "kind",
        "name",
        where="invocation_id IS NOT NULL AND session_id IS NULL",
        unique=True,
    ),
    index(
        "idx_artifacts_natural_key_ses_only",
        "session_id",
        "kind",
        "name",
        where="session_id IS NOT NULL AND invocation_id IS NULL",
        unique=True,
    ),
    index(
        "idx_artifacts_natural_key_unattached",
        "kind",
        "name",
        where="invocation_id IS NULL AND session_id IS NULL",
        unique=True,
    ),
    index("idx_artifacts_session", "session_id", where="session_id IS NOT NULL"),
    index("idx_artifacts_session_time", "session_id", "created_at", where="session_id IS NOT NULL"),
)

status_transitions = Table(
    "status_transitions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("entity_type", Text, nullable=False),
    Column("entity_id", Text, nullable=False),
    Column("previous_status", Text),
    Column("status", Text, nullable=False),
    Column("reason_code", Text, nullable=False),
    Column("reason_summary", Text),
    Column("evidence_refs", Json),
    Column("source", Text, nullable=False),
    Column("actor", Text),
    Column("created_at", Float, nullable=False),
    Column("metadata", Json),
    index("idx_status_transitions_created", "created_at"),
    index("idx_status_transitions_entity", "entity_type", "entity_id", "created_at"),
    index("idx_status_transitions_reason", "reason_code", "created_at"),
)

admin_events = Table(
    "admin_events",
    metadata,
    Column("id", Text, primary_key=True),
    Column("created_at", Float, nullable=False),
    Column("action", Text, nullable=False),
    Column("target_id", Text),
    Column("details", Json, nullable=False),
    Column("actor", Text, nullable=False, server_default="admin"),
    index("idx_admin_events_action", "action"),
    index("idx_admin_events_created", "created_at"),
    index("idx_admin_events_target", "target_id", where="target_id IS NOT NULL"),
)
