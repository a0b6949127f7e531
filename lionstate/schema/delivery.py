"""The outbox of messages to deliver.

Contract: ADR-0055 D1; layout as LionAGI 0.36.0 creates it.
"""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, Integer, Table, Text

from lionstate.schema.base import index, metadata, one_of
from lionstate.schema.types import Json

dispatch_outbox = Table(
    "dispatch_outbox",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("deliver_to", Text, nullable=False),
    Column("payload", Json, nullable=False),
    Column("dedup_key", Text),
    Column(
        "status",
        Text,
        one_of("ck_dispatch_outbox_status", "status", "pending delivering delivered acked dead_letter expired"),
        nullable=False,
        server_default="pending",
    ),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("max_attempts", Integer, nullable=False, server_default="8"),
    Column("next_attempt_at", Float, nullable=False),
    Column("ack_required", Integer, nullable=False, server_default="0"),
    Column("ack_token", Text),
    Column("session_id", Text, ForeignKey("sessions.id")),
    Column("schedule_run_id", Text, ForeignKey("schedule_runs.id")),
    Column("last_error", Text),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("updated_at", Float),
    index("idx_dispatch_outbox_dedup", "dedup_key", where="dedup_key IS NOT NULL", unique=True),
    index("idx_dispatch_outbox_due", "status", "next_attempt_at", where="status IN ('pending', 'delivering')"),
)
