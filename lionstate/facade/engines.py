"""Engine runs, and the definitions of engines and workflows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from lionstate.facade.runner import Runner
from lionstate.records import blueprints, engine_runs
from lionstate.records.blueprints import EngineDefChanges, WorkflowDefChanges

__all__ = ["EngineFacade"]


class EngineFacade(Runner):
    """Methods on engine runs, engine definitions and workflow definitions."""

    async def insert_engine_run(
        self,
        *,
        run_id: str,
        kind: str,
        spec_json: Mapping[str, Any],
        started_at: float,
        session_id: str | None = None,
    ) -> None:
        """Insert a run with status ``running``.

        Raises:
            UniqueConflictError: The id exists.
            ForeignKeyError: The session is missing.

        Contract: ADR-0055 D1; reference §2.5.
        """
        await self._run(
            engine_runs.insert_engine_run,
            run_id=run_id,
            kind=kind,
            spec_json=spec_json,
            started_at=started_at,
            session_id=session_id,
        )

    async def update_engine_run(
        self,
        run_id: str,
        *,
        status: str,
        ended_at: float | None = None,
        export_dir: str | None = None,
        error: str | None = None,
    ) -> None:
        """Overwrite all four columns of a run; what is not given becomes None, a missing run is silent.

        Args:
            run_id: The run.
            status: ``running``, ``completed``, ``failed`` or ``cancelled``.
            ended_at: Epoch seconds.
            export_dir: Where its output is.
            error: Why it failed.

        Contract: ADR-0055 D1; reference §2.5.
        """
        await self._run(
            engine_runs.update_engine_run,
            run_id,
            status=status,
            ended_at=ended_at,
            export_dir=export_dir,
            error=error,
        )

    async def set_engine_run_lineage(
        self,
        run_id: str,
        *,
        invocation_id: str | None,
        signal_session_id: str | None,
        parent_session_id: str | None,
    ) -> None:
        """Overwrite where a run came from; a missing run is silent.

        Raises:
            ForeignKeyError: One of the three is missing.

        Contract: ADR-0055 D1; reference §2.5.
        """
        await self._run(
            engine_runs.set_engine_run_lineage,
            run_id,
            invocation_id=invocation_id,
            signal_session_id=signal_session_id,
            parent_session_id=parent_session_id,
        )

    async def record_engine_run_outcome(self, run_id: str, outcome_json: Mapping[str, Any]) -> None:
        """Overwrite the outcome of a run; a missing run is silent.

        Contract: ADR-0055 D1; reference §2.5.
        """
        await self._run(engine_runs.record_engine_run_outcome, run_id, outcome_json)

    async def get_engine_run(self, run_id: str) -> dict[str, Any] | None:
        """Read one run; None if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(engine_runs.get_engine_run, run_id)

    async def list_engine_runs(
        self,
        *,
        kind: str | None = None,
        status: str | None = None,
        session_id: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[dict[str, Any]]:
        """Read a page of runs, last started first; each filter is exact, 1 to 1,000 rows.

        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(
            engine_runs.list_engine_runs, kind=kind, status=status, session_id=session_id, limit=limit, offset=offset
        )

    async def list_engine_run_summaries(
        self,
        *,
        kind: str | None = None,
        status: str | None = None,
        session_id: str | None = None,
        before_started_at: float | None = None,
        before_id: str | None = None,
        limit: int = 100,
    ) -> list[dict[str, Any]]:
        """Read a page of runs without ``spec_json``, ``export_dir`` and ``error``, last started first.

        Args:
            kind: Only of this kind.
            status: Only with this status.
            session_id: Only of this session.
            before_started_at: With ``before_id`` the last row of the page before; both or neither.
            before_id: See ``before_started_at``.
            limit: Rows, 1 to 1,000.
        Returns:
            The other columns, ``has_output`` (there is an export folder) and ``has_error``.

        Cost: one range scan of the index on start and id.
        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(
            engine_runs.list_engine_run_summaries,
            kind=kind,
            status=status,
            session_id=session_id,
            before_started_at=before_started_at,
            before_id=before_id,
            limit=limit,
        )

    async def create_engine_def(self, defn: Mapping[str, Any]) -> None:
        """Insert an engine definition.

        Args:
            defn: Columns by name; ``id``, ``name`` and ``kind`` are required, other keys are left alone.
        Raises:
            UniqueConflictError: The id or the name exists.

        Contract: ADR-0055 D1; reference §2.4.
        """
        await self._run(blueprints.create_engine_def, defn)

    async def get_engine_def(self, def_id: str) -> dict[str, Any] | None:
        """Read one engine definition; None if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(blueprints.get_engine_def, def_id)

    async def get_engine_def_by_name(self, name: str) -> dict[str, Any] | None:
        """Read the engine definition of this name; None if there is none.

        Contract: ADR-0055 D1.
        """
        return await self._run(blueprints.get_engine_def_by_name, name)

    async def list_engine_defs(
        self, *, kind: str | None = None, limit: int = 100, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Read a page of engine definitions, last changed first, 1 to 1,000 rows.

        Contract: ADR-0055 D1; reference §2.4.
        """
        return await self._run(blueprints.list_engine_defs, kind=kind, limit=limit, offset=offset)

    async def update_engine_def(self, def_id: str, **changes: Unpack[EngineDefChanges]) -> None:
        """Change columns of an engine definition; a missing one is silent.

        Raises:
            InvalidInputError: The column cannot be written; nothing was.
            UniqueConflictError: The name exists.

        Contract: ADR-0055 D1; reference §2.4.
        """
        await self._run(blueprints.update_engine_def, def_id, **changes)

    async def delete_engine_def(self, def_id: str) -> bool:
        """Remove an engine definition; False if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(blueprints.delete_engine_def, def_id)

    async def create_workflow_def(self, defn: Mapping[str, Any]) -> None:
        """Insert a workflow definition; as ``create_engine_def``, ``kind`` apart. The specification is not looked into.

        Contract: ADR-0055 D1; reference §2.4.
        """
        await self._run(blueprints.create_workflow_def, defn)

    async def get_workflow_def(self, def_id: str) -> dict[str, Any] | None:
        """Read one workflow definition; None if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(blueprints.get_workflow_def, def_id)

    async def get_workflow_def_by_name(self, name: str) -> dict[str, Any] | None:
        """Read the workflow definition of this name; None if there is none.

        Contract: ADR-0055 D1.
        """
        return await self._run(blueprints.get_workflow_def_by_name, name)

    async def list_workflow_defs(self, *, limit: int = 100, offset: int = 0) -> list[dict[str, Any]]:
        """Read a page of workflow definitions, last changed first, 1 to 1,000 rows.

        Contract: ADR-0055 D1; reference §2.4.
        """
        return await self._run(blueprints.list_workflow_defs, limit=limit, offset=offset)

    async def update_workflow_def(self, def_id: str, **changes: Unpack[WorkflowDefChanges]) -> None:
        """Change columns of a workflow definition; errors as ``update_engine_def``, a missing one is silent.

        Contract: ADR-0055 D1; reference §2.4.
        """
        await self._run(blueprints.update_workflow_def, def_id, **changes)

    async def delete_workflow_def(self, def_id: str) -> bool:
        """Remove a workflow definition; False if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(blueprints.delete_workflow_def, def_id)
