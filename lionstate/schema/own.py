"""lionstate's own tables: items, storage state, and what maintenance, receipts and the writer keep.

Contract: ADR-0117 D1, D2; design decisions 2-4, 13, 19, 20, 26-28, 38, 39.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Integer, Table, Text

from lionstate.schema.base import index, metadata, one_of
from lionstate.schema.types import Seconds

__all__ = [
    "migration_control",
    "migration_lease",
    "progression_activity",
    "progression_items",
    "progression_orders",
    "progression_proofs",
    "progression_sizes",
    "progression_storage_state",
    "request_receipts",
    "writer_batches",
]

# No foreign key to messages: an id outlives its pruned message. Not unique per message: a legacy collection
# may hold an id twice.
progression_items = Table(
    "progression_items",
    metadata,
    Column("progression_id", Text, ForeignKey("progressions.id", ondelete="CASCADE"), primary_key=True),
    Column("ordinal", BigInteger, primary_key=True, autoincrement=False),
    Column("message_id", Text, nullable=False),
    index("idx_progression_items_message", "progression_id", "message_id"),
    sqlite_with_rowid=False,
)

progression_storage_state = Table(
    "progression_storage_state",
    metadata,
    Column("progression_id", Text, ForeignKey("progressions.id", ondelete="CASCADE"), primary_key=True),
    Column(
        "phase",
        Text,
        one_of("ck_progression_storage_state_phase", "phase", "json dual items blocked"),
        nullable=False,
    ),
    Column("source_count", BigInteger),
    Column("backfill_next", BigInteger, nullable=False, server_default="0"),
    Column("next_ordinal", BigInteger, nullable=False, server_default="0"),
    Column("frozen_count", BigInteger),
    Column("source_digest", Text),
    Column("items_digest", Text),
    Column("blocked_reason", Text),
    Column("updated_at", Seconds, nullable=False),
    Column("cutover_at", Seconds),
    # What serves reads and appends; differs from the phase only while blocked.
    Column(
        "authority",
        Text,
        one_of("ck_progression_storage_state_authority", "authority", "json items none"),
        nullable=False,
        server_default="json",
    ),
    # Random, drawn anew at every replacement: equal means no row was deleted or rewritten in between.
    Column("generation", BigInteger, nullable=False),
    Column("compat_read", Integer, nullable=False, server_default="0"),
    # Set and cleared inside lionstate's own replacement, which the fence lets through.
    Column("replacing", Integer, nullable=False, server_default="0"),
    # Length and SHA-256 (hex) of the JSON text as it stood at cutover, replacement or creation in items.
    Column("text_bytes", BigInteger),
    Column("text_sha256", Text),
    # PostgreSQL: the version (xmin) of the parent row as our last write, or the admission, left it.
    Column("last_xact", BigInteger),
    Column("held_reason", Text),
    Column("held_detail", Text),
    Column("verify_misses", BigInteger, nullable=False, server_default="0"),
    # 1 while item rows of a rolled back progression wait for their removal.
    Column("shadow_rows", Integer, nullable=False, server_default="0"),
    index("idx_progression_storage_state_phase", "phase", "updated_at"),
)

progression_sizes = Table(
    "progression_sizes",
    metadata,
    Column("progression_id", Text, ForeignKey("progressions.id", ondelete="CASCADE"), primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("items", BigInteger),
    Column("measured_at", Seconds, nullable=False),
)

progression_activity = Table(
    "progression_activity",
    metadata,
    Column("progression_id", Text, ForeignKey("progressions.id", ondelete="CASCADE"), primary_key=True),
    Column("appends", BigInteger, nullable=False, server_default="0"),
    Column("updated_at", Seconds, nullable=False),
)

# What an operator ordered for single progressions, a row an order; no row is no order.
progression_orders = Table(
    "progression_orders",
    metadata,
    Column("progression_id", Text, ForeignKey("progressions.id", ondelete="CASCADE"), primary_key=True),
    Column(
        "kind",
        Text,
        one_of("ck_progression_orders_kind", "kind", "prioritize exclude hold compat_read"),
        primary_key=True,
    ),
    Column("actor", Text, nullable=False),
    Column("reason", Text),
    Column("updated_at", Seconds, nullable=False),
    Column("expires_at", Seconds),
)

# Proofs of complete dual progressions whose cutover waits for a command; void under another generation.
progression_proofs = Table(
    "progression_proofs",
    metadata,
    Column("progression_id", Text, ForeignKey("progressions.id", ondelete="CASCADE"), primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("item_count", BigInteger, nullable=False),
    Column("proved_at", Seconds, nullable=False),
)

# Switches and knobs that outlive a process; `value` is JSON text.
migration_control = Table(
    "migration_control",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text),
    Column("updated_at", Seconds, nullable=False),
    Column("expires_at", Seconds),
)

migration_lease = Table(
    "migration_lease",
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("expires_at", Seconds, nullable=False),
    Column("acquired_at", Seconds, nullable=False),
)

request_receipts = Table(
    "request_receipts",
    metadata,
    Column("caller", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("params_hash", Text, nullable=False),
    Column("outcome", Text),
    Column("created_at", Seconds, nullable=False),
    index("idx_request_receipts_created", "created_at"),
)

writer_batches = Table(
    "writer_batches",
    metadata,
    Column("writer", Text, primary_key=True),
    Column("batch", BigInteger, nullable=False),
    Column("updated_at", Seconds, nullable=False),
)
