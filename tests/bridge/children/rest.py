"""The ways to write and delete that a run does not take: mirrors, absorption, retention. In the bridge's environment.

    python -I rest.py URL MODE

Writes histories, waits at the checkpoint ``json`` for a line on standard input, and goes on behind the cutover.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

from lionagi.state._mirror_common import write_mirrored_messages
from lionagi.state.db import StateDB
from lionagi.studio import config
from lionagi.studio.scheduler.coordination import compute_files_overlap
from lionagi.studio.services import db_maintenance

url, mode = sys.argv[1], sys.argv[2]
LONG_AGO = 1_000_000.0
# The classes by which LionAGI knows the use of a tool.
ACTION = {"lion_class": "lionagi.protocols.messages.action_request.ActionRequest"}


def row(name: str, **more: Any) -> dict[str, Any]:
    """A message."""
    return {"id": name, "created_at": LONG_AGO, "role": "user", "content": {"instruction": name}, **more}


def names(prefix: str, count: int, first: int = 0) -> list[str]:
    """Message ids."""
    return [f"{prefix}-{number:03d}" for number in range(first, first + count)]


async def make(db: StateDB, name: str, **session: Any) -> None:
    """A session with one branch; each has a progression."""
    await db.create_progression(f"{name}-whole")
    await db.create_progression(f"{name}-part")
    more = {"status": "running", "created_at": LONG_AGO, "updated_at": LONG_AGO, **session}
    await db.create_session({"id": name, "progression_id": f"{name}-whole", "last_message_at": LONG_AGO, **more})
    await db.create_branch({"id": f"{name}-branch", "session_id": name, "progression_id": f"{name}-part"})


async def mirror(db: StateDB, name: str, ids: list[str]) -> None:
    """A batch of a transcript."""
    await write_mirrored_messages(
        db,
        [row(message) for message in ids],
        progression_ids=(f"{name}-part", f"{name}-whole"),
        session_id=name,
        activity_at=LONG_AGO,
    )


async def left(db: StateDB) -> list[str]:
    """Every message that is stored."""
    return [found["id"] for found in await db.fetch_all("SELECT id FROM messages ORDER BY id")]


async def histories(db: StateDB) -> None:
    """What is there before the migration."""
    await make(db, "mirrored", source_kind="imported_codex", status="completed", ended_at=LONG_AGO)
    await make(db, "old", status="completed", ended_at=LONG_AGO)
    await make(db, "keeper")
    await db.create_invocation({"id": "invoked", "skill": "clock", "started_at": LONG_AGO})
    for worker in ("worker-1", "worker-2"):
        await make(db, worker, invocation_id="invoked")
    for name in ("mirrored", "old"):
        await mirror(db, name, names(name, 20))
    await mirror(db, "keeper", names("keeper", 3))


async def tails(db: StateDB) -> None:
    """What comes behind the cutover; the keeper takes messages of the others along, in its tail only."""
    for name in ("mirrored", "old"):
        await mirror(db, name, names(name, 8, first=15))
        for message in (f"{name}-002", f"{name}-021"):
            await db.append_to_progression("keeper-part", message)
    await db.set_progression("keeper-whole", names("keeper", 2))
    await db.append_to_progression("keeper-whole", "keeper-002")
    for worker in ("worker-1", "worker-2"):
        content = {"function": "read", "arguments": {"file_path": "shared.py"}}
        await db._persist_live_message(
            row(f"{worker}-read", node_metadata=ACTION, content=content),
            session_id=worker,
            branch_progression_id=f"{worker}-part",
            session_progression_id=f"{worker}-whole",
            activity_at=LONG_AGO,
        )


async def delete(db: StateDB) -> dict[str, Any]:
    """Absorb the imported session, then let retention take the old one; SQLite only, as LionAGI has it."""
    found: dict[str, Any] = {"before": await left(db)}
    found["absorbed"] = await db.delete_imported_session("mirrored", require_source_kind="imported_codex")
    found["after absorbing"] = await left(db)
    archive = Path.cwd() / "archive"
    archive.mkdir()
    config.PRUNE_ARCHIVE_DIR = archive
    try:
        found["pruned"] = await db_maintenance.prune_old_data(keep_days=30)
    except Exception as error:
        found["pruned"] = type(error).__name__
    found["after pruning"] = await left(db)
    found["archived"] = sorted(line for path in archive.glob("*.zip") for line in archived(path))
    return found


def archived(path: Path) -> list[list[str]]:
    """The ids of each archived progression."""
    with zipfile.ZipFile(path) as packed:
        lines = packed.read("rows/progressions.jsonl").decode().splitlines()
    rows = [json.loads(line) for line in lines]
    return [json.loads(row["collection"]) for row in rows]


async def main() -> None:
    """Write, wait, write, delete, look."""
    if mode != "plain":
        importlib.import_module("lionstate.lionagi").install(daemon=None if mode == "bridge" else mode)
    async with StateDB() as db:
        await histories(db)
        sys.stdout.write(json.dumps({"at": "json"}) + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        await tails(db)
        found = {
            "overlap": await compute_files_overlap(db, "invoked"),
            "keeper": [await db.get_progression(f"keeper-{part}") for part in ("whole", "part")],
            "deleted": await delete(db),
        }
        found["progressions"] = [row["id"] for row in await db.fetch_all("SELECT id FROM progressions ORDER BY id")]
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
