"""Several calls sent together: collected inside a block, run at its end."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import Any, Concatenate, NoReturn, ParamSpec, Self, TypeVar

from lionstate.engine import Deferred, Outcome, Written
from lionstate.errors import InvalidInputError
from lionstate.facade.runner import BatchCall, WholeRunner
from lionstate.operations import operation_of
from lionstate.queue import RequestKey

__all__ = ["Batch", "Collected", "KeyedBatch"]

P = ParamSpec("P")
R = TypeVar("R")


class Collected:
    """What a call inside the block returns: nothing yet. It may be awaited or left alone."""

    def __await__(self) -> Generator[None, None, None]:
        """Nothing to wait for before the block ends."""
        yield from ()


class Batch:
    """What ``batch()`` yields: the facade's writing methods, which note the call instead of running it.

    Attributes:
        results: One outcome per call, in order, after the block: ``Written`` with the value, ``NotWritten`` or
            ``Unknown`` with the error.
    """

    def __init__(self, runner: WholeRunner, facade: type, *, atomic: bool) -> None:
        """Collect calls of the methods of ``facade`` for ``runner``."""
        self._runner = runner
        self._facade = facade
        self._atomic = atomic
        self._calls: list[BatchCall] = []
        self._open = False
        self.results: Sequence[Outcome] = ()

    def with_key(self, key: str) -> KeyedBatch:
        """Collect the next call under an idempotency key; see ``Facade.with_key``.

        Raises:
            InvalidInputError: It is no key.
        """
        return KeyedBatch(self, RequestKey("", key).key)

    def __getattr__(self, name: str) -> Callable[..., Collected]:
        """A facade method that collects."""
        return self._collecting(name)

    def _collecting(self, name: str, key: str | None = None) -> Callable[..., Collected]:
        method = None if name.startswith("_") else getattr(self._facade, name, None)
        if method is None or name in ("batch", "with_key"):
            raise AttributeError(f"a batch has no method {name}")

        def collect(*args: Any, **kwargs: Any) -> Collected:
            if not self._open:
                raise InvalidInputError("a batch takes calls inside its block only")
            call = method(_Collector(self._calls, key), *args, **kwargs)
            try:
                # The collector never waits, so that the method ends at its first step.
                call.send(None)
            except StopIteration:
                return Collected()
            finally:
                call.close()
            raise InvalidInputError(f"{name} cannot be part of a batch")

        return collect

    async def __aenter__(self) -> Self:
        """Begin to collect."""
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Run the calls, unless the block raised: then nothing is sent.

        Raises:
            StateError: An atomic batch was not written, or that is not known; ``results`` is set as well.
        """
        self._open = False
        if kind is not None or not self._calls:
            return
        self.results = tuple(await self._runner._run_batch(self._calls, atomic=self._atomic))
        if self._atomic:
            for outcome in self.results:
                if not isinstance(outcome, Written):
                    raise outcome.error


class KeyedBatch:
    """What ``Batch.with_key`` gives: the same methods, for one call."""

    def __init__(self, batch: Batch, key: str) -> None:
        """Collect into ``batch`` under ``key``."""
        self._batch = batch
        self._key = key

    def __getattr__(self, name: str) -> Callable[..., Collected]:
        """A facade method that collects."""
        return self._batch._collecting(name, self._key)


class _Collector:
    """The runner under a batch: notes the call."""

    def __init__(self, calls: list[BatchCall], key: str | None) -> None:
        self._calls = calls
        self._key = key

    async def _run(self, script: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        operation = operation_of(script)
        self._calls.append(BatchCall(operation, operation.bind(args, kwargs), self._key))
        return None

    async def _read(
        self, script: Callable[Concatenate[Any, P], Deferred[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> NoReturn:
        raise InvalidInputError("a read cannot be part of a batch")
