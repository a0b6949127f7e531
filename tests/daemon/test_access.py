"""Who may do what: listener × peer × token × scope × verb, generated; and no combination that lets strangers in."""

from __future__ import annotations

import asyncio
import collections
import itertools
import json
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from lionstate.errors import InvalidInputError
from lionstate.operations import OPERATIONS
from lionstated.api import (
    Bearers,
    Health,
    Listeners,
    Verb,
    check_listeners,
    operations_app,
    peer_policy,
    service_app,
)
from lionstated.api.access import actor_of, caller_of, local_names
from lionstated.api.problems import Guard, HttpProblem, Policy
from lionstated.api.server import Connection, Peer
from lionstated.board import Board
from lionstated.metrics import Metrics
from lionstated.process import Daemon
from lionstated.settings import Settings, load_settings
from lionstated.settings.tokens import read_tokens
from tests.daemon import fakes
from tests.daemon.conftest import Serving, free_address
from tests.support.certificates import Certificate, make_certificate

pytestmark = pytest.mark.anyio
GROUP = 4242
PEERS = {"self": Peer(1, os.geteuid(), 99), "root": Peer(1, 0, 0), "group": Peer(1, 54321, GROUP)}
PEERS["stranger"] = Peer(1, 54322, 98)
TOKENS = {"read": "r-token", "write": "w-token", "admin": "a-token", "wrong": "x-token", "none": None}
RANK = ("read", "write", "admin")
# By hand: what no writer may do although it is an ordinary operation.
ADMIN = {"insert_admin_event", "prune_sessions", "delete_imported_session", "remove_deleted_rows", "purge_dispatches"}


def secret_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "token"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


class _Answers:
    """A store that answers whatever it is asked."""

    async def run(self, operation: Any, params: Any, **rest: Any) -> Any:
        return None

    async def run_batch(self, calls: Any, **rest: Any) -> Any:
        return []


async def _verb() -> None:
    """A verb of the migration."""


def _service() -> Any:
    verbs = {"look": Verb("GET", _verb), "change": Verb("POST", _verb)}
    return service_app(
        _Answers(),  # type: ignore[arg-type]
        OPERATIONS,
        metrics=Metrics(OPERATIONS),
        verbs=verbs,
        health=Health("ready"),
        max_request_bytes=4096,
        max_operations=10,
        deadline_ms=1000,
    )


def _requests() -> Iterator[tuple[str, str, str, str]]:
    """Method, path, what it needs, on which kind of listener."""
    for name, operation in OPERATIONS.items():
        needs = "admin" if name in ADMIN else "write" if operation.writes else "read"
        yield "POST", f"/v1/ops/{name}", needs, "service"
    yield "GET", "/v1/progressions/p", "read", "service"
    yield "GET", "/v1/progressions/p/items", "read", "service"
    yield "GET", "/v1/migration/look", "read", "service"
    yield "POST", "/v1/migration/change", "admin", "service"
    yield "GET", "/openapi.json", "read", "service"
    for path in ("/livez", "/readyz"):
        yield "GET", path, "read", "service"
    for path in ("/", "/status.json", "/metrics", "/livez", "/readyz"):
        yield "GET", path, "read", "ops"


async def ask(app: Any, method: str, path: str, *, peer: Peer | None = None, token: str | None = None) -> int:
    """The status of one request with an empty body, as a listener would hand it over."""
    headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
    if token is not None:
        headers.append((b"authorization", b"Bearer " + token.encode()))
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers}
    scope["extensions"] = {"lionstate.connection": Connection(peer)}  # type: ignore[assignment]
    sent: list[Any] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    status: int = sent[0]["status"]
    return status


