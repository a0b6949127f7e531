"""The one seam between a facade method and where it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from lionstate.engine import Deferred, Refused

__all__ = ["Runner"]

P = ParamSpec("P")
R = TypeVar("R")


class Runner(Protocol):
    """Runs one script with its arguments: on a connection, or in the daemon."""

    async def _run(self, script: Callable[Concatenate[Any, P], R | Refused], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a script and return its result; a refusal that it returns is raised."""
        ...

    async def _read(
        self, script: Callable[Concatenate[Any, P], Deferred[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run a read whose last part is pure work outside the transaction."""
        ...
