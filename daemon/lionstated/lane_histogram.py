"""Histograms of what was done for a lane, with the lane as an exemplar."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import Histogram

__all__ = ["LaneHistogram"]

_SLOW_SECONDS = 0.005
_EXEMPLAR_SECONDS = 1.0


class LaneHistogram:
    """Observes seconds; the exemplar of each slow one, and of one a second besides, is the lane.

    Of all others it would be replaced before anybody scraped it, and to make one takes twice as long as the rest, on
    the writer's thread.
    """

    def __init__(self, histograms: Mapping[str, Histogram], *, clock: Callable[[], float] = time.monotonic) -> None:
        """Observe in these histograms, by lane; the first is that of any other lane."""
        self._histograms = dict(histograms)
        self._exemplars = {lane: {"lane": lane} for lane in histograms}
        self._due = dict.fromkeys(histograms, float("-inf"))
        self._other = next(iter(histograms))
        self._clock = clock

    @classmethod
    def of_one(cls, histogram: Histogram, lanes: Iterable[str]) -> LaneHistogram:
        """All lanes in one histogram, which only their exemplars tell apart."""
        return cls(dict.fromkeys(lanes, histogram))

    @classmethod
    def by_label(cls, histogram: Histogram, lanes: Iterable[str]) -> LaneHistogram:
        """A histogram with the label ``lane``."""
        return cls({lane: histogram.labels(lane) for lane in lanes})

    def observe(self, lane: str, seconds: float) -> None:
        """Take note of one."""
        if lane not in self._histograms:
            lane = self._other
        now = self._clock()
        if seconds < _SLOW_SECONDS and now < self._due[lane]:
            self._histograms[lane].observe(seconds)
            return
        self._due[lane] = now + _EXEMPLAR_SECONDS
        self._histograms[lane].observe(seconds, self._exemplars[lane])
