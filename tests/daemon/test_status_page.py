"""The status page without a browser: its policy, its form, and figures with closed keys and without ids."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from lionstate.errors import BlockedCode, HeldReason
from lionstate.migration import Ownership, Pause, SignalStatus, ThrottleStatus
from lionstate.migration.progress import Activity, UnderWay
from lionstated.assembly import assemble
from lionstated.board import Board, Sources, Standing
from lionstated.history import History
from lionstated.logs import utc
from lionstated.process import Daemon
from tests.daemon.conftest import Serving
from tests.daemon.fakes import settings_for

pytestmark = pytest.mark.anyio

SECRET = "secret-id"
VOID = {"meta", "link", "rect", "br"}
TOP = {
    *("now", "state", "reason", "absent_since", "version", "database", "uptime_seconds", "queue", "migration"),
    "history",
}
BELOW = {
    "queue": {"operations", "size_bytes", "age_seconds", "limit_operations"},
    "history": {"slot_seconds", "lock_p95_seconds", "lock_max_seconds", "wal_frames"},
    "migration": {
        *("measured_at", "enabled", "waits_for", "owner", "owner_since", "pause", "phases", "activity", "fraction"),
        *("left", "left_bytes", "items_per_second", "eta_seconds", "under_way", "throttle", "blocked", "held"),
        *("foreign", "scrub"),
    },
    "migration.phases": {"json", "dual", "items", "blocked"},
    "migration.pause": {"code", "since", "expires_at"},
    "migration.throttle": {"throttled", "starved", "waited_seconds", "signals"},
    "migration.foreign": {"sessions", "progressions", "sighted_at", "accepted"},
    "migration.scrub": {"coverage", "checked", "findings", "running_since", "last_pass_at"},
}


class Form(html.parser.HTMLParser):
    """Open elements, ids and what refers to them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag


async def fetched(serving: Serving, path: str) -> tuple[Any, str]:
    async with serving() as daemon, aiohttp.ClientSession(daemon.addresses["ops"]) as ops:
        response = await ops.get(path)
        assert 200 == response.status
        return response.headers, await response.text()


