"""Check the demonstration's store from outside: plain drivers, nothing of lionstate.

    python -m tests.demo.check URL LOG [LOG ...]

Prints one JSON object: phases, blocked codes, and of the acknowledged messages how many are present once, missing,
at two positions, or out of their writer's order.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from tests.demo.layout import conversations

_PHASES = "SELECT progression_id, phase, blocked_reason FROM progression_storage_state"
_ITEMS = "SELECT progression_id, message_id FROM progression_items ORDER BY progression_id, ordinal"
_MESSAGES = "SELECT id FROM messages"


def _read_sqlite(path: str) -> list[list[tuple[Any, ...]]]:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as conn:
        return [conn.execute(query).fetchall() for query in (_PHASES, _ITEMS, _MESSAGES)]


async def _read_postgresql(url: str) -> list[list[tuple[Any, ...]]]:
    import asyncpg

    conn = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        return [[tuple(row) for row in await conn.fetch(query)] for query in (_PHASES, _ITEMS, _MESSAGES)]
    finally:
        await conn.close()


def _acknowledged(logs: list[str]) -> dict[str, dict[str, list[str]]]:
    """Per progression and writer: the acknowledged ids in the order they were sent."""
    known = conversations()
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for log in logs:
        for line in Path(log).read_text(encoding="utf-8").splitlines():
            outcome, place, message_id, _, _ = json.loads(line)
            if outcome == "written":
                for progression in {known[place].session_progression, known[place].branch_progression}:
                    found[progression][log].append(message_id)
    return found


def check(tables: list[list[tuple[Any, ...]]], logs: list[str]) -> dict[str, Any]:
    """Compare what was acknowledged with what the tables hold."""
    phases, items, messages = tables
    order: dict[str, list[str]] = defaultdict(list)
    for progression, message_id in items:
        order[progression].append(message_id)
    stored = {row[0] for row in messages}
    counts: Counter[str] = Counter()
    for progression, writers in _acknowledged(logs).items():
        places = Counter(order[progression])
        position = {message_id: place for place, message_id in enumerate(order[progression])}
        for ids in writers.values():
            counts["acknowledged"] += len(ids)
            counts["present"] += sum(places[found] >= 1 for found in ids)
            counts["twice"] += sum(places[found] > 1 for found in ids)
            counts["without_message"] += sum(found not in stored for found in ids)
            where = [position[found] for found in ids if found in position]
            counts["reordered"] += sum(one > other for one, other in itertools.pairwise(where))
    return {
        "phases": dict(Counter(row[1] for row in phases)),
        "blocked": dict(Counter(row[2] for row in phases if row[1] == "blocked")),
        "items": len(items),
        **{name: counts[name] for name in ("acknowledged", "present", "twice", "reordered", "without_message")},
    }


def main() -> None:
    """Read the store that the arguments name and print the verdict."""
    url, *logs = sys.argv[1:]
    tables = asyncio.run(_read_postgresql(url)) if url.startswith("postgresql") else _read_sqlite(url)
    sys.stdout.write(json.dumps(check(tables, logs)) + "\n")


if __name__ == "__main__":
    main()
