"""Where the scrubber's pass over the store stands, kept in the store; and the pages it goes by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from typing import Any, Final

from sqlalchemy import Connection, bindparam, func, select

from lionstate.audit import DEFAULT_ACTOR
from lionstate.dialects import Statement, dialect_of
from lionstate.progression.phases import Authority, Phase
from lionstate.schema.conversation import progressions
from lionstate.schema.own import migration_control as table
from lionstate.schema.own import progression_storage_state

__all__ = ["PAGE", "Kind", "Pass", "ProofStatus", "count_all", "lengths_page", "load_pass", "next_page", "save_pass"]

PAGE: Final = 200
_KEY: Final = "scrub.pass"
_s = progression_storage_state.c
_ROW = Statement(select(table.c.value).where(table.c.key == bindparam("key")))
_TOTAL = select(func.count()).select_from(progressions)
_PAGE = (
    select(progressions.c.id, _s.authority)
    .select_from(progressions.outerjoin(progression_storage_state, _s.progression_id == progressions.c.id))
    .where(progressions.c.id > bindparam("after"))
    .order_by(progressions.c.id)
    .limit(PAGE)
)


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass under way, and the last one that came to its end.

    Attributes:
        began_at: Epoch seconds; None between two passes.
        after: Progressions up to this id are done.
        generation: Of the item rows of the progression behind it; None when it was not begun.
        ordinal: Its rows below this place were compared, and equal.
        checked: Progressions done.
        total: Progressions of the store when the pass began.
        findings: Progressions that were not as they should be.
        last_began_at: Of the last whole pass; None when there was none.
        last_ended_at: Of the last whole pass.
        last_checked: Of the last whole pass.
        last_findings: Of the last whole pass.
    """

    began_at: float | None = None
    after: str = ""
    generation: int | None = None
    ordinal: int = 0
    checked: int = 0
    total: int = 0
    findings: int = 0
    last_began_at: float | None = None
    last_ended_at: float | None = None
    last_checked: int = 0
    last_findings: int = 0

    @property
    def coverage(self) -> float:
        """Share of the progressions that the running pass has done, 0 to 1; between passes that of the last one."""
        if self.began_at is None:
            return 0.0 if self.last_ended_at is None else 1.0
        return min(1.0, self.checked / self.total) if self.total else 0.0


@dataclass(frozen=True, slots=True)
class ProofStatus:
    """How much of a store was proved again since its cutovers.

    Attributes:
        coverage: Share of the progressions that the running scrub has done, 0 to 1; 1 between two passes, 0 before
            the first one.
        checked: Progressions that the running pass has done.
        findings: Progressions that the running pass found wrong.
        pass_began_at: Start of the running pass, epoch seconds; None between two passes.
        last_pass_at: End of the last whole pass; None when there was none: nothing is known of foreign writes that
            keep the length of a value.
        last_pass_seconds: How long that took.
        last_pass_findings: What it found.
        lengths_checked_at: End of the last comparison of all recorded lengths, by this process; None before that.
        asked: Progressions that a doubting read has asked to be looked at, and were not yet; of this process.
        shadow_reads: Shadow reads of this process by outcome: match, mismatch, dropped, moved.
    """

    coverage: float = 0.0
    checked: int = 0
    findings: int = 0
    pass_began_at: float | None = None
    last_pass_at: float | None = None
    last_pass_seconds: float | None = None
    last_pass_findings: int = 0
    lengths_checked_at: float | None = None
    asked: int = 0
    shadow_reads: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Pass) -> ProofStatus:
        """What the store knows; the rest is known by the process."""
        began, ended = found.last_began_at, found.last_ended_at
        return cls(
            coverage=found.coverage,
            checked=found.checked if found.began_at is not None else 0,
            findings=found.findings if found.began_at is not None else 0,
            pass_began_at=found.began_at,
            last_pass_at=ended,
            last_pass_seconds=None if began is None or ended is None else max(0.0, ended - began),
            last_pass_findings=found.last_findings,
        )


class Kind(Enum):
    """What there is to compare of a progression."""

    CUT_OVER = "cut_over"
    ORPHANED = "orphaned"
    NOTHING = "nothing"


def load_pass(conn: Connection, /) -> Pass:
    """Read where the pass stands. Cost: one seek."""
    rows = _ROW.rows(conn, {"key": _KEY})
    if not rows:
        return Pass()
    stored: Any = json.loads(rows[0][0])
    known = {one.name for one in fields(Pass)}
    return Pass(**{name: value for name, value in stored.items() if name in known})


def save_pass(conn: Connection, /, found: Pass, *, now: float) -> None:
    """Keep where the pass stands; not audited, as it changes nothing for anybody. Cost: one upsert."""
    row = {
        "key": _KEY,
        "value": json.dumps(asdict(found)),
        "actor": DEFAULT_ACTOR,
        "reason": None,
        "updated_at": now,
        "expires_at": None,
    }
    conn.execute(dialect_of(conn).upsert(table, ["key"], [name for name in row if name != "key"]), row)


def count_all(conn: Connection, /) -> int:
    """Progressions of the store. Cost: one index."""
    return int(conn.execute(_TOTAL).scalar_one())


def next_page(conn: Connection, /, after: str) -> list[tuple[str, Kind]]:
    """The next progressions behind an id, at most 200; [] at the end.

    Cost: one range, and a seek for each without a state row.
    """
    rows = conn.execute(_PAGE, {"after": after}).all()
    stateless = [pid for pid, authority in rows if authority is None]
    orphaned = dialect_of(conn).with_items(conn, stateless) if stateless else set()
    return [
        (
            pid,
            Kind.CUT_OVER if authority == Authority.ITEMS.value else Kind.ORPHANED if pid in orphaned else Kind.NOTHING,
        )
        for pid, authority in rows
    ]


def lengths_page(conn: Connection, /, after: str) -> tuple[str | None, list[str]]:
    """Of the next 200 cut-over progressions behind an id: those whose JSON has another length than was recorded.

    Returns:
        The last id of the page, None when it was the last page; and those progressions.

    Cost: one range, without the values.
    Contract: design decision 21 (detection without the fence).
    """
    length = dialect_of(conn).byte_length(conn, progressions.c.collection)
    query = (
        select(_s.progression_id, _s.text_bytes, length)
        .select_from(progressions.join(progression_storage_state, _s.progression_id == progressions.c.id))
        .where(_s.progression_id > after)
        .where(_s.phase == Phase.ITEMS.value)
        .order_by(_s.progression_id)
        .limit(PAGE)
    )
    rows = conn.execute(query).all()
    differing = [pid for pid, recorded, found in rows if recorded is not None and recorded != found]
    return (rows[-1][0] if len(rows) == PAGE else None), differing