async def test_its_policy_allows_its_own_style_and_script_only(serving: Serving) -> None:
    headers, text = await fetched(serving, "/")
    assert "text/html; charset=utf-8" == headers["content-type"]
    policy = dict(one.split(" ", 1) for one in headers["content-security-policy"].split("; "))
    for tag in ("style", "script"):
        (inline,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"'sha256-{digest}'" == policy.pop(f"{tag}-src")
    none = ("default-src", "base-uri", "form-action", "frame-ancestors")
    assert {**dict.fromkeys(none, "'none'"), "connect-src": "'self'", "img-src": "data:"} == policy
    assert ("no-store", "nosniff") == (headers["cache-control"], headers["x-content-type-options"])
    assert len(text) < 60_000


async def test_it_is_well_formed_and_asks_for_nothing_else(serving: Serving) -> None:
    _, text = await fetched(serving, "/")
    form = Form()
    form.feed(text)
    form.close()
    assert [] == form.open
    names = [value for name, value in form.attributes if name == "id"]
    assert len(names) == len(set(names))
    refers = {value for name, value in form.attributes if name in ("aria-labelledby", "for")}
    assert refers <= set(names)
    assert {"header", "main", "footer", "nav", "h1"} <= set(form.tags)
    assert not [name for name, _ in form.attributes if name.startswith("on") or name in ("style", "src")]
    links = {value for name, value in form.attributes if name == "href" and not str(value).startswith(("data:", "#"))}
    assert {"/metrics", "/readyz", "/status.json"} == links
    (script,) = re.findall("<script>(.*?)</script>", text, re.DOTALL)
    # Text only: what comes from the daemon is never markup.
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function", script)
    asked = set(re.findall(r'\b(?:at|say|pairs|tone|plot)\("([a-z-]+)"', script))
    assert asked <= set(names), "the script looks for what is there"


def keys_of(found: Any) -> dict[str, set[str]]:
    """The sets of keys that are pinned, of those parts that are there."""
    kept = {}
    for path in BELOW:
        part = found
        for step in path.split("."):
            part = part and part[step]
        if part is not None:
            kept[path] = set(part)
    return kept


async def standing_of(daemon: Daemon) -> Standing:
    # A verb is answered when the gauges are fresh.
    await daemon._parts.verbs["resume"].call()  # type: ignore[union-attr]
    found = daemon.board.sources.migration()
    assert found is not None
    return found


async def test_figures_have_closed_keys_and_no_ids(folder: Path) -> None:
    """Ids, owners and operators' words are in the status, and none of them in the figures."""
    settings = settings_for(folder, database__sqlite_module="stdlib", maintenance__interval_seconds="0.01")
    parts = assemble()
    daemon = Daemon(settings, operations=parts.operations, store_factory=parts.store_factory)
    async with anyio.create_task_group() as group:
        await group.start(daemon.run)
        async with aiohttp.ClientSession(daemon.addresses["ops"]) as ops:
            params = {"progression_id": SECRET, "collection": [f"{SECRET}-m"]}
            await daemon._parts.store.run(parts.operations["create_progression"], params)  # type: ignore[union-attr]
            found = await standing_of(daemon)
            text = await (await ops.get("/status.json")).text()
            assert SECRET not in text
            plain = json.loads(text)
            assert plain["database"].startswith("SQLite 3.")
            assert 1 == plain["migration"]["phases"]["items"]
            assert 10_000 == plain["queue"]["limit_operations"]
            everything = _with_words(found)
            daemon.board.sources = Sources("SQLite", migration=lambda: everything)
            text = await (await ops.get("/status.json")).text()
        daemon.stop()
    assert SECRET not in text
    document = json.loads(text)
    assert set(document) == TOP
    assert keys_of(document) == BELOW
    migration = document["migration"]
    assert [{"number": 2, "of": 5, "copied": 7, "to_copy": 9}] == migration["under_way"]
    assert "other" == migration["owner"]
    assert {"not_array": 2} == migration["blocked"]
    assert {"foreign_writer": 3, "operator": 1} == migration["held"]
    (signal,) = migration["throttle"]["signals"]
    assert {"signal", "value", "limit", "tripped", "reason", "since"} == set(signal)
    assert (None, found.status.measured_at - 4.0) == (signal["value"], signal["since"])

    _says_what_is_not_read(found)


def _says_what_is_not_read(found: Standing) -> None:
    """Decision 24: signals that are old, or of a store that does not answer, are tripped; and there is no time left."""
    status, at = found.status, found.status.measured_at
    signal = SignalStatus("wal_frames", 5.0, 20_000.0, False)
    moving = replace(status.progress, activity=Activity.MOVING, left=4, items_per_second=9.0, eta_seconds=2.0)
    known = replace(status, progress=moving, throttle=ThrottleStatus(signals=(signal,)))
    board = Board(History(), Sources("SQLite", migration=lambda: Standing(known, True, ("pressure",), 10.0)))
    for later, absent_since, waits_for in (
        (9.0, None, None),
        (11.0, None, f"status: not read since {utc(at)}"),
        (1.0, at - 60, f"database: no_answer since {utc(at - 60)}"),
    ):
        board.clock = lambda later=later: at + later  # type: ignore[misc]
        told = board.document("unavailable", "no_answer", absent_since)["migration"]
        (one,) = told["throttle"]["signals"]
        fresh = waits_for is None
        assert told["waits_for"] == (["pressure"] if fresh else [waits_for, "pressure"])
        wanted = {"activity": "moving", "eta_seconds": 2.0, "items_per_second": 9.0}
        if not fresh:
            wanted = {"activity": "waiting", "eta_seconds": None, "items_per_second": None}
        assert wanted == {name: told[name] for name in wanted}
        read = (5.0, False, None) if fresh else (None, True, "signal_unavailable")
        assert read == (one["value"], one["tripped"], one["reason"])


def _with_words(found: Standing) -> Standing:
    """The same with something in every place."""
    status = found.status
    signal = SignalStatus("wal_frames", float("nan"), 20_000.0, True, "over_limit", 4.0)
    return found._replace(
        status=replace(
            status,
            phases={**status.phases, "items": 1},
            blocked={BlockedCode.NOT_ARRAY: 2, BlockedCode.NUL_IN_ID: 0},
            held={HeldReason.FOREIGN_WRITER: 3},
            ready=replace(status.ready, waiting=1),
            pause=Pause(SECRET, SECRET, 1.0, None),
            owner=Ownership(SECRET, False, 3, 1.0, 5.0),
            progress=replace(status.progress, left=4, under_way=(UnderWay(SECRET, 7, 9),)),
            throttle=ThrottleStatus(throttled=True, signals=(signal,)),
        )
    )


async def test_before_a_store_is_open_it_says_why(serving: Serving) -> None:
    _, text = await fetched(serving, "/status.json")
    assert ("ready", None, None) == tuple(json.loads(text)[key] for key in ("state", "reason", "migration"))
    document = Board(History()).document("starting", "the database does not answer")
    assert ("starting", "the database does not answer") == (document["state"], document["reason"])
    assert None is document["database"]
    assert {"queue", "history"} == set(keys_of(document))
