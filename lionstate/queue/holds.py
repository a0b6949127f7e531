"""What a call adds to the lock's hold, learned from the batches that ran."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["HoldModel"]

_FIRST_SECONDS = 0.0002
# Until a quick batch was seen, a long first one is the call's fault.
_MOST_FIXED_AT_FIRST = 0.005
_KEEP = 0.8
# The fixed cost may rise slowly: a disk that becomes slower must not be taken for slower calls for ever.
_RISE = 1.02


class HoldModel:
    """Estimates seconds per call and operation.

    A transaction costs something by itself (BEGIN, COMMIT, an fsync). Charged to the calls, that cost would shrink
    batches exactly when commits are slow and sharing one is worth most. So it is learned apart, as the lower envelope
    of what batches took, and calls are charged what they add.

    Attributes:
        fixed: Seconds of a transaction by itself.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self.fixed = _MOST_FIXED_AT_FIRST
        self._calls: dict[str, float] = {}

    def of(self, name: str) -> float:
        """Seconds that one call of this operation adds."""
        return self._calls.get(name, _FIRST_SECONDS)

    def mean(self) -> float:
        """Seconds per call over the operations seen."""
        return sum(self._calls.values()) / len(self._calls) if self._calls else _FIRST_SECONDS

    def learn(self, names: Iterable[str], count: int, seconds: float) -> None:
        """Take note of a batch of ``count`` calls, of operations of these distinct names, that took ``seconds``."""
        fixed = min(self.fixed * _RISE, seconds)
        self.fixed = fixed
        each = (seconds - fixed) / count
        for name in names:
            before = self._calls.get(name, each)
            self._calls[name] = _KEEP * before + (1 - _KEEP) * each
