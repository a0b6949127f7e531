"""The public methods of a store, one mixin per record family; what runs them is the runner's matter."""

from __future__ import annotations

from lionstate.facade.progression import ProgressionFacade
from lionstate.facade.runner import Runner

__all__ = ["Facade", "ProgressionFacade", "Runner"]


class Facade(ProgressionFacade):
    """Every facade method that exists both in process and through the daemon."""
