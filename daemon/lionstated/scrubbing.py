"""How fast the daemon scrubs: so many rows a second, a pause between two passes."""

from __future__ import annotations

import time

from lionstate.migration import MigrationStatus

from .settings import Maintenance

__all__ = ["ScrubPace"]

# Rows of a page: less than one is not read.
_PAGE = 1_000


class ScrubPace:
    """Rows that may be compared now; they gather while none are, for at most two seconds or a page."""

    def __init__(self) -> None:
        """Start with none."""
        self._allowed = 0.0
        self._counted_at = time.monotonic()
        self._last_pass_at: float | None = None
        self._knows = False

    def learn(self, status: MigrationStatus) -> None:
        """Take note of when the last pass ended, whoever made it."""
        self._last_pass_at = status.proof.last_pass_at
        self._knows = True

    def allowed(self, settings: Maintenance) -> int:
        """Rows that may be compared now; 0 for none."""
        now, rate = time.monotonic(), settings.scrub_items_per_second
        gathered = self._allowed + rate * (now - self._counted_at)
        self._allowed, self._counted_at = min(gathered, max(2.0 * rate, float(_PAGE))), now
        return int(self._allowed) if rate and self._allowed >= min(rate, _PAGE) else 0

    def spend(self, rows: int) -> None:
        """So many were compared; one page more than was allowed is made up for by waiting."""
        self._allowed -= rows

    def may_begin(self, settings: Maintenance) -> bool:
        """Whether the pause between two passes is over."""
        last = self._last_pass_at
        return self._knows and (last is None or time.time() >= last + settings.scrub_interval_seconds)
