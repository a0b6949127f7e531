"""Ordered message ids: create, append, replace, read, delete."""

from __future__ import annotations

from collections.abc import Sequence

from lionstate.facade.runner import Runner
from lionstate.progression import append, delete, reads, replace

__all__ = ["ProgressionFacade"]


class ProgressionFacade(Runner):
    """Methods on progressions."""

    async def append_to_progression(self, progression_id: str, message_id: str) -> None:
        """Append one message id unless it is there already.

        Args:
            progression_id: A missing progression is a successful no-op.
            message_id: 1 to 1,024 bytes of UTF-8 without NUL; one that is stored already is a no-op whatever its
                shape and keeps its first position.
        Raises:
            InvalidInputError: The id is new and not acceptable; nothing was written.
            ProgressionBlockedError: The progression is blocked with no trustworthy authority.
            MalformedCollectionError: The stored JSON is the authority and no array.

        Cost: five or six statements, whatever the length of the history; before cutover the JSON value is rewritten
        as well.
        Contract: ADR-0055 D3; ADR-0117 D2.
        """
        await self._run(append.append_to_progression, progression_id, message_id)

    async def create_progression(self, progression_id: str, collection: Sequence[str] | None = None) -> None:
        """Create a progression unless one of this id exists, which is left as it is.

        Args:
            progression_id: Its id.
            collection: Message ids in order, None for none; an id given twice stays at both positions. Each must be
                acceptable as for `append_to_progression`.
        Raises:
            InvalidInputError: An id is not acceptable; nothing was written.
            ConflictError: A progression of this id is being deleted and its rows are not gone yet.

        With normalized storage on (the default of a new store) it is born in phase ``items``: its positions are
        rows, and the JSON value holds the same collection.

        Cost: linear in the collection.
        Contract: ADR-0117 D2; design decisions 8, 9, 18.
        """
        await self._run(replace.create_progression, progression_id, collection)

    async def set_progression(self, progression_id: str, collection: Sequence[str] | None) -> None:
        """Replace the whole collection; the phase stays what it is.

        Args:
            progression_id: A missing progression is not created, and is no error.
            collection: As for `create_progression`.
        Raises:
            InvalidInputError: An id is not acceptable; nothing was changed.

        json: the JSON value. dual: both representations; copying and verification start over. items: both, and the
        frozen prefix is the whole new collection. blocked: as by its authority, and it stays blocked; without a
        trustworthy one both are replaced and the items become it. Cursors taken before are stale afterwards.

        Cost: linear in the collection and in the item rows replaced, in one transaction.
        Contract: ADR-0117 D2; design decisions 4, 14.
        """
        await self._run(replace.set_progression, progression_id, collection)

    async def delete_progression(self, progression_id: str) -> bool:
        """Delete a progression that no session or branch refers to.

        Returns:
            Whether there was one. False for a missing one, and for one that is being deleted.
        Raises:
            ForeignKeyError: A session or branch refers to it; nothing was changed.

        Above 5,000 rows it answers as missing at once and maintenance removes the rows; until then its id cannot
        be created again.

        Cost: at most 5,000 rows.
        Contract: ADR-0117 D1; design decision 18.
        """
        return await self._run(delete.delete_progression, progression_id)

    async def get_progression(self, progression_id: str) -> list[str]:
        """Every message id in order.

        Returns:
            [] both for a missing progression and for an empty one.
        Raises:
            MalformedCollectionError: The stored JSON is the authority and no array.
            ProgressionBlockedError: No representation is trustworthy; nothing stale is returned.
            PrefixGapError: Compat read is on and prefix and tail do not meet.

        Cost: the whole history.
        Contract: ADR-0055 D3; ADR-0117 D1, D4.
        """
        return await self._read(reads.get_progression, progression_id)

    async def list_progression_items(
        self,
        progression_id: str,
        *,
        after_ordinal: int | None = None,
        before_ordinal: int | None = None,
        limit: int = 500,
        newest_first: bool = False,
        generation: int | None = None,
    ) -> list[tuple[int, str]]:
        """One page of a progression in ordinal order.

        Args:
            progression_id: The progression.
            after_ordinal: Exclusive lower bound; None starts at the first position.
            before_ordinal: Exclusive upper bound; None has none.
            limit: Rows, 1 to 1,000.
            newest_first: Descending, from the upper bound down; reverse such a page to read it forward.
            generation: What `get_progression_generation` said when paging began. Without a state row there is none,
                and a replacement between two pages cannot be noticed.
        Returns:
            [(ordinal, message id), ...]; gaps between ordinals are legal; [] for a missing progression.
        Raises:
            InvalidInputError: The limit or a bound is not acceptable.
            StaleCursorError: The positions were replaced since ``generation`` was read.
            ProgressionBlockedError: No representation is trustworthy.
            PrefixGapError: Compat read is on and prefix and tail do not meet.
            MalformedCollectionError: The stored JSON is the authority and no array.

        Cost: in phase items one primary-key range scan of ``limit`` rows; before cutover, and in compat read, the
        whole JSON value is read and expanded.
        Contract: ADR-0117 D1, D4; design decision 4.
        """
        return await self._read(
            reads.list_progression_items,
            progression_id,
            after_ordinal=after_ordinal,
            before_ordinal=before_ordinal,
            limit=limit,
            newest_first=newest_first,
            generation=generation,
        )

    async def count_progression_items(self, progression_id: str) -> int:
        """Positions of a progression, repeated ids included; 0 when it is missing.

        Raises:
            ProgressionBlockedError: No representation is trustworthy.
            PrefixGapError: Compat read is on and prefix and tail do not meet.
            MalformedCollectionError: The stored JSON is the authority and no array.

        Cost: in phase items one primary-key range; before cutover the whole JSON value is read.
        Contract: ADR-0117 D1, D4.
        """
        return await self._read(reads.count_progression_items, progression_id)

    async def get_progression_generation(self, progression_id: str) -> int | None:
        """The token that changes whenever positions are replaced, and never on an append.

        Returns:
            A random number; None for a progression without a state row (one that no migration has touched) and for
            a missing one.

        Cost: one seek.
        Contract: ADR-0117 D2, D4; design decision 4.
        """
        return await self._run(reads.get_progression_generation, progression_id)
