"""Messages, their classes, ordered progressions, sessions and branches.

Contract: ADR-0055 D1; layout as LionAGI 0.36.0 creates it.
"""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, Integer, LargeBinary, Table, Text

from lionstate.schema.base import index, metadata, one_of, status_reason
from lionstate.schema.types import Json

message_types = Table(
    "message_types",
    metadata,
    Column("type_id", Integer, primary_key=True),
    Column("lion_class", Text, nullable=False, unique=True),
)

messages = Table(
    "messages",
    metadata,
    Column("id", Text, primary_key=True),
    Column("created_at", Float, nullable=False),
    Column("node_metadata", Json),
    Column("content", Json, nullable=False),
    Column("embedding", LargeBinary),
    Column("sender", Text),
    Column("recipient", Text),
    Column("channel", Text),
    Column("role", Text, nullable=False),
    Column("lion_class", Integer, ForeignKey("message_types.type_id"), nullable=False),
    index("idx_messages_created", "created_at"),
    index("idx_messages_lion_class", "lion_class"),
    index("idx_messages_recipient", "recipient", where="recipient IS NOT NULL"),
    index("idx_messages_role", "role"),
    index("idx_messages_sender", "sender", where="sender IS NOT NULL"),
)

progressions = Table(
    "progressions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("created_at", Float, nullable=False),
    Column("collection", Text, nullable=False, server_default="[]"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("cc_session_id", Text),
    Column("run_id", Text),
    Column("created_at", Float, nullable=False),
    Column("node_metadata", Json),
    Column("name", Text),
    Column("user_label", Text),
    Column("user", Text),
    Column("progression_id", Text, ForeignKey("progressions.id"), nullable=False),
    Column("first_msg_id", Text, ForeignKey("messages.id")),
    Column("last_msg_id", Text, ForeignKey("messages.id")),
    Column("updated_at", Float, nullable=False),
    Column("playbook_name", Text),
    Column("agent_name", Text),
    Column(
        "invocation_kind",
        Text,
        one_of(
            "ck_sessions_invocation_kind",
            "invocation_kind",
            "agent play flow fanout show-play engine",
            or_null=True,
        ),
    ),
    Column("show_topic", Text),
    Column("show_play_name", Text),
    Column("artifacts_path", Text),
    Column(
        "source_kind",
        Text,
        one_of("ck_sessions_source_kind", "source_kind", "live imported_fs imported_codex", or_null=True),
        server_default="live",
    ),
    Column("status", Text),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("ended_at_is_approximate", Integer, nullable=False, server_default="0"),
    Column("last_message_at", Float),
    Column("current_phase", Text),
    Column("invocation_id", Text, ForeignKey("invocations.id")),
    Column("model", Text),
    Column("provider", Text),
    Column("effort", Text),
    Column("agent_hash", Text),
    Column("project", Text),
    Column("project_source", Text),
    *status_reason(),
    Column("artifact_contract_json", Json),
    Column("artifact_verification_json", Json),
    Column("input_tokens", Integer),
    Column("output_tokens", Integer),
    Column("total_cost_usd", Float),
    Column("num_turns", Integer),
    Column("duration_ms", Float),
    index("idx_sessions_cc_session", "cc_session_id", where="cc_session_id IS NOT NULL"),
    index("idx_sessions_first_msg_id", "first_msg_id"),
    index("idx_sessions_invocation", "invocation_id", where="invocation_id IS NOT NULL"),
    index(
        "idx_sessions_invocation_status_created",
        "invocation_id",
        "status",
        "created_at",
        "id",
        where="invocation_id IS NOT NULL",
    ),
    index("idx_sessions_last_msg_id", "last_msg_id"),
    index("idx_sessions_progression_id", "progression_id"),
    index("idx_sessions_project", "project", where="project IS NOT NULL"),
    index("idx_sessions_run_id", "run_id", where="run_id IS NOT NULL"),
    index("idx_sessions_status_last_msg", "status", "last_message_at", where="status = 'running'"),
    index("idx_sessions_status_updated", "status", "updated_at"),
    index(
        "idx_sessions_terminal_missing_end",
        "id",
        where="ended_at IS NULL AND status IN"
        " ('completed','completed_empty','failed','timed_out','aborted','cancelled')",
    ),
    index("idx_sessions_updated", "updated_at"),
)

branches = Table(
    "branches",
    metadata,
    Column("id", Text, primary_key=True),
    Column("created_at", Float, nullable=False),
    Column("node_metadata", Json),
    Column("user", Text),
    Column("name", Text),
    Column("session_id", Text, ForeignKey("sessions.id", ondelete="CASCADE"), nullable=False),
    Column("progression_id", Text, ForeignKey("progressions.id"), nullable=False),
    Column("system_msg_id", Text, ForeignKey("messages.id")),
    Column("model", Text),
    Column("provider", Text),
    Column("agent_name", Text),
    Column("status", Text),
    Column("started_at", Float),
    Column("ended_at", Float),
    index("idx_branches_progression_id", "progression_id"),
    index("idx_branches_session_created", "session_id", "created_at"),
    index("idx_branches_system_msg_id", "system_msg_id"),
)
