"""Line charts as SVG text, so that plots need no library and diffs stay readable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["line_chart"]

_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 190, 46, 52
_COLOURS = ("#0b62c4", "#c4420b", "#3a8f3a", "#8a3ab9", "#7a6a00", "#00808a", "#b0005a", "#555555")

Points = Sequence[tuple[float, float]]


def _decades(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def _label(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    return f"{value / 1_000:g}k" if value >= 1_000 else f"{value:g}"


def line_chart(title: str, x_title: str, y_title: str, series: Mapping[str, Points], *, note: str = "") -> str:
    """A chart with logarithmic axes; a history of 0 is drawn at 1.

    Args:
        series: Points by the name shown at the end of the line; the first is drawn thicker.
        note: One small line under the chart: machine and versions.
    """
    drawn = {name: [(max(1.0, x), y) for x, y in points if y > 0] for name, points in series.items()}
    xs = [x for points in drawn.values() for x, _ in points]
    ys = [y for points in drawn.values() for _, y in points]
    x_ticks, y_ticks = _decades(min(xs), max(xs)), _decades(min(ys), max(ys))
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        span_x = math.log10(x_ticks[-1] / x_ticks[0]) or 1.0
        span_y = math.log10(y_ticks[-1] / y_ticks[0]) or 1.0
        return (
            _LEFT + width * math.log10(x / x_ticks[0]) / span_x,
            _TOP + height * (1 - math.log10(y / y_ticks[0]) / span_y),
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif"'
        f' font-size="12" role="img" aria-label="{escape(title)}">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="24" font-size="15" font-weight="bold">{escape(title)}</text>',
        f'<text x="{_LEFT}" y="40" fill="#555555">{escape(y_title)}</text>',
        f'<text x="{_LEFT + width / 2:.0f}" y="{_HEIGHT - 22}" text-anchor="middle">{escape(x_title)}</text>',
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}" font-size="9" fill="#777777">{escape(note)}</text>',
    ]
    for tick in y_ticks:
        _, y = at(x_ticks[0], tick)
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_label(tick)}</text>')
    for tick in x_ticks:
        x, _ = at(tick, y_ticks[0])
        parts.append(f'<text x="{x:.1f}" y="{_TOP + height + 16}" text-anchor="middle">{_label(tick)}</text>')
    ends: list[float] = []
    for number, (name, points) in enumerate(sorted(drawn.items(), key=lambda item: -item[1][-1][1])):
        first = name == next(iter(series))
        colour = _COLOURS[0] if first else _COLOURS[1 + number % (len(_COLOURS) - 1)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in points))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{3 if first else 1.6}"/>')
        x, y = at(*points[-1])
        # Names may not lie on each other.
        y = max([y, *(end + 14 for end in ends[-1:])])
        ends.append(y)
        parts.append(f'<text x="{x + 6:.1f}" y="{y + 4:.1f}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])
