"""The one seam between a facade method and where it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from lionstate.engine import Deferred, Outcome, Refused
from lionstate.operations import Operation

__all__ = ["BatchCall", "Runner"]

P = ParamSpec("P")
R = TypeVar("R")
BatchCall: TypeAlias = tuple[Operation, Mapping[str, Any]]


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

    async def _run_batch(self, calls: Sequence[BatchCall], *, atomic: bool) -> Sequence[Outcome]:
        """Run several writes, each on its own in order or all in one transaction; one outcome per call."""
        ...