async def test_the_matrix(tmp_path: Path) -> None:
    """Every listener, peer, token and verb: served exactly when the rule by hand says so."""
    lines = "".join(f"{scope} {TOKENS[scope]}\n" for scope in RANK)
    bearers = Bearers(read_tokens(str(secret_file(tmp_path, lines))))
    metrics = Metrics(OPERATIONS)
    apps = {"service": _service(), "ops": operations_app(metrics, Health("ready"), Board(metrics.history))}
    policies: dict[str, Policy | None] = {"socket": peer_policy(GROUP), "private": peer_policy(), "tcp": bearers}
    policies["open"] = local_names("")  # ops on loopback
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    for method, path, needs, kind in _requests():
        for listener, policy in policies.items():
            if (listener == "open" and kind != "ops") or (listener in ("socket", "private") and kind == "ops"):
                continue
            guard = Guard(apps[kind], policy)
            for peer, token in itertools.product(PEERS, TOKENS):
                if listener in ("socket", "private"):
                    served = peer in ("self", "root") or (listener == "socket" and peer == "group")
                    expected = "served" if served else "403"
                elif listener == "open":
                    expected = "served"
                elif token not in RANK:
                    expected = "401"
                else:
                    expected = "served" if RANK.index(token) >= RANK.index(needs) else "403"
                status = await ask(guard, method, path, peer=PEERS[peer], token=TOKENS[token])
                # What is served is then found wanting parameters, or not.
                found = str(status) if status in (401, 403) else "served"
                assert (expected, True) == (found, status < 500), (listener, peer, token, method, path, status)
                seen[listener, found] += 1
    assert {("socket", "served"), ("socket", "403"), ("private", "served"), ("private", "403"), ("open", "served")} | {
        ("tcp", answer) for answer in ("served", "401", "403")
    } == set(seen)
    assert len(OPERATIONS) * 3 * len(PEERS) * len(TOKENS) < seen.total()


