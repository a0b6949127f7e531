"""The public methods of a store, one mixin per record family; what runs them is the runner's matter."""

from __future__ import annotations

from lionstate.facade.approvals import ApprovalFacade
from lionstate.facade.controls import ControlFacade
from lionstate.facade.engines import EngineFacade
from lionstate.facade.invocations import InvocationFacade
from lionstate.facade.progression import ProgressionFacade
from lionstate.facade.projects import ProjectFacade
from lionstate.facade.runner import Runner
from lionstate.facade.shows import ShowFacade
from lionstate.facade.status import StatusFacade
from lionstate.facade.teams import TeamFacade

__all__ = ["Facade", "ProgressionFacade", "Runner"]


class Facade(
    ProgressionFacade,
    StatusFacade,
    InvocationFacade,
    ShowFacade,
    TeamFacade,
    ProjectFacade,
    ControlFacade,
    EngineFacade,
    ApprovalFacade,
):
    """Every facade method that exists both in process and through the daemon."""
