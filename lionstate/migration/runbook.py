"""What every code means, how it is found and what to do about it: one table, for messages and for the README."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from lionstate.errors import BlockedCode, HeldReason

__all__ = ["CODES", "HELD_RUNBOOK", "RUNBOOK", "CodeEntry", "code_table"]


@dataclass(frozen=True, slots=True)
class CodeEntry:
    """One code of the two closed sets.

    Attributes:
        code: As stored in ``blocked_reason`` or ``held_reason``.
        means: What is wrong, or what is waited for.
        found_by: Which part of lionstate finds it.
        action: What an operator does.
    """

    code: BlockedCode | HeldReason
    means: str
    found_by: str
    action: str


_JUDGED: Final = "`preflight`, admission"
_COMPARED: Final = "`verify`, the proof before a cutover, the scrubber"
_REPAIR: Final = "repair it with set_progression, then retry"
_RETRY: Final = "retry while its JSON is the authority; after its cutover unblock it, with --rebuild if rows are wrong"

CODES: Final[tuple[CodeEntry, ...]] = (
    CodeEntry(BlockedCode.MALFORMED_JSON, "the value is no JSON text", _JUDGED, _REPAIR),
    CodeEntry(BlockedCode.NOT_ARRAY, "the value is JSON but no array", _JUDGED, _REPAIR),
    CodeEntry(BlockedCode.NON_STRING, "an element is no text", _JUDGED, _REPAIR),
    CodeEntry(BlockedCode.NUL_IN_ID, "an id holds a NUL character", _JUDGED, _REPAIR),
    CodeEntry(BlockedCode.LONE_SURROGATE, "an id holds half of a surrogate pair", _JUDGED, _REPAIR),
    CodeEntry(BlockedCode.ID_TOO_LONG, "an id is longer than this database can index", _JUDGED, _REPAIR),
    CodeEntry(BlockedCode.NOT_TEXT, "the column holds no text", _JUDGED, _REPAIR),
    CodeEntry(
        BlockedCode.COUNT_MISMATCH,
        "item rows are missing or too many",
        _COMPARED,
        f"verify names the first difference; {_RETRY}",
    ),
    CodeEntry(
        BlockedCode.DIGEST_MISMATCH,
        "JSON and items hold different ids",
        _COMPARED,
        f"verify names the first difference; {_RETRY}",
    ),
    CodeEntry(BlockedCode.ORDINAL_MISMATCH, "item rows have gaps", _COMPARED, f"verify names the first; {_RETRY}"),
    CodeEntry(
        BlockedCode.ALLOCATOR_MISMATCH,
        "the next ordinal is not the length",
        _COMPARED,
        f"verify shows both; {_RETRY}",
    ),
    CodeEntry(
        BlockedCode.ORDINAL_COLLISION,
        "a position to be copied held another id",
        "the copying itself",
        "another program writes item rows: switch it off; then retry",
    ),
    CodeEntry(
        BlockedCode.FOREIGN_WRITE,
        "another program wrote the JSON value",
        "appends and the copying in `dual`, " + _COMPARED,
        "switch that program off; then retry, or after the cutover unblock with --adopt or --discard",
    ),
    CodeEntry(
        BlockedCode.ORPHAN_ITEMS,
        "item rows without a state row",
        "admission, appends and reads, the scrubber",
        "unblock with --use json or --use items",
    ),
    CodeEntry(
        BlockedCode.DELETING, "it is being deleted, and answers as missing", "-", "nothing: its rows go in chunks"
    ),
    CodeEntry(
        HeldReason.FOREIGN_WRITER,
        "cutover waits for another program that writes this store",
        "`status`, every step",
        "switch it off, or accept it with step --accept-foreign-writers",
    ),
    CodeEntry(
        HeldReason.VERIFY_OVER_BUDGET,
        "its cutover would hold the lock for too long",
        "three proofs in turn",
        "raise the budget, then release",
    ),
    CodeEntry(HeldReason.FENCE_MISSING, "the fence was removed", "every step", "install it again or turn it off"),
    CodeEntry(HeldReason.OPERATOR, "an operator holds it", "`hold`, `rollback`", "release it, or cutover"),
)
"""Every code, the blocked ones first; each set in its own order."""


def _lines() -> Iterator[tuple[BlockedCode | HeldReason, str]]:
    for entry in CODES:
        yield entry.code, f"{entry.means}: {entry.action}"


RUNBOOK: Final[Mapping[BlockedCode, str]] = {code: line for code, line in _lines() if isinstance(code, BlockedCode)}
"""What an operator does about each blocked code."""

HELD_RUNBOOK: Final[Mapping[HeldReason, str]] = {code: line for code, line in _lines() if isinstance(code, HeldReason)}
"""What an operator does about each reason to wait."""


def code_table() -> str:
    """The table of the README, in Markdown."""
    rows = ["| | code | means | found by | do |", "|---|---|---|---|---|"]
    for entry in CODES:
        kind = "blocked" if isinstance(entry.code, BlockedCode) else "held"
        rows.append(f"| {kind} | `{entry.code.value}` | {entry.means} | {entry.found_by} | {entry.action} |")
    return "\n".join(rows)
