"""Copy one store into another: look, copy page by page, prove, publish."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeAlias

from lionstate.copying.comparison import Compared, compare
from lionstate.copying.progress import Progress, StepProgress
from lionstate.copying.report import CopyReport, OnProgress, TableCopied, quiet
from lionstate.copying.sides import pages
from lionstate.copying.source import Source, opened_beside
from lionstate.copying.tables import COPIED, LASTING, CopiedTable, Page
from lionstate.copying.target import Target
from lionstate.copying.values import DIGEST_MASK, Problem, digest_rows, hex_of, number_problems, problems
from lionstate.engine import EngineSettings, StoreURL
from lionstate.errors import (
    DifferenceError,
    ForeignKeyError,
    InvalidInputError,
    NotEmptyError,
    UncopyableError,
    UniqueConflictError,
)

__all__ = ["StoreCopy"]

_PROBLEMS_NAMED = 20
_Write: TypeAlias = Callable[[CopiedTable, Sequence[Sequence[Any]], Progress, Progress], Awaitable[None]]


class StoreCopy:
    """A copy of a whole store into an empty one, between SQLite and PostgreSQL or within one kind.

    Read in short reads by primary key and written in transactions of about 4 MiB, each of which moves a mark in the
    target on: killed at any moment and run again it goes on where it was. Until all is verified the target is a store
    that neither lionstate nor LionAGI opens.

    Contract: ADR-0055 D1; design decisions 21, 27, 32.
    """

    def __init__(
        self,
        source: str | Path,
        target: str | Path,
        *,
        settings: EngineSettings | None = None,
        on_progress: OnProgress = quiet,
        live: bool = False,
    ) -> None:
        """Name both stores.

        Args:
            source: Path or URL of a store that nobody writes meanwhile, unless ``live``.
            target: Path or URL of a new file or an empty database, or of a copy of ``source`` that was begun.
            settings: How connections behave.
            on_progress: Called after every page.
            live: The source may be in use: it is read in one snapshot, and the copy begins anew or not at all.
        Raises:
            InvalidInputError: A memory store, or the same store twice.
        """
        urls = [StoreURL.of(given) for given in (source, target)]
        if any(url.is_memory for url in urls):
            raise InvalidInputError("a memory store can neither be copied nor copied into")
        names = [url.text if url.path is None else str(url.path.resolve()) for url in urls]
        if names[0] == names[1]:
            raise InvalidInputError("source and target are the same store")
        given = settings or EngineSettings()
        self._reading = reading = replace(given, readonly=True, tidy=True, readers=1)
        self._source = Source(urls[0], reading, own=not live, one_snapshot=live)
        self._live = live
        self._target = Target(urls[1], given)
        self._on_progress = on_progress
        self._totals: dict[str, int] = {}
        self._copied = StepProgress()

    async def run(self) -> CopyReport:
        """Copy, or go on copying, verify, and publish.

        Raises:
            SchemaError: The source is no store, or the target holds something else; nothing was changed.
            UncopyableError: The target cannot hold some values of the source, which are named; nothing was changed.
            OwnershipConflictError: A daemon owns one of the files.
            DifferenceError: The two are not equal at the end; the source was written meanwhile, or worse. Or the
                copy had been finished before, and one of the two was written since: nothing was changed.
            ConflictError: Another copy into the same target runs.

        Cost: reads the source three times and the target once; memory
        for some pages of 4 MiB, or a few times the largest value.
        """
        started = time.monotonic()
        async with self._opened():
            progress = self._target.progress
            resumed = progress is not None
            self._totals = {
                name: await self._source.run(reading.count) for name, reading in self._source.readings.items()
            }
            if progress is not None and progress.finished_at is not None:
                return self._report(await self._still_equal(), started, 0.0, resumed=True, already_finished=True)
            if progress is None:
                await self._refuse_uncopyable()
                await self._target.open()
                progress = await self._target.begin(self._source.fingerprint)
            else:
                await self._target.open()
            copying = time.monotonic()
            progress = await self._copy_all(progress)
            copy_seconds = time.monotonic() - copying
            tables = await self._verified(progress)
            meta = await self._source.meta_rows()
            await self._target.finish(meta, progress, progress.finished(time.time()))
        return self._report(tables, started, copy_seconds, resumed=resumed, already_finished=False)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Self]:
        try:
            await self._source.open()
            await self._target.look()
            progress = self._target.progress
            if progress is not None and self._live:
                raise NotEmptyError("the target holds a copy that was begun; name an empty database")
            if progress is not None and progress.source != self._source.fingerprint:
                raise NotEmptyError("the target holds a copy of another store; name a new file or an empty database")
            yield self
        finally:
            try:
                await self._target.close()
            finally:
                await self._source.close()

    def _report(
        self,
        tables: Sequence[TableCopied],
        started: float,
        copy_seconds: float,
        *,
        resumed: bool,
        already_finished: bool,
    ) -> CopyReport:
        return CopyReport(
            source=_name(self._source.url),
            target=_name(self._target.url),
            tables=tables,
            rows=sum(table.rows for table in tables),
            copied_rows=self._copied.rows,
            copied_bytes=self._copied.size_bytes,
            seconds=time.monotonic() - started,
            copy_seconds=copy_seconds,
            resumed=resumed,
            already_finished=already_finished,
            left_out=self._source.left_out,
        )

    async def _refuse_uncopyable(self) -> None:
        """Find what the target could not hold before anything is written."""
        await self._source.refuse_what_breaks_rules()
        longest = self._target.max_indexed_bytes
        found: list[Problem] = []
        done, total = 0, sum(self._totals.values())
        for copied in COPIED:
            async with pages(self._source, copied) as pages_of:
                async for page in pages_of:
                    if longest is not None or self._source.is_strict:
                        found += await asyncio.to_thread(_problems_of, copied, page, longest)
                    done += len(page.rows)
                    self._on_progress("check", done, total)
        if found:
            named = "; ".join(f"{one.place} of {one.key} {one.reason}" for one in found[:_PROBLEMS_NAMED])
            raise UncopyableError(f"{len(found)} values that the target cannot hold: {named}")

    async def _copy_all(self, progress: Progress) -> Progress:
        total = sum(self._totals.values())
        try:
            for copied in COPIED:
                progress = await self._copy_table(copied, progress, total)
            for copied in COPIED:
                if copied.links:
                    progress = await self._link_table(copied, progress)
        except (ForeignKeyError, UniqueConflictError) as error:
            raise DifferenceError(
                "a row of the source refers to one that was not there before, or is there twice: it was written while"
                " it was copied; stop what writes it, and copy into an empty target"
            ) from error
        return progress

    async def _copy_table(self, copied: CopiedTable, progress: Progress, total: int) -> Progress:
        before = sum(progress.step(other.name).rows for other in COPIED if other is not copied)

        def note(step: StepProgress, page: Page) -> None:
            self._copied = _further(self._copied, copied, page, 0)
            self._on_progress("copy", before + step.rows, total)

        return await self._take_step(copied.name, copied, progress, self._target.put, note)

    async def _link_table(self, copied: CopiedTable, progress: Progress) -> Progress:
        return await self._take_step(f"{copied.name}.links", copied, progress, self._target.link, lambda _s, _p: None)

    async def _take_step(
        self,
        name: str,
        copied: CopiedTable,
        progress: Progress,
        write: _Write,
        note: Callable[[StepProgress, Page], None],
    ) -> Progress:
        """Give every page that is left to ``write``, which moves the mark on in the same transaction."""
        step = progress.step(name)
        if step.is_done:
            return progress
        async with pages(self._source, copied, step.after) as found:
            async for page in found:
                step = _further(step, copied, page, await asyncio.to_thread(digest_rows, copied, page.rows))
                after = progress.with_step(name, step)
                await write(copied, page.rows, progress, after)
                progress = after
                note(step, page)
        after = progress.with_step(name, replace(step, is_done=True))
        await write(copied, (), progress, after)
        return after

    async def _verified(self, progress: Progress) -> list[TableCopied]:
        """Prove that both sides hold the same rows."""
        found = await compare(self._source, self._target, self._totals, self._on_progress)
        different = _different(found)
        if not different:
            return _equal(found)
        as_read = all(
            (table.target.rows, table.target.digest) == (step.rows, step.digest)
            for table in different
            if (step := progress.step(table.name))
        )
        why = (
            "the source was written while it was copied: stop what writes it, and copy into an empty target"
            if as_read
            else "the target does not hold what was read"
        )
        raise DifferenceError(f"{why} ({_named(different)})")

    async def _still_equal(self) -> list[TableCopied]:
        """Prove that a copy which was finished before holds what the source holds now; it may be in use already."""
        totals = {copied.name: self._totals[copied.name] for copied in LASTING}
        async with opened_beside(self._target.url, self._reading) as copy:
            found = await compare(self._source, copy, totals, self._on_progress, LASTING)
        different = _different(found)
        if different:
            raise DifferenceError(
                "the target is a finished copy of this source, and one of the two was written since"
                f" ({_named(different)}); nothing was changed: to have what the source holds now, copy it into a new"
                " file or an empty database"
            )
        return _equal(found)


def _different(found: Sequence[Compared]) -> list[Compared]:
    return [table for table in found if table.source != table.target]


def _equal(found: Sequence[Compared]) -> list[TableCopied]:
    return [TableCopied(table.name, table.source.rows, hex_of(table.source.digest)) for table in found]


def _named(different: Sequence[Compared]) -> str:
    return "; ".join(str(table) for table in different)


def _name(url: StoreURL) -> str:
    return url.masked if url.path is None else str(url.path)


def _further(step: StepProgress, copied: CopiedTable, page: Page, digest: int) -> StepProgress:
    return StepProgress(
        after=copied.key_of(page.rows[-1]),
        rows=step.rows + len(page.rows),
        size_bytes=step.size_bytes + page.size_bytes,
        digest=(step.digest + digest) & DIGEST_MASK,
    )


def _problems_of(copied: CopiedTable, page: Page, longest: int | None) -> list[Problem]:
    if longest is None:
        return list(number_problems(copied, page.rows))
    return list(problems(copied, page.rows, max_indexed_bytes=longest))
