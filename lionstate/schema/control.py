"""Store metadata, projects, signals, controls, engine runs, tags and approvals.

Contract: ADR-0055 D1; layout as LionAGI 0.36.0 creates it.
"""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, Integer, Table, Text, UniqueConstraint

from lionstate.schema.base import index, metadata, one_of
from lionstate.schema.types import Json

schema_meta = Table(
    "schema_meta",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

projects = Table(
    "projects",
    metadata,
    Column("name", Text, primary_key=True),
    Column("source", Text, nullable=False),
    Column("path", Text),
    Column("github", Text),
    Column("description", Text),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("last_seen_at", Float),
    index("idx_projects_source", "source"),
    index("idx_projects_updated", "updated_at"),
)

session_signals = Table(
    "session_signals",
    metadata,
    Column("id", Text, primary_key=True),
    Column("session_id", Text, ForeignKey("sessions.id", ondelete="CASCADE"), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("op_id", Text, nullable=False, server_default=""),
    Column("ts", Float, nullable=False),
    Column("payload", Json, nullable=False, server_default="{}"),
    UniqueConstraint("session_id", "seq", name="idx_session_signals_seq"),
    index("idx_session_signals_session_ts", "session_id", "ts"),
)

engine_runs = Table(
    "engine_runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("spec_json", Json, nullable=False),
    Column(
        "status",
        Text,
        one_of("ck_engine_runs_status", "status", "running completed failed cancelled"),
        nullable=False,
        server_default="running",
    ),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float),
    Column("session_id", Text, ForeignKey("sessions.id", ondelete="SET NULL")),
    Column("invocation_id", Text, ForeignKey("invocations.id", ondelete="SET NULL")),
    Column("signal_session_id", Text, ForeignKey("sessions.id", ondelete="SET NULL")),
    Column("parent_session_id", Text, ForeignKey("sessions.id", ondelete="SET NULL")),
    Column("outcome_json", Json),
    Column("export_dir", Text),
    Column("error", Text),
    index("idx_engine_runs_invocation", "invocation_id", where="invocation_id IS NOT NULL"),
    index("idx_engine_runs_kind", "kind"),
    index("idx_engine_runs_parent_session", "parent_session_id", where="parent_session_id IS NOT NULL"),
    index("idx_engine_runs_session", "session_id", where="session_id IS NOT NULL"),
    index("idx_engine_runs_signal_session", "signal_session_id", where="signal_session_id IS NOT NULL"),
    index("idx_engine_runs_started", "started_at"),
    index("idx_engine_runs_started_id", "started_at DESC", "id DESC"),
    index("idx_engine_runs_status", "status"),
)

session_controls = Table(
    "session_controls",
    metadata,
    Column("id", Text, primary_key=True),
    Column("session_id", Text, ForeignKey("sessions.id", ondelete="CASCADE"), nullable=False),
    Column("verb", Text, one_of("ck_session_controls_verb", "verb", "pause resume message stop"), nullable=False),
    Column("payload", Json),
    Column("created_at", Float, nullable=False),
    Column("applied_at", Float),
    Column("claimed_at", Float),
    Column("result", Text),
    index("idx_session_controls_pending", "session_id", "applied_at", where="applied_at IS NULL"),
)

run_tags = Table(
    "run_tags",
    metadata,
    Column("session_id", Text, ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", Text, primary_key=True),
    Column("created_at", Float, nullable=False),
    index("idx_run_tags_tag", "tag"),
)

approvals = Table(
    "approvals",
    metadata,
    Column("id", Text, primary_key=True),
    Column("action_kind", Text, nullable=False),
    Column("params_hash", Text, nullable=False),
    Column("session_id", Text, ForeignKey("sessions.id")),
    Column(
        "status",
        Text,
        one_of("ck_approvals_status", "status", "pending granted consumed expired denied"),
        nullable=False,
        server_default="pending",
    ),
    Column("proposed_at", Float, nullable=False),
    Column("granted_at", Float),
    Column("consumed_at", Float),
    Column("expires_at", Float, nullable=False),
    index("idx_approvals_session", "session_id", where="session_id IS NOT NULL"),
    index("idx_approvals_status", "status", where="status IN ('pending', 'granted')"),
)

approval_evidence = Table(
    "approval_evidence",
    metadata,
    Column("id", Text, primary_key=True),
    Column("sequence", Integer, nullable=False),
    Column(
        "event_type",
        Text,
        one_of("ck_approval_evidence_event_type", "event_type", "proposed granted denied consumed expired"),
        nullable=False,
    ),
    Column("approval_id", Text, ForeignKey("approvals.id"), nullable=False),
    Column("action_kind", Text, nullable=False),
    Column("status_from", Text),
    Column("status_to", Text, nullable=False),
    Column("params_hash", Text, nullable=False),
    Column("justification_class", Text),
    Column("justification_reason", Text),
    Column("created_at", Float, nullable=False),
    Column("content_hash", Text, nullable=False),
    Column("previous_hash", Text, nullable=False),
    Column("chain_hash", Text, nullable=False),
    Column("hmac_sig", Text),
    index("idx_approval_evidence_approval", "approval_id"),
    index("idx_approval_evidence_sequence", "sequence", unique=True),
)
