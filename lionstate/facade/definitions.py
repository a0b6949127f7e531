"""Versioned definitions of agents and playbooks."""

from __future__ import annotations

from typing import Any

from lionstate.facade.runner import Runner
from lionstate.records import definitions

__all__ = ["DefinitionFacade"]


class DefinitionFacade(Runner):
    """Methods on definitions."""

    async def save_definition(
        self, *, kind: str, name: str, path: str, content: str, message: str | None = None
    ) -> int:
        """Save the next version of a definition; the file at ``path`` is neither written nor looked at.

        Args:
            kind: ``agent`` or ``playbook``.
            name: Versions are counted per kind and name.
            path: Where the authored file is.
            content: Its text.
            message: What changed.
        Returns:
            The version, from 1.
        Raises:
            InvalidInputError: Another kind, or a value that is not text; nothing was written.
            VersionRaceError: Another process took the next version, and again in each of five retries.

        Cost: two statements.
        Contract: ADR-0055 D2.
        """
        return await self._run(
            definitions.save_definition, kind=kind, name=name, path=path, content=content, message=message
        )

    async def get_definition(self, kind: str, name: str, *, version: int | None = None) -> dict[str, Any] | None:
        """Read a version of a definition with its content; None if it is missing.

        Args:
            kind: Not checked: stores in the field hold others than can be saved.
            name: The definition.
            version: Exactly this one; None is the highest.

        Contract: ADR-0055 D2.
        """
        return await self._run(definitions.get_definition, kind, name, version=version)

    async def list_definition_versions(
        self, kind: str, name: str, *, limit: int = 1000, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Read one page of the versions of a definition, newest first; [] if it is missing.

        Args:
            kind: Not checked, as in ``get_definition``.
            name: The definition.
            limit: Rows, 1 to 1,000.
            offset: Rows to pass over.
        Returns:
            ``id``, ``kind``, ``name``, ``version``, ``created_at`` and ``message`` of each; not ``path`` and
            ``content``.
        Raises:
            InvalidInputError: ``limit`` or ``offset`` is out of range.

        Contract: ADR-0055 D2.
        """
        return await self._run(definitions.list_definition_versions, kind, name, limit=limit, offset=offset)

    async def list_latest_definition_versions(self, *, limit: int = 1000, offset: int = 0) -> list[dict[str, Any]]:
        """Read one page of what definitions there are.

        Args:
            limit: Rows, 1 to 1,000.
            offset: Rows to pass over.
        Returns:
            ``kind``, ``name``, the highest ``version`` and the latest ``created_at`` of each, by kind and name.
        Raises:
            InvalidInputError: ``limit`` or ``offset`` is out of range.

        Contract: ADR-0055 D2.
        """
        return await self._run(definitions.list_latest_definition_versions, limit=limit, offset=offset)
