"""The scrubber: what was cut over is compared again, in slices, for as long as the store lives.

A slice looks first at what a doubting read asked for, then at recorded lengths, then goes on with the pass. What it
finds is proved again under the lock before anything is blocked.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy import Connection

from lionstate.errors import BlockedCode, NotFoundError
from lionstate.migration.admission import Finding, Judged, block
from lionstate.migration.control import get_pause
from lionstate.migration.findings import block_doubt, block_orphans, doubt_of
from lionstate.migration.gate import Permit
from lionstate.migration.memory import Memory
from lionstate.migration.orders import OrderKind
from lionstate.migration.port import MigrationStore, bound
from lionstate.migration.report import Stage, StageOutcome
from lionstate.migration.scrub_pass import (
    Kind,
    Pass,
    ProofStatus,
    count_all,
    lengths_page,
    load_pass,
    next_page,
    save_pass,
)
from lionstate.migration.verification import read_value
from lionstate.migration.verify import Replaced, compare_copied
from lionstate.migration.walk import FrozenSide, ItemsWalk, advance, frozen_side, judge_rows, look
from lionstate.progression.phases import Authority, Phase
from lionstate.progression.storage_state import StorageState

__all__ = ["ScrubSlice", "Scrubber"]

_TRIES: Final = 3
# Elements of a JSON value that cost as much as one row.
_ELEMENTS_PER_ROW: Final = 10
_LENGTHS_SECONDS: Final = 60.0
# An order keeps a progression from being moved, not from being found wrong.
_OVER: Final = Permit(frozenset((OrderKind.EXCLUDE.value,)))


@dataclass(frozen=True, slots=True)
class ScrubSlice:
    """What one slice of scrubbing did.

    Attributes:
        checked: Progressions compared to their end.
        items: Rows compared, by outcome: ``match``, ``mismatch`` (another id, or missing).
        findings: Progressions that were found wrong, by code; they are blocked now, or were already. One that was
            asked for and then met by the pass is counted once, in the slice that found it first.
        not_blocked: Findings that changed under the lock, or could not be proved there; they are looked at again.
        pass_ended: A whole pass came to its end.
        pass_findings: Findings of the pass, when it ended.
        coverage: Share of the progressions that the running pass has done.
        is_paused: Nothing was done, because migration is paused.
        seconds: Of the slice.
    """

    checked: int
    items: Mapping[str, int]
    findings: Mapping[str, int]
    not_blocked: int
    pass_ended: bool
    pass_findings: int
    coverage: float
    is_paused: bool
    seconds: float


def _stand(conn: Connection, /, now: float) -> tuple[Pass, bool]:
    """Where the pass stands, and whether migration is paused."""
    return load_pass(conn), get_pause(conn, now) is not None


@dataclass(slots=True)
class _Comparison:
    """One progression under way: its JSON side, and how far its rows came."""

    progression_id: str
    state: StorageState
    side: FrozenSide
    walk: ItemsWalk


@dataclass(slots=True)
class _Slice:
    """The caps and counts of the running slice; ``told`` are those counted as findings, ``wrong`` all that were met."""

    max_items: float
    give_up: float
    began: float = field(default_factory=time.monotonic)
    checked: int = 0
    items: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    not_blocked: int = 0
    wrong: int = 0
    spent: float = 0.0
    told: set[str] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        return self.spent >= self.max_items or time.monotonic() >= self.give_up

    def result(self, found: Pass, *, ended: bool = False, paused: bool = False) -> ScrubSlice:
        return ScrubSlice(
            checked=self.checked,
            items=dict(self.items),
            findings=dict(self.findings),
            not_blocked=self.not_blocked,
            pass_ended=ended,
            pass_findings=found.last_findings if ended else found.findings,
            coverage=found.coverage,
            is_paused=paused,
            seconds=time.monotonic() - self.began,
        )


class Scrubber:
    """Scrubs one store. Two may run at once: every slice begins where the store says that the pass stands."""

    def __init__(self, store: MigrationStore, memory: Memory, *, actor: str) -> None:
        """Prepare; what was asked for is in ``memory``."""
        self._store = store
        self._memory = memory
        self._actor = actor
        self._running: _Comparison | None = None
        self._told: set[str] = set()
        self._told_in: float | None = None
        self._lengths_after = ""
        self._lengths_due = 0.0

    async def slice(self, *, max_items: int, max_seconds: float, may_begin: bool, restart: bool) -> ScrubSlice:
        """Do a bounded piece of scrubbing, at least a page of rows.

        Args:
            max_items: Rows after which it ends; a JSON value counts a tenth of its elements.
            max_seconds: Looked at between two pages.
            may_begin: Begin a pass when none is under way.
            restart: Begin a pass whatever is under way.
        """
        doing, found, is_paused = await self._start(max_items, max_seconds, restart=restart)
        if is_paused:
            return doing.result(found, paused=True)
        await self._look_at_lengths()
        if restart or (found.began_at is None and may_begin):
            total = await self._store.read(count_all)
            last = {name: getattr(found, name) for name in Pass.__dataclass_fields__ if name.startswith("last_")}
            found = Pass(began_at=time.time(), total=total, **last)
            self._running = None
            self._told_in = found.began_at
            await self._save(found)
        ended = False
        while found.began_at is not None and not doing.is_over:
            found = await self._go_on(doing, found)
            await self._save(found)
            ended = found.began_at is None
        return doing.result(found, ended=ended)

    async def _start(self, max_items: int, max_seconds: float, *, restart: bool = False) -> tuple[_Slice, Pass, bool]:
        """Begin a slice with what was asked for, unless migration is paused."""
        found, is_paused = await self._store.read(bound(_stand, time.time()))
        if restart or found.began_at is None or found.began_at != self._told_in:
            self._told, self._told_in = set(), found.began_at
        doing = _Slice(max_items, time.monotonic() + max_seconds, told=self._told)
        if not is_paused:
            await self._look_at_asked(doing)
        return doing, found, is_paused

    async def asked(self, *, max_items: int, max_seconds: float) -> ScrubSlice:
        """Do the first part of a slice only: what was asked for."""
        doing, found, is_paused = await self._start(max_items, max_seconds)
        return doing.result(found, paused=is_paused)

    async def one(self, progression_id: str) -> ScrubSlice:
        """Compare one progression to its end, whatever that takes; nothing is checked when it is not comparable.

        Raises:
            NotFoundError: There is no such progression.
        """
        doing = _Slice(float("inf"), float("inf"))
        found, is_paused = await self._store.read(bound(_stand, time.time()))
        if is_paused:
            return doing.result(found, paused=True)
        await self._check_whole(doing, progression_id)
        if not doing.checked:
            value, state = await self._store.read(bound(read_value, progression_id))
            if value is None or (state is not None and state.is_tombstone):
                raise NotFoundError("there is no such progression")
        return doing.result(replace(found, findings=sum(doing.findings.values())))

    def with_own(self, found: ProofStatus) -> ProofStatus:
        """What the store knows, and what this process does."""
        memory = self._memory
        return replace(
            found,
            lengths_checked_at=memory.lengths_checked_at,
            asked=len(memory.asked),
            shadow_reads=dict(memory.shadow_reads),
        )

    async def _save(self, found: Pass) -> None:
        await self._store.maintain("progression_migrate.scrub", bound(save_pass, found, now=time.time()))

    async def _look_at_asked(self, doing: _Slice) -> None:
        for progression_id in list(self._memory.asked):
            if doing.is_over:
                return
            del self._memory.asked[progression_id]
            await self._check_whole(doing, progression_id)

    async def _look_at_lengths(self) -> None:
        """Ask for those whose JSON is not as long as it was; a page at a time, all of them once a minute."""
        if time.monotonic() < self._lengths_due:
            return
        last, differing = await self._store.read(bound(lengths_page, self._lengths_after))
        for progression_id in differing:
            self._memory.ask(progression_id)
        self._lengths_after = last or ""
        if last is None:
            self._memory.lengths_checked_at = time.time()
            self._lengths_due = time.monotonic() + _LENGTHS_SECONDS

    async def _go_on(self, doing: _Slice, found: Pass) -> Pass:
        """Do the next page of the pass, or as much of it as the slice leaves; where the pass stands then."""
        page: list[tuple[str, Kind]] = await self._store.read(bound(next_page, found.after))
        for progression_id, kind in page:
            if doing.is_over:
                return found
            before = doing.wrong
            if kind is Kind.ORPHANED:
                await self._conclude_orphan(doing, progression_id)
            elif kind is Kind.CUT_OVER:
                stopped = await self._check_in_pass(doing, found, progression_id)
                if stopped is not None:
                    return stopped
            findings = found.findings + doing.wrong - before
            found = replace(
                found, after=progression_id, generation=None, ordinal=0, checked=found.checked + 1, findings=findings
            )
        if page:
            return found
        return Pass(
            last_began_at=found.began_at,
            last_ended_at=time.time(),
            last_checked=found.checked,
            last_findings=found.findings,
        )

    async def _check_in_pass(self, doing: _Slice, found: Pass, progression_id: str) -> Pass | None:
        """Compare one progression of the pass; where the pass stands in it when the slice ended first."""
        for _ in range(_TRIES):
            running = self._running
            if running is None or running.progression_id != progression_id:
                start = found.ordinal if found.generation is not None else 0
                running = await self._begin(doing, progression_id, generation=found.generation, start=start)
                if running is None:
                    return None
                self._running = running
            ended = await self._walk(doing, running)
            if ended is not None:
                self._running = None
                if ended:
                    return None
                continue
            return replace(found, generation=running.walk.generation, ordinal=running.walk.next)
        # It is replaced again and again: not left out, but looked at when it has come to rest.
        self._memory.ask(progression_id)
        doing.not_blocked += 1
        return None

    async def _check_whole(self, doing: _Slice, progression_id: str) -> None:
        """Compare one progression in one go: cut over, orphaned, or half copied."""
        for _ in range(_TRIES):
            running = await self._begin(doing, progression_id, generation=None, start=0)
            if running is None:
                return
            whole = _Slice(float("inf"), float("inf"), told=doing.told)
            ended = await self._walk(whole, running)
            doing.spent += whole.spent
            doing.checked += whole.checked
            doing.items.update(whole.items)
            doing.findings.update(whole.findings)
            doing.not_blocked += whole.not_blocked
            if ended:
                return

    async def _begin(
        self, doing: _Slice, progression_id: str, *, generation: int | None, start: int
    ) -> _Comparison | None:
        judged, state = await look(self._store, progression_id)
        if judged is None and state is None:
            await self._conclude_orphan(doing, progression_id)
            return None
        if judged is None or state is None:
            return None
        doing.spent += judged.verdict.count / _ELEMENTS_PER_ROW
        if state.phase is Phase.DUAL:
            await self._check_copied(doing, judged, state)
            return None
        if state.authority is not Authority.ITEMS or state.is_tombstone:
            return None
        side = await frozen_side(judged, state)
        walk = ItemsWalk.of(state, side, start=min(start, state.next_ordinal) if generation == state.generation else 0)
        return _Comparison(progression_id, state, side, walk)

    async def _check_copied(self, doing: _Slice, judged: Judged, state: StorageState) -> None:
        """Compare what a dual progression has copied so far; somebody asked."""
        try:
            code, first, count = await compare_copied(self._store, judged, state)
        except Replaced:
            return
        doing.items["match"] += count
        if code is None:
            doing.checked += 1
            return
        doing.items["mismatch"] += 1
        in_rows = code in (BlockedCode.COUNT_MISMATCH, BlockedCode.DIGEST_MISMATCH)
        details = {"json_count": judged.verdict.count, "items_count": count, "first_difference": first}
        finding = Finding(judged, code, state.next_ordinal, details, in_rows, first)
        stage = await self._stage(
            judged.progression_id, bound(block, finding, permit=_OVER, actor=self._actor, now=time.time())
        )
        self._conclude(doing, judged.progression_id, stage, code)

    async def _walk(self, doing: _Slice, running: _Comparison) -> bool | None:
        """Go on with the rows: True at their end, False when they are other rows now, None when the slice is over."""
        walk = running.walk
        seen, differing = walk.seen, walk.differing
        left = None if doing.max_items == float("inf") else max(1, int(doing.max_items - doing.spent))
        give_up = None if doing.give_up == float("inf") else doing.give_up
        store, pid = self._store, running.progression_id
        extent, moved = await advance(store, pid, walk, max_rows=left, give_up=give_up)
        if extent is None and not moved and (walk.first is not None or walk.ids is None):
            # What is wrong cannot be begun again by another process at a place behind it, so it is not cut short.
            extent, moved = await advance(store, pid, walk, max_rows=None, give_up=None)
        rows = walk.seen - seen
        wrong = walk.differing - differing
        doing.spent += rows
        doing.items["match"] += max(0, rows - wrong)
        doing.items["mismatch"] += wrong
        if moved:
            return False
        if extent is None:
            return None
        state = running.state
        doubt = doubt_of(running.side, walk, extent, judge_rows(walk, extent, state), state)
        if doubt is None:
            doing.checked += 1
            return True
        script = bound(block_doubt, doubt, actor=self._actor, now=time.time())
        stage = await self._stage(running.progression_id, script)
        self._conclude(doing, running.progression_id, stage, doubt.code)
        return True

    async def _conclude_orphan(self, doing: _Slice, progression_id: str) -> None:
        script = bound(block_orphans, progression_id, actor=self._actor, now=time.time())
        stage = await self._stage(progression_id, script)
        if stage.outcome is StageOutcome.BLOCKED:
            self._conclude(doing, progression_id, stage, BlockedCode.ORPHAN_ITEMS)

    async def _stage(self, progression_id: str, script: Callable[[Connection], Stage]) -> Stage:
        stage: Stage = await self._store.maintain("progression_migrate.scrub", script, progressions=[progression_id])
        return stage

    def _conclude(self, doing: _Slice, progression_id: str, stage: Stage, code: BlockedCode) -> None:
        doing.checked += 1
        if stage.outcome is StageOutcome.BLOCKED:
            doing.wrong += 1
            if progression_id not in doing.told:
                doing.told.add(progression_id)
                doing.findings[code.value] += 1
            self._memory.forget(progression_id)
        else:
            doing.not_blocked += 1
            if stage.outcome in (StageOutcome.TEXT_CHANGED, StageOutcome.UNPROVED):
                self._memory.ask(progression_id)
