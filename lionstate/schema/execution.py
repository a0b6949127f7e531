"""Invocations, shows, plays, teams and their messages.

Contract: ADR-0055 D1; layout as LionAGI 0.36.0 creates it.
"""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, Integer, Table, Text, UniqueConstraint

from lionstate.schema.base import index, metadata, one_of, status_reason
from lionstate.schema.types import Json

invocations = Table(
    "invocations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("skill", Text, nullable=False),
    Column("plugin", Text),
    Column("prompt", Text),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float),
    Column(
        "status",
        Text,
        one_of(
            "ck_invocations_status",
            "status",
            "running completed completed_empty failed timed_out aborted cancelled",
        ),
        nullable=False,
        server_default="running",
    ),
    Column("session_count", Integer, nullable=False, server_default="0"),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("node_metadata", Json),
    *status_reason(),
    index("idx_invocations_reaper", "status", "started_at", "id"),
    index("idx_invocations_skill", "skill"),
    index("idx_invocations_status", "status"),
    index("idx_invocations_updated", "updated_at"),
)

shows = Table(
    "shows",
    metadata,
    Column("id", Text, primary_key=True),
    Column("topic", Text, nullable=False, unique=True),
    Column("goal", Text),
    Column("repo", Text),
    Column("base_branch", Text),
    Column("integration_branch", Text),
    Column(
        "status",
        Text,
        one_of("ck_shows_status", "status", "active completed aborted imported"),
        nullable=False,
        server_default="active",
    ),
    Column("show_dir", Text, nullable=False),
    Column("status_source", Text, nullable=False, server_default="unknown"),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    *status_reason(),
    index("idx_shows_status", "status"),
    index("idx_shows_topic", "topic"),
    index("idx_shows_updated", "updated_at"),
)

plays = Table(
    "plays",
    metadata,
    Column("id", Text, primary_key=True),
    Column("show_id", Text, ForeignKey("shows.id", ondelete="CASCADE"), nullable=False),
    Column("name", Text, nullable=False),
    Column("playbook", Text),
    Column("effort", Text),
    Column(
        "status",
        Text,
        one_of(
            "ck_plays_status",
            "status",
            "pending prepared running running_complete gated gate_failed redoing merged escalated blocked"
            " aborted_after_finish",
        ),
        nullable=False,
        server_default="pending",
    ),
    Column("attempt", Integer, nullable=False, server_default="1"),
    Column("session_id", Text, ForeignKey("sessions.id")),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("exit_code", Integer),
    Column("worktree", Text),
    Column("branch", Text),
    Column("merge_sha", Text),
    Column("merged_at", Float),
    Column("gate_passed", Integer),
    Column("gate_feedback", Text),
    Column("depends_on", Json, server_default="[]"),
    Column("sort_order", Integer, nullable=False, server_default="0"),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    *status_reason(),
    UniqueConstraint("show_id", "name", name="idx_plays_show_name"),
    index("idx_plays_session", "session_id"),
    index("idx_plays_show", "show_id"),
    index("idx_plays_status", "status"),
)

teams = Table(
    "teams",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("member_count", Integer, nullable=False, server_default="0"),
    Column("members", Json, nullable=False, server_default="[]"),
    Column("node_metadata", Json),
    Column(
        "status",
        Text,
        one_of("ck_teams_status", "status", "active archived"),
        nullable=False,
        server_default="active",
    ),
    *status_reason(),
    index("idx_teams_name", "name"),
    index("idx_teams_status", "status"),
    index("idx_teams_updated", "updated_at"),
)

team_messages = Table(
    "team_messages",
    metadata,
    Column("id", Text, primary_key=True),
    Column("team_id", Text, ForeignKey("teams.id", ondelete="CASCADE"), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("sender", Text, nullable=False),
    Column("recipient", Text, nullable=False, server_default="all"),
    Column("content", Text, nullable=False),
    Column("summary", Text),
    Column("read_by", Json, nullable=False, server_default="[]"),
    Column("session_id", Text, ForeignKey("sessions.id")),
    index("idx_team_msgs_created", "created_at"),
    index("idx_team_msgs_session", "session_id", where="session_id IS NOT NULL"),
    index("idx_team_msgs_team", "team_id"),
)
