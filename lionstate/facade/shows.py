"""Shows and the plays they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from lionstate.facade.runner import Runner
from lionstate.facade.status import warn_default_reason
from lionstate.records import shows
from lionstate.records.shows import PlayChanges, ShowChanges

__all__ = ["ShowFacade"]


class ShowFacade(Runner):
    """Methods on shows and plays."""

    async def create_show(self, show: Mapping[str, Any]) -> None:
        """Insert a show; an id that exists stays as it is.

        Args:
            show: Columns by name; ``id``, ``topic`` and ``show_dir`` are required, ``status`` is ``active`` unless
                given, ``updated_at`` is always now, other keys are left alone. A new one that is ``active`` or
                ``imported`` gets its first history row.
        Raises:
            MissingKeyError: A required column is missing; nothing was written.
            InvalidInputError: A value is not acceptable; nothing was written.
            UniqueConflictError: Another show has the topic.

        Contract: ADR-0055 D1; reference §2.2, §2.8.
        """
        await self._run(shows.create_show, show)

    async def get_show(self, show_id: str) -> dict[str, Any] | None:
        """Read one show; None if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(shows.get_show, show_id)

    async def get_show_by_topic(self, topic: str) -> dict[str, Any] | None:
        """Read the show with this topic; None if there is none.

        Contract: ADR-0055 D1.
        """
        return await self._run(shows.get_show_by_topic, topic)

    async def list_shows(
        self, *, status: str | None = None, limit: int = 1000, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Read a page of shows, last changed first.

        Args:
            status: Only with this status.
            limit: Rows, 1 to 1,000.
            offset: Rows before the page.

        Contract: ADR-0055 D1; reference §2.2.
        """
        return await self._run(shows.list_shows, status=status, limit=limit, offset=offset)

    async def update_show(self, show_id: str, **changes: Unpack[ShowChanges]) -> None:
        """Change columns of a show, in one transaction; arguments and errors as ``update_invocation``.

        Only ``completed`` and ``aborted`` have a default reason.

        Contract: ADR-0055 D1; reference §2.2, §2.8.
        """
        warn_default_reason("update_show", changes)
        await self._run(shows.update_show, show_id, **changes)

    async def create_play(self, play: Mapping[str, Any]) -> None:
        """Insert a play; an id that exists stays as it is.

        Args:
            play: Columns by name; ``id``, ``show_id`` and ``name`` are required, ``status`` is ``pending``,
                ``attempt`` 1 and ``depends_on`` [] unless given, other keys are left alone. A new pending one gets its
                first history row.
        Raises:
            MissingKeyError: A required column is missing; nothing was written.
            InvalidInputError: A value is not acceptable; nothing was written.
            UniqueConflictError: The show has a play of this name.
            ForeignKeyError: The show or the session is missing.

        Contract: ADR-0055 D1; reference §2.2, §2.8.
        """
        await self._run(shows.create_play, play)

    async def get_play(self, play_id: str) -> dict[str, Any] | None:
        """Read one play; None if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(shows.get_play, play_id)

    async def list_plays(self, show_id: str, *, limit: int = 1000, offset: int = 0) -> list[dict[str, Any]]:
        """Read a page of the plays of a show, ordered by ``sort_order``, then by creation.

        Args:
            show_id: A missing show has no plays.
            limit: Rows, 1 to 1,000.
            offset: Rows before the page.

        Contract: ADR-0055 D1; reference §2.2.
        """
        return await self._run(shows.list_plays, show_id, limit=limit, offset=offset)

    async def update_play(self, play_id: str, **changes: Unpack[PlayChanges]) -> None:
        """Change columns of a play, in one transaction; arguments and errors as ``update_invocation``.

        Only ``merged``, ``escalated`` and ``gate_failed`` have a default reason.

        Contract: ADR-0055 D1; reference §2.2, §2.8.
        """
        warn_default_reason("update_play", changes)
        await self._run(shows.update_play, play_id, **changes)
