"""Online migration of progressions from JSON to item rows: admission, backfill, proof, cutover, rollback."""

from __future__ import annotations

from lionstate.migration.control import Pause
from lionstate.migration.explain import RUNBOOK, Explanation
from lionstate.migration.orders import Order, OrderKind, Orders, Ready
from lionstate.migration.port import MigrationStore
from lionstate.migration.preflight import MIGRATABLE, Preflight
from lionstate.migration.report import (
    BlockedProgression,
    HotProgression,
    MigrationStatus,
    MigrationStep,
    StopReason,
    VerificationOutcome,
    VerificationResult,
)
from lionstate.migration.service import ProgressionMigrationService
from lionstate.migration.unblock import Foreign, Representation

__all__ = [
    "MIGRATABLE",
    "RUNBOOK",
    "BlockedProgression",
    "Explanation",
    "Foreign",
    "HotProgression",
    "MigrationStatus",
    "MigrationStep",
    "MigrationStore",
    "Order",
    "OrderKind",
    "Orders",
    "Pause",
    "Preflight",
    "ProgressionMigrationService",
    "Ready",
    "Representation",
    "StopReason",
    "VerificationOutcome",
    "VerificationResult",
]
