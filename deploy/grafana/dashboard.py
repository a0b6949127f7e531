"""Writes the dashboard: `python dashboard.py > lionstate.json`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

_SELECT = 'job=~"$job", instance=~"$instance"'
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _COLUMNS = 8, 7, 3


@dataclass(frozen=True)
class Panel:
    """One panel: title, unit of Grafana, and expressions with their legends; a `stat` shows the last value."""

    title: str
    unit: str
    targets: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    exemplars: bool = False


def _quantiles(metric: str, by: str = "") -> tuple[tuple[str, str], ...]:
    labels = f"le, {by}" if by else "le"
    legend = f"{{{{{by}}}}} " if by else ""
    return tuple(
        (
            f"histogram_quantile({q}, sum by ({labels}) (rate({metric}_bucket{{{_SELECT}}}[$__rate_interval])))",
            f"{legend}p{int(q * 100)}",
        )
        for q in (0.5, 0.99)
    )


def _gauge(metric: str, by: str, more: str = "") -> tuple[tuple[str, str], ...]:
    return ((f"sum by ({by}) ({metric}{{{_SELECT}{more}}})", f"{{{{{by}}}}}"),)


def _rate(metric: str, by: str) -> tuple[tuple[str, str], ...]:
    return ((f"sum by ({by}) (rate({metric}{{{_SELECT}}}[$__rate_interval]))", f"{{{{{by}}}}}"),)


ROWS: dict[str, tuple[Panel, ...]] = {
    "Service": (
        Panel("Store open", "none", _gauge("lionstate_up", "instance"), "stat"),
        Panel("Migrates the store", "none", _gauge("lionstate_migration_owner", "instance"), "stat"),
        Panel("Parts that do not run", "none", _gauge("lionstate_service_degraded", "service"), "stat"),
        Panel("Operations", "ops", _rate("lionstate_operations_total", "outcome")),
        Panel("Waiting operations", "none", _gauge("lionstate_write_queue_depth", "instance")),
        Panel("Wait in the queue", "s", _quantiles("lionstate_write_queue_wait_seconds")),
    ),
    "Writing": (
        Panel("Wait for the lock", "s", _quantiles("lionstate_write_lock_wait_seconds"), exemplars=True),
        Panel("Lock held", "s", _quantiles("lionstate_write_lock_hold_seconds", "lane"), exemplars=True),
        Panel("COMMIT", "s", _quantiles("lionstate_commit_seconds"), exemplars=True),
        Panel("Operations of a transaction", "none", _quantiles("lionstate_write_batch_operations")),
        Panel("Lock left to others", "percentunit", _rate("lionstate_write_pause_seconds_total", "instance")),
        Panel("Commits of other processes", "ops", _rate("lionstate_foreign_commits_total", "instance")),
    ),
    "Write-ahead log": (
        Panel("Frames", "none", _gauge("lionstate_wal_frames", "state")),
        Panel("Bytes written", "Bps", _rate("lionstate_wal_bytes_written_total", "instance")),
        Panel("Checkpoints", "ops", _rate("lionstate_checkpoints_total", "outcome")),
    ),
    "Migration": (
        Panel("Progressions", "none", _gauge("lionstate_migration_progressions", "phase")),
        Panel("Items still to copy", "none", _gauge("lionstate_migration_remaining_items", "instance")),
        Panel("Items copied", "ops", _rate("lionstate_migration_items_total", "instance")),
        Panel("Waits because of", "none", _gauge("lionstate_migration_paused", "reason")),
        Panel("Throttle: value", "none", _gauge("lionstate_migration_throttle_value", "signal")),
        Panel("Throttle: limit", "none", _gauge("lionstate_migration_throttle_limit", "signal")),
        Panel("Throttled", "percentunit", _rate("lionstate_migration_throttled_seconds_total", "signal")),
        Panel("Starved", "none", _gauge("lionstate_migration_starved", "instance"), "stat"),
        Panel("Lock hold of a cutover", "s", _quantiles("lionstate_migration_cutover_lock_seconds")),
    ),
    "Proof": (
        Panel("Parity checks", "ops", _rate("lionstate_migration_parity_checks_total", "outcome")),
        Panel("Rows scrubbed", "ops", _rate("lionstate_scrub_items_total", "outcome")),
        Panel("Pass of the scrubber", "percentunit", _gauge("lionstate_scrub_coverage_ratio", "instance")),
        Panel("Blocked", "none", _gauge("lionstate_migration_blocked", "code")),
        Panel("Held", "none", _gauge("lionstate_migration_held", "reason")),
        Panel("Appends to blocked progressions", "ops", _rate("lionstate_blocked_appends_total", "authority")),
    ),
}


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    targets = [
        {
            "datasource": _SOURCE,
            "exemplar": panel.exemplars,
            "expr": expression,
            "legendFormat": legend,
            "refId": chr(ord("A") + place),
        }
        for place, (expression, legend) in enumerate(panel.targets)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}} if panel.kind == "stat" else {},
        "targets": targets,
    }


def _panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    y = 0
    for title, panels in ROWS.items():
        row = {"id": len(found) + 1, "type": "row", "title": title, "collapsed": False, "panels": []}
        found.append({**row, "gridPos": {"x": 0, "y": y, "w": _WIDTH * _COLUMNS, "h": 1}})
        y += 1
        for place, panel in enumerate(panels):
            line, column = divmod(place, _COLUMNS)
            found.append(_panel(panel, len(found) + 1, column * _WIDTH, y + line * _HEIGHT))
        y += -(-len(panels) // _COLUMNS) * _HEIGHT
    return found


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard() -> dict[str, Any]:
    """The whole document, as Grafana imports it."""
    return {
        "uid": "lionstate",
        "title": "lionstate",
        "tags": ["lionstate"],
        "schemaVersion": 39,
        "editable": True,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                _variable("job", "label_values(lionstate_up, job)"),
                _variable("instance", 'label_values(lionstate_up{job=~"$job"}, instance)'),
            ]
        },
        "panels": _panels(),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n")
