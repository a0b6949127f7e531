"""A store of a few operations in memory, and the settings to serve it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from lionstate.errors import (
    BackendBusyError,
    OutcomeUnknownError,
    ProgressionBlockedError,
    StateError,
)
from lionstate.queue import RequestKey
from lionstated.metrics import Metrics
from lionstated.parts import Parts, StoreFactory
from lionstated.settings import Settings, load_settings


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    script: Callable[..., Any]
    writes: bool
    idempotent: bool
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    value: Any = None
    error: StateError | None = None


def append_to_progression(conn: object, /, progression_id: str, message_id: str) -> None:
    """Append one id."""


def get_progression(conn: object, /, progression_id: str) -> list[str]:
    """Read a whole progression."""
    raise AssertionError("only the signature is used")


def list_progression_items(
    conn: object, /, progression_id: str, *, after_ordinal: int | None = None, limit: int = 500
) -> list[tuple[int, str]]:
    """Read one page."""
    raise AssertionError("only the signature is used")


def get_progression_generation(conn: object, /, progression_id: str) -> int:
    """Read the generation."""
    raise AssertionError("only the signature is used")


def put_number(conn: object, /, key: str, number: float) -> float:
    """Answer with a number that JSON cannot carry, if asked to."""
    raise AssertionError("only the signature is used")


OPERATIONS = {
    script.__name__: Operation(script.__name__, script, writes, idempotent)
    for script, writes, idempotent in (
        (append_to_progression, True, True),
        (get_progression, False, True),
        (list_progression_items, False, True),
        (get_progression_generation, False, True),
        (put_number, True, False),
    )
}


class FakeStore:
    """Runs operations in memory; `gate` holds them, `entered` says that one has come."""

    def __init__(self) -> None:
        self.rows: dict[str, list[str]] = {}
        self.runs: list[str] = []
        self.batches: list[int] = []
        self.keys: list[tuple[str, str] | None] = []
        self.deadlines: list[float | None] = []
        self.cancelled = anyio.Event()
        self.entered = anyio.Event()
        self.second = anyio.Event()
        self.gate = anyio.Event()
        self.gate.set()
        self.closed = 0

    async def run(
        self,
        operation: Operation,
        params: Mapping[str, Any],
        *,
        deadline: float | None = None,
        key: RequestKey | None = None,
    ) -> Any:
        self.keys.append(None if key is None else (key.caller, key.key))
        self.runs.append(operation.name)
        self.deadlines.append(deadline)
        await self._pass()
        return self._apply(operation.name, dict(params))

    async def run_batch(
        self,
        calls: Sequence[tuple[Operation, Mapping[str, Any]]],
        *,
        atomic: bool,
        deadline: float | None = None,
        keys: Sequence[RequestKey | None] = (),
    ) -> list[Outcome]:
        self.keys += [None if key is None else (key.caller, key.key) for key in keys]
        self.batches.append(len(calls))
        await self._pass()
        outcomes: list[Outcome] = []
        for operation, params in calls:
            try:
                outcomes.append(Outcome(self._apply(operation.name, dict(params))))
            except StateError as exc:
                outcomes.append(Outcome(error=exc))
        return outcomes

    async def close(self) -> None:
        self.closed += 1

    async def _pass(self) -> None:
        (self.second if self.entered.is_set() else self.entered).set()
        try:
            await self.gate.wait()
        except BaseException:
            self.cancelled.set()
            raise

    def _apply(self, name: str, params: dict[str, Any]) -> Any:
        if name == "put_number":
            return {"nan": float("nan"), "odd": object()}.get(params["key"], params["number"])
        progression_id: str = params["progression_id"]
        if progression_id == "blocked":
            raise ProgressionBlockedError(reason="malformed_json")
        if progression_id == "busy":
            raise BackendBusyError(retry_after_seconds=1.5)
        if progression_id == "unknown":
            raise OutcomeUnknownError
        if progression_id == "bug":
            raise ZeroDivisionError("secret content")
        row = self.rows.setdefault(progression_id, [])
        if name == "append_to_progression":
            if params["message_id"] not in row:
                row.append(params["message_id"])
            return None
        if name == "get_progression_generation":
            return 7
        if name == "get_progression":
            return row
        after = params.get("after_ordinal")
        return [(i, item) for i, item in enumerate(row) if after is None or i > after][: params.get("limit", 500)]


def factory(store: FakeStore, **parts: Any) -> StoreFactory:
    async def build(settings: Settings, metrics: Metrics) -> Parts:
        return Parts(store=store, close=store.close, **parts)

    return build


def settings_for(folder: Path, **flags: str) -> Settings:
    given = {key.replace("__", "."): value for key, value in flags.items()}
    defaults = {
        "database.url": str(folder / "state.db"),
        "listen.socket": str(folder / "d.sock"),
        "listen.ops": "127.0.0.1:0",
        "shutdown.drain_seconds": "5",
    }
    return load_settings(flags={**defaults, **given}, environ=False)
