"""Ordered message ids: append, read, replace."""

from __future__ import annotations

from lionstate.facade.runner import Runner
from lionstate.progression import append, reads

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

        Cost: at most five statements; before cutover the JSON value is rewritten as well.
        Contract: ADR-0055 D3; ADR-0117 D2.
        """
        await self._run(append.append_to_progression, progression_id, message_id)

    async def get_progression(self, progression_id: str) -> list[str]:
        """Every message id in order.

        Returns:
            [] both for a missing progression and for an empty one.
        Raises:
            MalformedCollectionError: The stored JSON is the authority and no array.
            ProgressionBlockedError: No representation is trustworthy; nothing stale is returned.

        Cost: the whole history.
        Contract: ADR-0055 D3; ADR-0117 D1, D4.
        """
        return await self._read(reads.get_progression, progression_id)
