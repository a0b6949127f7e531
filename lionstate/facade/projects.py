"""Projects, and what their sessions did and spent."""

from __future__ import annotations

from typing import Any, Unpack

from lionstate.facade.runner import Runner
from lionstate.records import projects, statistics
from lionstate.records.projects import ProjectChanges

__all__ = ["ProjectFacade"]


class ProjectFacade(Runner):
    """Methods on projects, and statistics over sessions."""

    async def register_project(
        self, name: str, source: str, *, path: str | None = None, github: str | None = None
    ) -> None:
        """Note that a project was seen.

        Args:
            name: A new one is inserted; a known one moves ``last_seen_at`` and ``updated_at``.
            source: Who says so; replaces a known one's only when it is ``config_toml`` or ``global_override``.
            path: Fills or replaces the known one's; None leaves it.
            github: As ``path``.

        Contract: ADR-0055 D1; reference §2.5.
        """
        await self._run(projects.register_project, name, source, path=path, github=github)

    async def create_project(
        self, name: str, *, github: str | None = None, description: str | None = None, path: str | None = None
    ) -> None:
        """Insert a project with source ``studio``.

        Raises:
            UniqueConflictError: The name exists.

        Contract: ADR-0055 D1; reference §2.5.
        """
        await self._run(projects.create_project, name, github=github, description=description, path=path)

    async def get_project(self, name: str) -> dict[str, Any] | None:
        """Read one project with ``session_count`` and ``running_count``; None if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(projects.get_project, name)

    async def list_projects(self, *, limit: int = 1000, offset: int = 0) -> list[dict[str, Any]]:
        """Read a page of projects, last seen first.

        Args:
            limit: Rows, 1 to 1,000.
            offset: Rows before the page.
        Returns:
            The columns, ``session_count`` and ``running_count``.

        Cost: one scan of the sessions that name a project.
        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(projects.list_projects, limit=limit, offset=offset)

    async def update_project(self, name: str, **changes: Unpack[ProjectChanges]) -> bool:
        """Change ``description``, ``github`` or ``path``; False if the project is missing or nothing is given.

        Raises:
            InvalidInputError: Another column, or a value that is not acceptable; nothing was written.

        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(projects.update_project, name, **changes)

    async def delete_project(self, name: str) -> bool:
        """Remove a project whose source is ``studio``; False if it is missing or another's. Sessions keep its name.

        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(projects.delete_project, name)

    async def activity_stats(self, *, window_start: float, bucket_seconds: int) -> list[dict[str, Any]]:
        """Count sessions by bucket of time and status.

        Args:
            window_start: Epoch seconds; a session counts at its end, else its start, else its creation.
            bucket_seconds: Length of a bucket, 1 or more; the window has at most 10,000.
        Returns:
            ``bucket_start`` (epoch seconds, a multiple of the length), ``status`` and ``n``; empty buckets are left
            out.
        Raises:
            InvalidInputError: Too many buckets.

        Cost: one scan of the sessions.
        Contract: ADR-0055 D1; reference §2.1.
        """
        return await self._run(statistics.activity_stats, window_start=window_start, bucket_seconds=bucket_seconds)

    async def spend_stats(self, *, window_start: float) -> dict[str, Any]:
        """Add up what the sessions of a window report to have spent.

        Args:
            window_start: Epoch seconds, as for ``activity_stats``.
        Returns:
            ``reported_usd`` (None if no session reports any), ``reported_count`` and ``unreported_count``.

        Cost: one scan of the sessions.
        Contract: ADR-0055 D1; reference §2.1.
        """
        return await self._run(statistics.spend_stats, window_start=window_start)

    async def spend_rollup(self, *, window_start: float, dimension: str, limit: int = 20) -> list[dict[str, Any]]:
        """Add up the spend of a window by one dimension, highest first, groups without any report last.

        Args:
            window_start: Epoch seconds, as for ``activity_stats``.
            dimension: ``project``, ``agent`` or ``playbook``.
            limit: Rows; brought into the bounds 1 to 50.
        Returns:
            ``key`` (None for sessions without one), ``reported_usd``, ``reported_count``, ``unreported_count``.

        Cost: one scan of the sessions.
        Contract: ADR-0055 D1; reference §2.1.
        """
        return await self._run(statistics.spend_rollup, window_start=window_start, dimension=dimension, limit=limit)

    async def store_stats(self) -> dict[str, Any]:
        """Count what the store holds.

        Returns:
            ``rows`` (by table, those of this store's schema that exist, and ``progression_items``),
            ``sessions_by_status`` and ``messages_by_role`` (counts; a row without one counts as ``none``), ``bytes``
            (of the SQLite file without its write-ahead log, or of the PostgreSQL database).

        Cost: every table is counted, which takes seconds on a store of many GB; no lock that writers wait for.
        Contract: ADR-0055 D1.
        """
        return await self._run(statistics.store_stats)
