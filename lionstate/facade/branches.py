"""Branches and what was said on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lionstate.facade.runner import Runner
from lionstate.records import branch_messages, branches

__all__ = ["BranchFacade"]


class BranchFacade(Runner):
    """Methods on branches."""

    async def create_branch(self, branch: Mapping[str, Any]) -> None:
        """Create a branch; an existing id is left untouched, without an error.

        Args:
            branch: Needs ``id``, ``session_id`` and ``progression_id``; other columns by name. ``created_at`` is now
                unless given.
        Raises:
            MissingKeyError: A required key is missing; nothing was written.
            InvalidInputError: A value has no stored form; nothing was written.
            ForeignKeyError: The session, the progression or the system message does not exist.
            ConflictError: The progression is being deleted.

        Contract: ADR-0055 D1; design decision 18.
        """
        await self._run(branches.create_branch, branch)

    async def get_branch(self, branch_id: str) -> dict[str, Any] | None:
        """Read one branch, JSON decoded; None if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(branches.get_branch, branch_id)

    async def list_branches(self, session_id: str, *, limit: int = 1000, offset: int = 0) -> list[dict[str, Any]]:
        """Read one page of the branches of a session, ordered by ``created_at`` and ``id``; [] if there are none.

        Args:
            session_id: The session.
            limit: Rows, 1 to 1,000.
            offset: Rows to pass over.
        Raises:
            InvalidInputError: ``limit`` or ``offset`` is out of range.

        Contract: ADR-0055 D1.
        """
        return await self._run(branches.list_branches, session_id, limit=limit, offset=offset)

    async def update_branch(self, branch_id: str, **fields: Any) -> None:
        """Write columns of a branch.

        Args:
            branch_id: A missing branch is a no-op.
            fields: ``name``, ``user``, ``node_metadata``, ``system_msg_id``, ``model``, ``provider``,
                ``agent_name``, ``status``, ``started_at``, ``ended_at``; none at all is a no-op.
        Raises:
            InvalidInputError: Any other column, or a value that has no stored form; nothing was written.
            ForeignKeyError: The system message does not exist.

        Contract: ADR-0055 D1.
        """
        await self._run(branches.update_branch, branch_id, **fields)

    async def get_branch_messages(
        self,
        branch_id: str,
        *,
        limit: int | None = None,
        after_ordinal: int | None = None,
        before_ordinal: int | None = None,
        generation: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> list[dict[str, Any]]:
        """Read the messages of a branch in the order of its progression: the newest, the next, or all of them.

        Args:
            branch_id: The branch.
            limit: Messages, 1 to 1,000: the last ones before ``before_ordinal``, or with ``after_ordinal`` the first
                ones behind it. None reads the whole branch, as LionAGI does.
            after_ordinal: Exclusive lower bound, the ``ordinal`` of the last message of the page before.
            before_ordinal: Exclusive upper bound, the ``ordinal`` of the first message of the page behind.
            generation: The ``generation`` of the messages of the page before. Without a state row there is none, and
                a replacement between two pages cannot be noticed.
            columns: Keys that each row is to have, in this order: those of ``get_message``, at least one, none twice.
                Others are not read; None is all of them.
        Returns:
            Rows as ``get_message`` gives them, one per position, the oldest first; with a limit each has its place as
            ``ordinal`` and the ``generation`` of all places as well, and fewer than the limit mean that there are no
            more. Ids without a row are left out; [] for a missing branch.
        Raises:
            InvalidInputError: A bound or a generation without a limit, a value out of range, or ``columns`` that there
                are not; nothing was read.
            StaleCursorError: The positions were replaced since ``generation`` was read.
            MalformedCollectionError: The stored JSON is the authority and no array.
            ProgressionBlockedError: No representation is trustworthy; nothing stale is returned.
            PrefixGapError: Compat read is on and prefix and tail do not meet.

        Cost: with a limit one query of so many rows in phase items; before cutover, and in compat read, the whole JSON
            value, once, and one query more. Where messages are gone, in phase items a seek for each place passed
            over, elsewhere one query of keys per 500 of them and one more. Without a limit the whole history, 500
            messages per query.
        Contract: ADR-0055 D3; ADR-0117 D4; design decision 4.
        """
        return await self._read(
            branch_messages.get_branch_messages,
            branch_id,
            limit=limit,
            after_ordinal=after_ordinal,
            before_ordinal=before_ordinal,
            generation=generation,
            columns=columns,
        )

    async def repair_branch_progression(self, branch_id: str, new: str) -> str | None:
        """Give a branch without a ``progression_id`` one; a branch that has one keeps it.

        Returns:
            The id in effect; None if the branch is missing.
        Raises:
            ForeignKeyError: The progression does not exist.
            ConflictError: The progression is being deleted.

        Contract: ADR-0055 D1; design decision 18.
        """
        return await self._run(branches.repair_branch_progression, branch_id, new)
