"""Versioned definitions and the definitions of engines and workflows.

Contract: ADR-0055 D1; layout as LionAGI 0.36.0 creates it, `definitions.kind` as D2.
"""

from __future__ import annotations

from sqlalchemy import Column, Float, Integer, Table, Text, UniqueConstraint

from lionstate.schema.base import index, metadata, one_of
from lionstate.schema.types import Json

definitions = Table(
    "definitions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, one_of("ck_definitions_kind", "kind", "agent playbook"), nullable=False),
    Column("name", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("message", Text),
    UniqueConstraint("kind", "name", "version", name="idx_def_unique_version"),
    index("idx_def_kind_name", "kind", "name", "version"),
)

engine_defs = Table(
    "engine_defs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("model", Text),
    Column("max_depth", Integer),
    Column("max_agents", Integer),
    Column("options", Json),
    Column("description", Text),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    index("idx_engine_defs_kind", "kind"),
    index("idx_engine_defs_name", "name"),
    index("idx_engine_defs_updated", "updated_at"),
)

workflow_defs = Table(
    "workflow_defs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("description", Text),
    Column("spec_json", Json),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    index("idx_workflow_defs_name", "name"),
    index("idx_workflow_defs_updated", "updated_at"),
)
