"""Online migration of progressions from JSON to item rows: admission, backfill, proof, cutover, rollback."""

from __future__ import annotations

from lionstate.migration.control import Pause
from lionstate.migration.explain import Explanation
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
from lionstate.migration.runbook import CODES, RUNBOOK, code_table
from lionstate.migration.scrub import ScrubSlice
from lionstate.migration.scrub_pass import ProofStatus
from lionstate.migration.service import ProgressionMigrationService
from lionstate.migration.throttle import SignalStatus
from lionstate.migration.unblock import Foreign, Representation

__all__ = [
    "CODES",
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
    "ProofStatus",
    "Ready",
    "Representation",
    "ScrubSlice",
    "SignalStatus",
    "StopReason",
    "ThrottleStatus",
    "VerificationOutcome",
    "VerificationResult",
    "code_table",
]
