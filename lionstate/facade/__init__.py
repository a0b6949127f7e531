"""The public methods of a store, one mixin per record family; what runs them is the runner's matter.

A mapping is read by key, as LionAGI does: a required key that it lacks is ``MissingKeyError``, a ``KeyError`` and an
``InvalidInputError`` at once, in process and through a daemon (400, code ``missing_key``); nothing was written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

from lionstate.engine import Deferred, Refused
from lionstate.engine.replicas import require_lag
from lionstate.errors import InvalidInputError
from lionstate.facade.approvals import ApprovalFacade
from lionstate.facade.batch import Batch
from lionstate.facade.branches import BranchFacade
from lionstate.facade.controls import ControlFacade
from lionstate.facade.conversation import MessageFacade, SessionFacade
from lionstate.facade.definitions import DefinitionFacade
from lionstate.facade.dispatches import DispatchFacade
from lionstate.facade.engines import EngineFacade
from lionstate.facade.evidence import EvidenceFacade
from lionstate.facade.invocations import InvocationFacade
from lionstate.facade.progression import ProgressionFacade
from lionstate.facade.projects import ProjectFacade
from lionstate.facade.retention import RetentionFacade
from lionstate.facade.runner import Runner, WholeRunner
from lionstate.facade.schedule_runs import ScheduleRunFacade
from lionstate.facade.schedule_statistics import ScheduleStatisticsFacade
from lionstate.facade.schedules import NO_CURSOR_CLAIM, ScheduleFacade
from lionstate.facade.sessions import SessionLifecycleFacade
from lionstate.facade.shows import ShowFacade
from lionstate.facade.status import StatusFacade
from lionstate.facade.tasks import TaskFacade, WorkerFacade
from lionstate.facade.teams import TeamFacade
from lionstate.queue import RequestKey

__all__ = [
    "NO_CURSOR_CLAIM",
    "ApprovalFacade",
    "Batch",
    "BranchFacade",
    "ControlFacade",
    "DefinitionFacade",
    "DispatchFacade",
    "EngineFacade",
    "EvidenceFacade",
    "Facade",
    "InvocationFacade",
    "KeyedCalls",
    "MessageFacade",
    "ProgressionFacade",
    "ProjectFacade",
    "RetentionFacade",
    "Runner",
    "ScheduleFacade",
    "ScheduleRunFacade",
    "ScheduleStatisticsFacade",
    "SessionFacade",
    "SessionLifecycleFacade",
    "ShowFacade",
    "StaleReads",
    "StatusFacade",
    "TaskFacade",
    "TeamFacade",
    "WorkerFacade",
]


P = ParamSpec("P")
R = TypeVar("R")


class _Families(
    ProgressionFacade,
    MessageFacade,
    SessionFacade,
    BranchFacade,
    DefinitionFacade,
    EvidenceFacade,
    StatusFacade,
    SessionLifecycleFacade,
    RetentionFacade,
    InvocationFacade,
    ShowFacade,
    TeamFacade,
    ProjectFacade,
    ControlFacade,
    EngineFacade,
    ApprovalFacade,
    ScheduleFacade,
    ScheduleRunFacade,
    ScheduleStatisticsFacade,
    TaskFacade,
    WorkerFacade,
    DispatchFacade,
):
    """The methods of every family of records."""


class KeyedCalls(_Families):
    """What ``with_key`` gives: every writing method, under one idempotency key."""

    def __init__(self, runner: WholeRunner, key: str) -> None:
        """Run on ``runner`` under ``key``."""
        self._runner = runner
        self._key = RequestKey("", key).key

    async def _run(self, script: Callable[Concatenate[Any, P], R | Refused], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._runner._keyed(self._key, script, *args, **kwargs)

    async def _read(
        self, script: Callable[Concatenate[Any, P], Deferred[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> NoReturn:
        raise InvalidInputError("a read takes no idempotency key")


class StaleReads(_Families):
    """What ``stale_ok`` gives: every reading method, answered by a replica where there is one."""

    def __init__(self, runner: WholeRunner, max_lag_seconds: float) -> None:
        """Run on ``runner``, answers at most so old."""
        self._runner = runner
        self._lag = require_lag(max_lag_seconds)

    async def _run(self, script: Callable[Concatenate[Any, P], R | Refused], /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = await self._runner._stale(self._lag, script, *args, **kwargs)
        return result

    async def _read(
        self, script: Callable[Concatenate[Any, P], Deferred[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        result: R = await self._runner._stale(self._lag, script, *args, **kwargs)
        return result


class Facade(_Families, WholeRunner):
    """Every facade method that exists both in process and through the daemon."""

    def batch(self, *, atomic: bool = True) -> Batch:
        """Collect writing calls inside ``async with`` and run them together at its end.

        Use: ``async with state.batch() as b: b.append_to_progression(…)``, then look at ``b.results``.

        Args:
            atomic: All calls in one transaction, all or none, and an error when none; else one outcome each, in
                order, and no error.

        Contract: design §1.
        """
        return Batch(self, Facade, atomic=atomic)

    def with_key(self, key: str) -> KeyedCalls:
        """Every writing method, for one call that happens once however often it is made under this key.

        Use: ``await state.with_key(key).submit_task(…)``. A repeat, also after a crash between the commit and the
        answer, runs nothing and gets the first answer; a call that raised left nothing and runs again. It is the way to
        ask what became of a write whose outcome is unknown: make the same call with the key of the error.

        Args:
            key: 1 to 255 printable ASCII characters without blanks, new for every call; kept for 24 hours, or what a
                daemon's ``receipts.keep_seconds`` says. Keys of different users of a daemon are different keys.
        Raises:
            InvalidInputError: It is no key; of the method, when it is a read.
            IdempotencyConflictError: Of the method: the key was used for another call; nothing was changed.
            ResultNotKeptError: Of the method: the first call is written, its result above 256 KiB was not kept.

        Cost: one row in the write's transaction, and no fold with other calls.
        Contract: design decision 39.
        """
        return KeyedCalls(self, key)

    def stale_ok(self, *, max_lag_seconds: float = 5.0) -> StaleReads:
        """Every reading method, for calls whose answer may be old: a replica gives it where one is recent enough.

        Use: ``await state.stale_ok(max_lag_seconds=5).get_progression(…)``. Never for reading what you have just
        written, and two such reads may see the store in either order of time. Without replicas, and when they are
        away or lag more, the primary answers.

        Args:
            max_lag_seconds: 1 to 86,400: what was committed longer ago is seen.
        Raises:
            InvalidInputError: Another number; of the method, when it writes.

        Contract: each answer is one snapshot, as on the primary (ADR-0117 D4).
        """
        return StaleReads(self, max_lag_seconds)
