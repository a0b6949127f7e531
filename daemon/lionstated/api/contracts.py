"""What the API needs of the store, the operations table and the migration service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from lionstate.queue import RequestKey

from ..settings import Rights

__all__ = [
    "ADMIN_OPERATIONS",
    "GENERATION_HEADER",
    "MAX_WAIT_SECONDS",
    "QUERY_NAMES",
    "READS",
    "ListenerLike",
    "NewsLike",
    "OperationLike",
    "StoreLike",
    "Verb",
    "rights_for",
]

# The reads people do with curl, the operation behind each, and the short names of its parameters.
READS: Final = {
    "/v1/progressions/{id}/items": "list_progression_items",
    "/v1/progressions/{id}": "get_progression",
}
QUERY_NAMES: Final = {"after": "after_ordinal", "before": "before_ordinal"}
GENERATION_HEADER: Final = "lionstate-generation"
MAX_WAIT_SECONDS: Final = 60
# Writes that a writer has no business with: they forge the audit trail or delete what others wrote.
ADMIN_OPERATIONS: Final = frozenset(
    ("insert_admin_event", "prune_sessions", "delete_imported_session", "remove_deleted_rows", "purge_dispatches")
)


class OperationLike(Protocol):
    """A row of the operations table."""

    @property
    def name(self) -> str:
        """Name on the wire."""

    @property
    def script(self) -> Callable[..., Any]:
        """The transaction script; gives parameters, result type and documentation."""

    @property
    def writes(self) -> bool:
        """Whether it needs the writer."""

    @property
    def idempotent(self) -> bool:
        """Whether a second run changes nothing."""

    @property
    def schemas(self) -> Mapping[str, Mapping[str, Any]]:
        """JSON Schema of parameters, by name, where it says more than the type."""


def rights_for(operation: OperationLike) -> Rights:
    """What a caller needs to run an operation."""
    if operation.name in ADMIN_OPERATIONS:
        return "admin"
    return "write" if operation.writes else "read"


class StoreLike(Protocol):
    """An open store."""

    async def run(
        self,
        operation: Any,
        params: Mapping[str, Any],
        *,
        deadline: float | None = None,
        key: RequestKey | None = None,
        max_lag_seconds: float | None = None,
    ) -> Any:
        """Run one operation, a write under a key once, a read on a replica if so old is allowed; raises StateError."""

    async def run_batch(
        self,
        calls: Sequence[tuple[Any, Mapping[str, Any]]],
        *,
        atomic: bool,
        deadline: float | None = None,
        keys: Sequence[RequestKey | None] = (),
    ) -> Sequence[Any]:
        """Run operations in order, with a key each or none; one outcome each, with `.value` or `.error`."""


class ListenerLike(Protocol):
    """Hears of commits under one key."""

    async def wait(self, seconds: float) -> bool:
        """Wait for the next one; ClosedError when no more will come."""


class NewsLike(Protocol):
    """Tells of commits."""

    def listen(self, key: str) -> AbstractContextManager[ListenerLike]:
        """Listen for a key while the block runs."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb of the migration API: `GET` reads, `POST` changes; parameters by the function's signature.

    Attributes:
        ends_with_caller: Nobody else wants its result: it is cancelled when the caller goes away.
    """

    method: Literal["GET", "POST"]
    call: Callable[..., Awaitable[Any]]
    ends_with_caller: bool = False
