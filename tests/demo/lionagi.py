"""Take a store that LionAGI itself wrote, migrate it under the daemon, and let both sides say what they see.

    python -m tests.demo.lionagi [--backend sqlite|postgresql] [--lionagi-python PYTHON]

LionAGI runs in its own environment and in processes of its own; the catalogue is read by another process with a
plain driver. Exit status 0 only if every line of the table holds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lionstate import StateClient
from lionstate.schema.ddl import FENCE
from tests.support.lionagi_store import POSTGRESQL, SQLITE, is_own

_HERE = Path(__file__).parent
_PATIENCE_SECONDS = 90.0

Seen = dict[str, Any]


@dataclass
class Verdict:
    """The lines of the table, and whether all of them hold."""

    lines: list[tuple[bool, str, str]] = field(default_factory=list)

    def check(self, what: str, holds: bool, figure: object) -> None:
        """Add a line."""
        self.lines.append((holds, what, str(figure)))

    @property
    def holds(self) -> bool:
        """Whether every line holds."""
        return all(line[0] for line in self.lines)

    def print(self) -> None:
        """Show the table."""
        width = max(len(what) for _, what, _ in self.lines)
        for holds, what, figure in self.lines:
            print(f"  {'ok    ' if holds else 'FAILED'}  {what:<{width}}  {figure}")


async def _child(*command: str, environment: dict[str, str] | None = None) -> Any:
    """Run a program that prints one JSON object; its standard error is shown only if it fails."""
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:4])} ended with {process.returncode}:\n{err.decode()}")
    return json.loads(out)


@dataclass(frozen=True)
class Demonstration:
    """One store and the programs that look at it.

    Attributes:
        url: Store file or PostgreSQL URL, understood by all of them.
        folder: Scratch folder; LionAGI's home too, so that nothing of the user's is touched.
        lionagi_python: The interpreter of LionAGI's environment.
    """

    url: str
    folder: Path
    lionagi_python: Path

    async def lionagi(self, script: str) -> Seen:
        """Run one of LionAGI's scripts; isolated, because this folder has a module of the same name."""
        home = str(self.folder / "home")
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "LIONAGI_HOME": home}
        found: Seen = await _child(
            str(self.lionagi_python), "-I", str(_HERE / script), self.url, environment=environment
        )
        return found

    async def look(self) -> Seen:
        """See the store through a plain driver."""
        found: Seen = await _child(sys.executable, "-m", "tests.demo.lionagi_look", self.url)
        return found

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[tuple[StateClient, asyncio.subprocess.Process]]:
        """The real daemon, with maintenance on; it is ended if the block did not."""
        socket = self.folder / "lionstated.sock"
        with (self.folder / "lionstated.log").open("w", encoding="utf-8") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "lionstated", "--database-url", self.url, "--listen-socket", str(socket)),
                *("--listen-ops=", "--maintenance-enabled=true", "--maintenance-interval-seconds=0.05"),
                # LionAGI was here a moment ago; without this, cutover waits until it has been silent for a day.
                "--maintenance-accept-foreign-writers=true",
                stdout=log,
                stderr=log,
            )
        try:
            await _until(lambda: _answering(process, socket), "the daemon to listen")
            async with StateClient(f"unix:{socket}") as client:
                yield client, process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def migrate(self, progressions: int) -> Seen:
        """Wait until maintenance has nothing left, as the outside sees it."""
        seen: Seen = {}

        async def settled() -> bool:
            nonlocal seen
            seen = await self.look()
            phases = [phase for phase in seen["phases"].values() if phase not in ("json", "dual")]
            return len(phases) == progressions

        await _until(settled, "every progression to be cut over or blocked")
        return seen


async def _answering(process: asyncio.subprocess.Process, socket: Path) -> bool:
    if process.returncode is not None:
        said = socket.with_suffix(".log").read_text(encoding="utf-8")
        raise SystemExit(f"lionstated ended with {process.returncode}:\n{said}")
    try:
        _, writer = await asyncio.open_unix_connection(str(socket))
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def _until(condition: Any, what: str) -> None:
    limit = time.monotonic() + _PATIENCE_SECONDS
    while not await condition():
        if time.monotonic() > limit:
            raise SystemExit(f"waited {_PATIENCE_SECONDS:.0f} s for {what}")
        await asyncio.sleep(0.1)


def _plain(value: Any) -> Any:
    """A value as JSON carries it, so that both sides can be compared."""
    return json.loads(json.dumps(value, default=dict))


def _same_rows(theirs: list[Seen], ours: list[Seen]) -> bool:
    """Whether ours are theirs in the same order, by every column that LionAGI returned."""
    return len(theirs) == len(ours) and all(
        all(mine.get(name) == value for name, value in row.items()) for row, mine in zip(theirs, ours, strict=True)
    )


