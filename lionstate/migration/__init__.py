"""Online migration of progressions from JSON to item rows: admission, backfill, proof, cutover, rollback."""

from __future__ import annotations

from lionstate.migration.control import Pause
from lionstate.migration.explain import RUNBOOK, Explanation
from lionstate.migration.knobs import KNOBS, Knobs, KnobSetting
from lionstate.migration.orders import Order, OrderKind, Orders, Ready
from lionstate.migration.port import MigrationStore
from lionstate.migration.preflight import MIGRATABLE, Preflight
from lionstate.migration.report import (
    BlockedProgression,
    HotProgression,
    MigrationStatus,
    MigrationStep,
    StopReason,
    ThrottleStatus,
    VerificationOutcome,
    VerificationResult,
)
from lionstate.migration.service import ProgressionMigrationService
from lionstate.migration.throttle import SignalStatus
from lionstate.migration.unblock import Foreign, Representation

__all__ = [
    "KNOBS",
    "MIGRATABLE",
    "RUNBOOK",
    "BlockedProgression",
    "Explanation",
    "Foreign",
    "HotProgression",
    "KnobSetting",
    "Knobs",
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
    "SignalStatus",
    "StopReason",
    "ThrottleStatus",
    "VerificationOutcome",
    "VerificationResult",
]
