"""What the demonstration's legacy store holds: 20 progressions and the conversations that write to them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["MALFORMED", "SIZES", "Conversation", "collection_text", "conversations", "progression_ids"]

SIZES = (0, 10, *([1_000] * 14), 10_000, 10_000, 100_000)
MALFORMED = "demo-progression-19"
_WITH_DUPLICATES = "demo-progression-17"


@dataclass(frozen=True)
class Conversation:
    """A session and one of its branches, each with its own progression.

    Attributes:
        largest: Ids in the larger of the two progressions when the demonstration starts.
    """

    session_id: str
    branch_id: str
    session_progression: str
    branch_progression: str
    largest: int


def progression_ids() -> list[str]:
    """The 19 good progressions, by size, and the malformed one last."""
    return [f"demo-progression-{number:02d}" for number in range(len(SIZES))] + [MALFORMED]


def conversations() -> list[Conversation]:
    """Every good progression belongs to at least one conversation."""
    # Two numbers each: the session's progression and the branch's.
    pairs = [(0, 1), (18, 2), (16, 17), (3, 4), (5, 6), (7, 8), (9, 10), (11, 12), (13, 14), (13, 15)]
    found = []
    for number, (session, branch) in enumerate(pairs):
        session_number = number - 1 if number == 9 else number
        found.append(
            Conversation(
                f"demo-session-{session_number:02d}",
                f"demo-branch-{number:02d}",
                progression_ids()[session],
                progression_ids()[branch],
                max(SIZES[session], SIZES[branch]),
            )
        )
    return found


def _ids(progression: str, count: int) -> Iterator[str]:
    for number in range(count):
        yield hashlib.sha256(f"{progression}/{number}".encode()).hexdigest()[:32]


def collection_text(progression: str) -> str:
    """The JSON value of a progression as an old writer left it."""
    if progression == MALFORMED:
        return '["a", "b",'
    ids = list(_ids(progression, SIZES[progression_ids().index(progression)]))
    if progression == _WITH_DUPLICATES:
        ids[5_000] = ids[10]
        ids[5_001] = ids[10]
    return json.dumps(ids)