def _decoded(event: Seen) -> Seen:
    """An admin event with its details as a value: LionAGI hands out the stored text on SQLite."""
    details = event["details"]
    return {**event, "details": json.loads(details) if isinstance(details, str) else details}


async def _compare_reads(client: StateClient, wrote: Seen, verdict: Verdict) -> None:
    """Every branch and progression as LionAGI wrote it, read through the daemon."""
    for entry in wrote["branches"].values():
        branch = entry["branch"]
        ours = _plain(await client.get_branch_messages(branch["id"]))
        same = _same_rows(entry["messages"], ours)
        verdict.check(f"branch {branch['name']!r}: messages, their order and their columns", same, len(ours))
    equal = total = 0
    for progression, ids in wrote["progressions"].items():
        equal += ids == await client.get_progression(progression)
        total += len(ids)
    verdict.check("progressions: ids in LionAGI's order", equal == len(wrote["progressions"]), f"{equal}, {total} ids")
    sessions = [_plain(await client.get_session(session)) for session in wrote["sessions"]]
    verdict.check("sessions: rows", _same_rows(list(wrote["sessions"].values()), sessions), len(sessions))
    definitions = [_plain(await client.get_definition(row["kind"], row["name"])) for row in wrote["definitions"]]
    verdict.check("definitions: latest versions", _same_rows(wrote["definitions"], definitions), len(definitions))
    artifacts = [_plain(await client.list_artifacts_for_session(session)) for session in wrote["artifacts"]]
    pairs = list(zip(wrote["artifacts"].values(), artifacts, strict=True))
    verdict.check("artifacts: rows", all(_same_rows(*pair) for pair in pairs), sum(map(len, artifacts)))
    events = _plain(await client.list_admin_events(action="demonstrated"))
    verdict.check(
        "admin events: rows", _same_rows([_decoded(row) for row in wrote["admin_events"]], events), len(events)
    )


def _listed(counts: dict[str, int]) -> str:
    """Counts as one line of the table."""
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def _own_part(seen: Seen) -> Counter[str]:
    return Counter(row[0] for row in seen["catalogue"] if is_own(row))


def _foreign_part(seen: Seen) -> list[Any]:
    return [row for row in seen["catalogue"] if not is_own(row)]


def _compare_catalogues(before: Seen, after: Seen, verdict: Verdict) -> None:
    foreign = _foreign_part(after)
    kinds = _listed(Counter(row[0] for row in foreign))
    verdict.check("catalogue outside own objects is word for word what it was", before["catalogue"] == foreign, kinds)
    triggers = [row[1] for row in after["catalogue"] if row[0] == "trigger"]
    verdict.check("own objects and the fence are there", FENCE in triggers, _listed(_own_part(after)))
    verdict.check(
        "JSON values of all progressions are untouched",
        before["collections"] == after["collections"],
        len(after["collections"]),
    )


def _compare_migration(wrote: Seen, after: Seen, verdict: Verdict) -> None:
    phases = Counter(after["phases"].values())
    expected = {"items": len(wrote["progressions"])}
    verdict.check("progressions cut over", expected == phases, _listed(phases))
    items = {key: after["items"].get(key, []) for key in wrote["progressions"]}
    verdict.check("item rows, seen from outside", wrote["progressions"] == items, sum(map(len, items.values())))


def _compare_lionagi(wrote: Seen, read: Seen, tail: str, postgresql: bool, verdict: Verdict) -> None:
    """What LionAGI 0.36.0 could read and what it could not do."""
    again = read["dump"]
    reads = ("branches", "progressions", "definitions", "artifacts", "admin_events")
    equal = all(again[name] == wrote[name] for name in reads)
    verdict.check("LionAGI opens the store and reads what it wrote", equal, f"{len(again['branches'])} branches")
    grown = {name: again["counts"][name] - count for name, count in wrote["counts"].items()}
    grown = {name: more for name, more in grown.items() if more}
    only_ours = grown.keys() <= {"admin_events", "messages"}
    verdict.check("its tables grew by our audit and one message only", only_ours, _listed(grown))
    verdict.check(
        "of a message that lionstate appended it sees the row, not the place",
        tail not in json.dumps(again["progressions"]) and grown.get("messages") == 1,
        "frozen prefix",
    )
    changing = [attempt for attempt in read["attempts"] if attempt["how"] != "retry"]
    refused = [a for a in changing if a["error"] == "IntegrityError" and "lionstate.lionagi" in a["says"]]
    left = [attempt for attempt in read["attempts"] if attempt["left"]]
    errors = _listed(Counter(f"{attempt['how']}: {attempt['error']}" for attempt in changing))
    verdict.check("its writes to cut-over progressions are refused", changing == refused, errors)
    verdict.check("nothing of a refused write stayed", not left, f"{len(changing)} attempts")
    retries = [attempt for attempt in read["attempts"] if attempt["how"] == "retry"]
    passed = bool(retries) and all(attempt["error"] is None for attempt in retries)
    verdict.check("its retries of stored messages pass and change nothing", passed, len(retries))
    known = POSTGRESQL if postgresql else SQLITE
    sent = sorted([known.append.text, known.replace.text])
    verdict.check("its statements are those that the tests send", sent == read["statements"], len(sent))
    added = read["added"]
    went_on = added["sent"] == [row["id"] for row in added["messages"]]
    verdict.check("it goes on in a conversation of its own", went_on, f"{len(added['sent'])} messages")


