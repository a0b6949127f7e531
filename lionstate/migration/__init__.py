"""Online migration of progressions from JSON to item rows: admission, backfill, proof, cutover, rollback."""

from __future__ import annotations

from lionstate.migration.acting import acting_as, user_name
from lionstate.migration.control import Pause
from lionstate.migration.explain import Explanation
from lionstate.migration.fence import FenceStatus
from lionstate.migration.foreign import ForeignWriters
from lionstate.migration.knobs import KNOBS, Knobs, KnobSetting
from lionstate.migration.lane import Elsewhere, Failing
from lionstate.migration.lease import Ownership
from lionstate.migration.orders import Order, OrderKind, Orders, Ready
from lionstate.migration.plan import Move, Plan, Planned
from lionstate.migration.port import MigrationStore
from lionstate.migration.preflight import MIGRATABLE, Preflight
from lionstate.migration.progress import Activity, Progress, UnderWay
from lionstate.migration.rehearsal import Rehearsal, RehearsalStage
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
from lionstate.migration.trail import AuditEvent
from lionstate.migration.unblock import Foreign, Representation

__all__ = [
    "CODES",
    "KNOBS",
    "MIGRATABLE",
    "RUNBOOK",
    "Activity",
    "AuditEvent",
    "BlockedProgression",
    "Elsewhere",
    "Explanation",
    "Failing",
    "FenceStatus",
    "Foreign",
    "ForeignWriters",
    "HotProgression",
    "KnobSetting",
    "Knobs",
    "MigrationStatus",
    "MigrationStep",
    "MigrationStore",
    "Move",
    "Order",
    "OrderKind",
    "Orders",
    "Ownership",
    "Pause",
    "Plan",
    "Planned",
    "Preflight",
    "Progress",
    "ProgressionMigrationService",
    "ProofStatus",
    "Ready",
    "Rehearsal",
    "RehearsalStage",
    "Representation",
    "ScrubSlice",
    "SignalStatus",
    "StopReason",
    "ThrottleStatus",
    "UnderWay",
    "VerificationOutcome",
    "VerificationResult",
    "acting_as",
    "code_table",
    "user_name",
]
