"""The public methods of a store, one mixin per record family; what runs them is the runner's matter."""

from __future__ import annotations

from lionstate.facade.conversation import BranchFacade, MessageFacade, SessionFacade
from lionstate.facade.definitions import DefinitionFacade
from lionstate.facade.evidence import EvidenceFacade
from lionstate.facade.progression import ProgressionFacade
from lionstate.facade.runner import Runner

__all__ = [
    "BranchFacade",
    "DefinitionFacade",
    "EvidenceFacade",
    "Facade",
    "MessageFacade",
    "ProgressionFacade",
    "Runner",
    "SessionFacade",
]


class Facade(ProgressionFacade, MessageFacade, SessionFacade, BranchFacade, DefinitionFacade, EvidenceFacade):
    """Every facade method that exists both in process and through the daemon."""
