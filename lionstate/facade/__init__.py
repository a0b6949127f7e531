"""The public methods of a store, one mixin per record family; what runs them is the runner's matter."""

from __future__ import annotations

from lionstate.facade.approvals import ApprovalFacade
from lionstate.facade.batch import Batch
from lionstate.facade.controls import ControlFacade
from lionstate.facade.conversation import BranchFacade, MessageFacade, SessionFacade
from lionstate.facade.definitions import DefinitionFacade
from lionstate.facade.dispatches import DispatchFacade
from lionstate.facade.engines import EngineFacade
from lionstate.facade.evidence import EvidenceFacade
from lionstate.facade.invocations import InvocationFacade
from lionstate.facade.progression import ProgressionFacade
from lionstate.facade.projects import ProjectFacade
from lionstate.facade.retention import RetentionFacade
from lionstate.facade.runner import Runner
from lionstate.facade.schedule_runs import ScheduleRunFacade
from lionstate.facade.schedule_statistics import ScheduleStatisticsFacade
from lionstate.facade.schedules import NO_CURSOR_CLAIM, ScheduleFacade
from lionstate.facade.sessions import SessionLifecycleFacade
from lionstate.facade.shows import ShowFacade
from lionstate.facade.status import StatusFacade
from lionstate.facade.tasks import TaskFacade, WorkerFacade
from lionstate.facade.teams import TeamFacade

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
    "StatusFacade",
    "TaskFacade",
    "TeamFacade",
    "WorkerFacade",
]


class Facade(
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
