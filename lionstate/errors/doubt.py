"""The third outcome of a write, and what one does about it."""

from __future__ import annotations

from typing import Final

from lionstate.errors.base import BackendError

__all__ = ["OutcomeUnknownError"]

_FIND_OUT: Final = (
    "the same call with the same idempotency key finds out, and writes it only if it is not there;"
    " without a key, read it back before it is written again"
)


class OutcomeUnknownError(BackendError):
    """The write was sent and its result is not known."""

    code = "outcome_unknown"
    exit_code = 11

    def __init__(
        self,
        message: str | None = None,
        *,
        retry_after_seconds: float | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Build the error.

        Args:
            message: As for StateError; the default says what one does about it too, as `after` does.
            retry_after_seconds: As for StateError.
            idempotency_key: The same call with this key finds out: it runs only if it is not there, and answers as
                the first one did. None when the call had none.
        """
        said = message or _said("the write was sent and its result is not known")
        super().__init__(said, retry_after_seconds=retry_after_seconds)
        self.idempotency_key = idempotency_key

    @classmethod
    def after(cls, happened: str) -> OutcomeUnknownError:
        """Say what happened, what is not known, and what to do; codes and counts, as for StateError."""
        return cls(_said(happened))

    @classmethod
    def after_commit(cls, cause: str) -> OutcomeUnknownError:
        """COMMIT failed, and what became of it cannot be read for this bounded cause (``StateError.cause``)."""
        first = ": make room on the disk of the store first" if cause == "disk_full" else ""
        return cls.after(f"COMMIT failed and what became of it cannot be read now ({cause}{first})")


def _said(happened: str) -> str:
    return f"{happened}: the write may or may not be there; {_FIND_OUT}"