@pytest.mark.parametrize(
    ("hosts", "served"),
    [
        *((name, True) for name in ("localhost", "LOCALHOST:1", "127.0.0.1:9464", "127.8.9.1", "[::1]:80", "[::1]")),
        *((name, False) for name in ("evil.example:9464", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1", "")),
        *((name, False) for name in ("[localhost]", "::1", "localhost:x", "localhost\r\nHost: evil.example")),
    ],
)
async def test_only_names_of_this_machine_where_no_token_is_asked(serving: Serving, hosts: str, served: bool) -> None:
    """A page in a browser may lead its own name here (DNS rebinding), and would then read what is answered."""
    async with serving() as daemon:
        address = daemon.addresses["ops"].removeprefix("http://")
        for version, lines in (("1.1", f"Host: {hosts}\r\n"), ("1.0", f"Host: {hosts}\r\n"), ("1.0", ""), ("1.1", "")):
            reader, writer = await asyncio.open_connection(*address.split(":"))
            writer.write(f"GET /status.json HTTP/{version}\r\n{lines}Connection: close\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
            status = int(answer.split()[1])
            assert (served if lines else version == "1.0") == (status == 200), answer
            if status != 200:
                assert (421, True) == (status, b"listener without tokens" in answer)


def test_the_host_of_the_setting_is_one_of_them() -> None:
    scope = {"headers": [(b"host", b"Ops.Local:1")], "http_version": "1.1"}
    local_names("ops.local")(scope)
    with pytest.raises(HttpProblem):
        local_names("other.local")(scope)


async def test_nobody_is_served_whom_nobody_looked_at() -> None:
    """The API behind no policy at all serves nothing."""
    guard = Guard(_service())
    for method, path, _, kind in _requests():
        if kind == "service":
            assert 403 == await ask(guard, method, path, peer=PEERS["root"], token="a-token")


async def test_a_batch_refuses_what_its_caller_may_not_one_by_one(serving: Serving, folder: Path) -> None:
    tokens = secret_file(folder, "reader read r-token\nwriter write w-token\n")
    calls = [
        {"operation": "get_progression", "params": {"progression_id": "p"}},
        {"operation": "append_to_progression", "params": {"progression_id": "p", "message_id": "m"}},
    ]
    by: dict[str, Any] = {}
    async with (
        serving(listen__http=free_address(), auth__token_file=str(tokens)) as daemon,
        aiohttp.ClientSession(daemon.addresses["http"]) as http,
    ):
        for name in ("r-token", "w-token"):
            key = {"authorization": f"Bearer {name}"}
            answer = await (await http.post("/v1/batch", json={"operations": calls}, headers=key)).json()
            whole = await http.post("/v1/batch", json={"operations": calls, "atomic": True}, headers=key)
            by[name] = [(one["outcome"], one.get("error", {}).get("status")) for one in answer["results"]]
            by[name].append(whole.status)
    assert {
        "r-token": [("written", None), ("not_written", 403), 403],
        "w-token": [("written", None), ("written", None), 200],
    } == by


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("one\ntwo\n", "line 1 of auth.token_file"),
        ("read a\nroot b\n", "line 2 of auth.token_file"),
        ("a b c d\n", "line 1 of auth.token_file"),
        ("n/m read secretish\n", "a name is"),
        ("read same\nwrite same\n", "two meanings"),
        ("read \u00fc\n", "must be ASCII"),
        ("read \x01\n", "control character"),
    ],
)
def test_token_files_that_are_none(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        read_tokens(str(secret_file(tmp_path, text)))
    assert "secretish" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n\n"])
def test_a_file_that_holds_none_lets_nobody_in(tmp_path: Path, text: str) -> None:
    """A start without a listener that asks for tokens takes it; one with such a listener is told what is missing."""
    given = {"auth__token_file": str(secret_file(tmp_path, text))}
    assert () == check_listeners(fakes.settings_for(tmp_path, **given))
    for key in ("listen__http", "listen__ops"):
        with pytest.raises(InvalidInputError, match=f"{key.replace('__', '.')} .*token_file.*holds no token"):
            check_listeners(fakes.settings_for(tmp_path, **given, **{key: "192.0.2.1:1"}))


def test_token_files_that_everybody_reads(tmp_path: Path) -> None:
    for mode in (0o604, 0o602, 0o644):
        with pytest.raises(InvalidInputError, match="open to everybody"):
            read_tokens(str(secret_file(tmp_path, "read t\n", mode)))
    (token,) = read_tokens(str(secret_file(tmp_path, "bare\n", 0o440)))
    assert ("token", "admin") == (token.caller, token.scope)
    assert "bare" not in repr(token)


def test_callers_are_told_apart_by_name(tmp_path: Path) -> None:
    """Two tokens of one name are one caller, so that a rotation does not lose receipts."""
    bearers = Bearers(read_tokens(str(secret_file(tmp_path, "a write one\na write two\nb write three\nwrite four\n"))))
    found = []
    for secret in (b"one", b"two", b"three", b"four"):
        scope: dict[str, Any] = {"headers": [(b"authorization", b"Bearer " + secret)]}
        bearers(scope)
        found.append(caller_of(scope))
        assert caller_of(scope) == actor_of(scope)
    assert ["token:a", "token:a", "token:b", "token:write"] == found


class _Bound:
    """A bound socket that is nowhere."""

    family = socket.AF_INET

    def __init__(self, host: str) -> None:
        self.host = host

    def getsockname(self) -> tuple[str, int]:
        return self.host, 1

    def close(self) -> None:
        return None


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def _combinations(token: Path, certificate: Certificate) -> Iterator[tuple[dict[str, str], list[Any]]]:
    """Flags, and what sockets the service manager may hand over with each: names and addresses."""
    addresses = ("", "127.0.0.1:1", "0.0.0.0:1", "[::1]:1", "localhost:1")
    tls = {"listen.tls_cert": str(certificate.cert), "listen.tls_key": str(certificate.key)}
    handed = [[], *([(name, host)] for name in ("http", "ops", "odd") for host in ("127.0.0.1", "0.0.0.0", "::"))]
    parts: list[dict[str, str]] = [{}, {"listen.tls_cert": tls["listen.tls_cert"]}, tls]
    for http, ops, with_token, part in itertools.product(addresses, addresses, (False, True), parts):
        flags = {"listen.http": http, "listen.ops": ops, **part}
        yield flags | ({"auth.token_file": str(token)} if with_token else {}), handed


async def test_no_combination_of_settings_lets_strangers_in(
    tmp_path: Path, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is bound: off loopback it asks for a token and speaks TLS; the API asks for a token anywhere."""
    token = secret_file(tmp_path, "t0ken\n")
    given: list[tuple[str, Any]] = []
    # A name resolves to wherever it likes, and what is bound decides.
    monkeypatch.setattr("lionstated.api.listeners.bind_tcp", lambda host, port: _bound_of(_resolved(host)))
    monkeypatch.setattr("lionstated.api.listeners.inherited_sockets", lambda: given)
    monkeypatch.setattr("lionstated.api.listeners.bind_unix", lambda *a, **k: _bound_of("", socket.AF_UNIX))
    outcomes: collections.Counter[str] = collections.Counter()
    for flags, offered in _combinations(token, certificate):
        settings = load_settings(flags={**flags, "listen.socket": "s"}, environ=False)
        for handed in offered:
            given = [(name, _Bound(host)) for name, host in handed]
            try:
                listeners = Listeners.bind(settings)
            except InvalidInputError:
                outcomes["refused"] += 1
                continue
            outcomes["bound"] += 1
            for listener in listeners.all:
                local = listener.bound.sock.getsockname()[0] in ("127.0.0.1", "::1", "")
                assert local or listener.tls is not None, (flags, handed)
                if listener.kind == "socket":
                    assert listener.policy is not None
                elif listener.kind == "http" or not local:
                    # What that asks for is in the matrix.
                    assert listeners.bearers is listener.policy, (flags, handed)
                else:
                    assert listener.policy is not None, (flags, handed)
    assert 1500 == outcomes.total()
    assert min(outcomes.values()) > 200


def _resolved(host: str) -> str:
    return {"localhost": "192.0.2.7", "host.example": "192.0.2.8"}.get(host, host)


def _bound_of(host: str, family: int = socket.AF_INET) -> Any:
    class Bound:
        sock = _Bound(host)
        path = None

        def release(self) -> None:
            return None

    Bound.sock.family = family  # type: ignore[assignment]
    return Bound()


async def test_tls_and_token_are_renewed_on_reload(folder: Path, certificate: Certificate) -> None:
    """The listener answers over TLS only; after SIGHUP it has the new certificate and knows the new token alone."""
    token = secret_file(folder, "reader read old-token\n")
    mine = Certificate(folder / "c.pem", folder / "c.key")
    _put(certificate, mine)
    flags = {"listen__tls_cert": str(mine.cert), "listen__tls_key": str(mine.key), "auth__token_file": str(token)}
    settings = fakes.settings_for(folder, **flags, listen__http="127.0.0.1:0")
    daemon = Daemon(
        settings,
        operations=fakes.OPERATIONS,
        store_factory=fakes.factory(fakes.FakeStore()),
        read_settings=lambda: settings,
    )
    async with anyio.create_task_group() as group:
        await group.start(daemon.run)
        address = daemon.addresses["http"]
        assert address.startswith("https://")
        assert {"old-token": 200, "new-token": 401} == await _statuses(address, mine.cert)
        # A file that cannot be used leaves all as it was.
        secret_file(folder, "new-token\n", 0o644)
        daemon.reload()
        assert {"old-token": 200, "new-token": 401} == await _statuses(address, mine.cert)
        secret_file(folder, "new-token\n")
        _put(make_certificate(folder, "fresh"), mine)
        daemon.reload()
        assert {"old-token": 401, "new-token": 200} == await _statuses(address, mine.cert)
        reader, writer = await asyncio.open_connection(*address.removeprefix("https://").split(":"))
        writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: d\r\n\r\n")
        assert not (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        daemon.stop()


def _put(source: Certificate, target: Certificate) -> None:
    target.cert.write_bytes(source.cert.read_bytes())
    target.key.write_bytes(source.key.read_bytes())
    target.key.chmod(0o600)


async def _statuses(address: str, trusted: Path) -> dict[str, int]:
    context = ssl.create_default_context(cafile=str(trusted))
    found = {}
    async with aiohttp.ClientSession(address, connector=aiohttp.TCPConnector(ssl=context)) as http:
        for name in ("old-token", "new-token"):
            answer = await http.get("/openapi.json", headers={"authorization": f"Bearer {name}"})
            found[name] = answer.status
    return found


async def test_a_reload_says_what_it_changed(
    folder: Path, store: fakes.FakeStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line per setting; what cannot change stays, with a line too; passwords are in none."""
    from lionstated import logs

    logs.configure()
    before = fakes.settings_for(folder)
    asked = fakes.settings_for(
        folder,
        database__url="postgresql://u:hidden@h/d",
        log__level="debug",
        shutdown__drain_seconds="7",
        queue__max_operations="3",
    )
    taken: list[Settings] = []
    daemon = Daemon(
        before,
        operations=fakes.OPERATIONS,
        store_factory=fakes.factory(store, reload=taken.append),
        read_settings=lambda: asked,
    )
    async with anyio.create_task_group() as group:
        await group.start(daemon.run)
        daemon.reload()
        daemon.stop()
    text = capsys.readouterr().err
    lines = [json.loads(line) for line in text.splitlines()]
    told = {(one["event"], one["setting"]): one.get("now") for one in lines if "setting" in one}
    assert {
        ("setting_needs_restart", "database.url"): None,
        ("setting_needs_restart", "queue.max_operations"): None,
        ("setting_changed", "shutdown.drain_seconds"): "7.0",
        ("setting_changed", "log.level"): '"debug"',
    } == told
    assert "hidden" not in text
    assert (7.0, 10000) == (taken[0].shutdown.drain_seconds, taken[0].queue.max_operations)
    assert [taken[0]] == [daemon.settings]
