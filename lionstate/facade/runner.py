"""The one seam between a facade method and where it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from lionstate.engine import Deferred, Outcome, Refused
from lionstate.operations import Operation

__all__ = ["BatchCall", "Runner", "WholeRunner"]

P = ParamSpec("P")
R = TypeVar("R")


class BatchCall(NamedTuple):
    """One call of a batch, and the idempotency key that its caller gave it."""

    operation: Operation
    params: Mapping[str, Any]
    key: str | None = None


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


class WholeRunner(Runner, Protocol):
    """What a store or a client is besides: it runs batches, and calls under a key."""

    async def _run_batch(self, calls: Sequence[BatchCall], *, atomic: bool) -> Sequence[Outcome]:
        """Run several writes, each on its own in order or all in one transaction; one outcome per call."""
        ...

    async def _stale(
        self, lag: float, script: Callable[Concatenate[Any, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Any:
        """Run a read whose answer may be so many seconds old."""
        ...

    async def _keyed(
        self, key: str, script: Callable[Concatenate[Any, P], R | Refused], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run a write under an idempotency key; its repeats get the first answer."""
        ...
