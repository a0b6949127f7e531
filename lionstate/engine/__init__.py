"""Connections, transactions and threads: the only room that begins a transaction."""

from __future__ import annotations

from lionstate.engine.observer import Observer, SilentObserver
from lionstate.engine.script import (
    Batch,
    Call,
    Continued,
    Deferred,
    Look,
    NotWritten,
    Outcome,
    Refused,
    Reply,
    Script,
    Unit,
    Unknown,
    Written,
)
from lionstate.engine.settings import EngineSettings
from lionstate.engine.url import StoreURL, normalize_state_db_url
from lionstate.engine.writer import BatchLog, Ended, Writer

__all__ = [
    "Batch",
    "BatchLog",
    "Call",
    "Continued",
    "Deferred",
    "Ended",
    "EngineSettings",
    "Look",
    "NotWritten",
    "Observer",
    "Outcome",
    "Refused",
    "Reply",
    "Script",
    "SilentObserver",
    "StoreURL",
    "Unit",
    "Unknown",
    "Writer",
    "Written",
    "normalize_state_db_url",
]
