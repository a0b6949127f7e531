"""Online migration of progressions from JSON to item rows: admission, backfill, proof, cutover, rollback."""

from __future__ import annotations

from lionstate.migration.control import Pause
from lionstate.migration.port import MigrationStore
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

__all__ = [
    "BlockedProgression",
    "HotProgression",
    "MigrationStatus",
    "MigrationStep",
    "MigrationStore",
    "Pause",
    "ProgressionMigrationService",
    "StopReason",
    "VerificationOutcome",
    "VerificationResult",
]
