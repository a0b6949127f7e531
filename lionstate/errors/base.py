"""The base of every public exception, and of those that carry a bounded code of their own."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["BackendError", "StateError", "WithCause", "WithReason"]


class StateError(Exception):
    """The store could not do what was asked."""

    code: ClassVar[str] = "state_error"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    # Whether this is the kept answer of an earlier call with the same idempotency key.
    replayed: bool = False

    def __init__(self, message: str | None = None, *, retry_after_seconds: float | None = None) -> None:
        """Build the error.

        Args:
            message: Codes and counts, never message content; the class docstring when absent.
            retry_after_seconds: When trying again makes sense; None if that is not known.
        """
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message or (type(self).__doc__ or "").splitlines()[0])

    @property
    def cause(self) -> str:
        """A bounded word for what is the matter: the code, unless more is known."""
        return self.code


class BackendError(StateError):
    """The database refused or failed."""

    code = "backend"


class WithCause(StateError):
    """What may be known more exactly than by its code."""

    def __init__(
        self, message: str | None = None, *, retry_after_seconds: float | None = None, reason: str | None = None
    ) -> None:
        """Build the error.

        Args:
            message: As for StateError.
            retry_after_seconds: As for StateError.
            reason: ``disk_full``, ``no_answer``, ``opened_elsewhere`` or ``store_moved``, where that is known.
        """
        self.reason = reason
        super().__init__(message, retry_after_seconds=retry_after_seconds)

    @property
    def cause(self) -> str:
        """The reason where it is known, else the code."""
        return self.reason or self.code


class WithReason(Exception):
    """What carries a bounded code of its own: a blocked code, a verdict on a collection, a reason code."""

    _said: ClassVar[str] = ""

    def __init__(self, message: str | None = None, *, reason: str | None = None) -> None:
        """Build the error.

        Args:
            message: As for StateError.
            reason: The bounded code, if there is one.
        """
        self.reason = reason
        super().__init__(message or (f"{self._said}: {reason}" if self._said and reason else None))
