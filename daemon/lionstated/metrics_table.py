"""Every metric as a table for people; as a program it writes the one of the README of a checkout."""

from __future__ import annotations

from collections.abc import Collection

from .metrics import Metrics
from .settings import put_table

__all__ = ["metrics_table"]

# Of a label; larger sets are named only.
_TOLD_VALUES = 9


def metrics_table() -> str:
    """Every metric in Markdown: name, type, labels with the values of small sets, what it says."""
    metrics = Metrics()
    metrics.set_sqlite("", affected=False)
    lines = ["| metric | type | labels | |", "|---|---|---|---|"]
    for family in metrics.registry.collect():
        values: dict[str, dict[str, None]] = {}
        for sample in family.samples:
            for label, value in sample.labels.items():
                values.setdefault(label, {})[value] = None
        told = "; ".join(_label_text(label, found) for label, found in values.items() if label != "le")
        name = f"{family.name}_total" if family.type == "counter" else family.name
        lines.append(f"| `{name}` | {family.type} | {told} | {family.documentation} |")
    return "\n".join(lines) + "\n"


def _label_text(label: str, values: Collection[str]) -> str:
    return f"`{label}`: {', '.join(values)}" if 1 < len(values) <= _TOLD_VALUES else f"`{label}`"


if __name__ == "__main__":
    put_table("metrics", metrics_table())