async def _run(demonstration: Demonstration, postgresql: bool) -> Verdict:
    verdict = Verdict()
    print("LionAGI 0.36.0 writes a store ...")
    wrote = await demonstration.lionagi("lionagi_write.py")
    before = await demonstration.look()
    print(f"  {wrote['counts']['messages']} messages, {wrote['counts']['progressions']} progressions")
    print("lionstated takes it and migrates ...")
    started = time.monotonic()
    async with demonstration.serve() as (client, process):
        after = await demonstration.migrate(len(wrote["progressions"]))
        print(f"  done after {time.monotonic() - started:.1f} s")
        _compare_migration(wrote, after, verdict)
        _compare_catalogues(before, after, verdict)
        await _compare_reads(client, wrote, verdict)
        tail = await _append(client, wrote, verdict)
        print("LionAGI 0.36.0 opens it again, beside the daemon ...")
        read = await demonstration.lionagi("lionagi_read.py")
        _compare_lionagi(wrote, read, tail, postgresql, verdict)
        added = read["added"]
        ours = _plain(await client.get_branch_messages(added["branch"]))
        verdict.check("lionstate reads that conversation", _same_rows(added["messages"], ours), len(ours))
        process.send_signal(signal.SIGTERM)
        code = await process.wait()
    verdict.check("the daemon ends in order", code == 0, f"exit {code}")
    last = await demonstration.look()
    verdict.check(
        "the catalogue is still the same at the end",
        after["catalogue"] == last["catalogue"],
        f"{len(last['catalogue'])} rows",
    )
    return verdict


async def _append(client: StateClient, wrote: Seen, verdict: Verdict) -> str:
    """Append one live message through the daemon to the longest branch; returns its id."""
    entry = max(wrote["branches"].values(), key=lambda entry: len(entry["messages"]))
    branch, message_id = entry["branch"], "said-through-lionstate"
    await client.record_message(
        {"id": message_id, "created_at": time.time(), "role": "user", "content": {"instruction": "and one more"}},
        session_id=branch["session_id"],
        branch_progression_id=branch["progression_id"],
    )
    ids = await client.get_progression(branch["progression_id"])
    expected = [*wrote["progressions"][branch["progression_id"]], message_id]
    verdict.check("a live message through lionstate comes last", expected == ids, f"{len(ids)} ids")
    return message_id


@contextmanager
def database(backend: str, folder: Path) -> Iterator[str]:
    """An empty place for the store."""
    if backend == "sqlite":
        yield str(folder / "state.db")
        return
    from tests.support.postgres import PostgresServer

    server = PostgresServer.start(18)
    try:
        yield server.create_database("demo_lionagi")
    finally:
        server.stop()


def main() -> None:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo.lionagi", description=__doc__)
    parser.add_argument("--backend", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--lionagi-python", type=Path, default=Path(".venv-lionagi/bin/python"))
    options = parser.parse_args()
    if not options.lionagi_python.exists():
        parser.error(f"{options.lionagi_python} is missing: run `make demo-lionagi`")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lionstate-demo-") as name, database(options.backend, Path(name)) as url:
        (Path(name) / "home").mkdir()
        demonstration = Demonstration(url, Path(name), options.lionagi_python.absolute())
        verdict = asyncio.run(_run(demonstration, options.backend == "postgresql"))
    verdict.print()
    good = sum(holds for holds, _, _ in verdict.lines)
    print(
        f"demo-lionagi {options.backend}: {'ok' if verdict.holds else 'FAILED'},"
        f" {good} of {len(verdict.lines)} checks, {time.monotonic() - started:.1f} s"
    )
    sys.exit(0 if verdict.holds else 1)


if __name__ == "__main__":
    main()
