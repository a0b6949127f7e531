"""Whole stores: copied between SQLite and PostgreSQL or within one kind, backed up and restored; all verified."""

from __future__ import annotations

from lionstate.copying.backup import Manifest, backup_store, restore_store
from lionstate.copying.report import CopyReport, TableCopied
from lionstate.copying.service import StoreCopy

__all__ = ["CopyReport", "Manifest", "StoreCopy", "TableCopied", "backup_store", "restore_store"]
