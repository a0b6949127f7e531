"""Copies of whole stores, between SQLite and PostgreSQL or within one kind: paged, resumable, verified."""

from __future__ import annotations

from lionstate.copying.report import CopyReport, TableCopied
from lionstate.copying.service import StoreCopy

__all__ = ["CopyReport", "StoreCopy", "TableCopied"]
