"""Whatever is given to a writing method: it is stored as given, or refused and nothing has changed.

Generic over the operations table: a new operation is covered as soon as it is there.
"""

from __future__ import annotations

import asyncio
import base64
import os
import struct
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, note, settings
from hypothesis.internal.conjecture import providers

from lionstate import StateDB
from lionstate.errors import BackendError, StateError
from lionstate.operations import OPERATIONS
from lionstate.schema import RECORD_TABLES, Json
from tests.support.backends import database_of, open_postgresql, open_sqlite
from tests.support.postgres import PostgresServer
from tests.support.seeds import reseed, rows_of_all_tables
from tests.support.strategies import KNOWN, as_json, calls, schema_of_params

pytestmark = pytest.mark.timeout(300)

WRITES = sorted(name for name, entry in OPERATIONS.items() if entry.writes)
# Verbs of methods that store what they are given, and so must give it back.
STORING = [
    name
    for name in WRITES
    if name.startswith(
        ("create_", "insert_", "save_", "update_", "set_", "record_", "register_", "submit_", "enqueue_")
    )
]

Params = dict[str, Any]


class Probe:
    """A store with one row in every table, put back after every call that changed something."""

    def __init__(self, runner: asyncio.Runner, state: StateDB) -> None:
        self.runner = runner
        self.state = state
        self.accepted = 0
        self._rows: dict[str, list[str]] | None = None

    async def _run(self, script: Any) -> Any:
        async with self.state.transaction() as transaction:
            return await transaction.run(script)

    async def call(self, name: str, params: Params) -> tuple[bool, Any]:
        """Whether a call was accepted, and its result; a refused one leaves every row of every table."""
        if self._rows is None:
            await self._run(reseed)
            self._rows = await self._run(rows_of_all_tables)
        try:
            with warnings.catch_warnings():
                # A status without a reason takes the default one, and says that this is on its way out.
                warnings.simplefilter("ignore", DeprecationWarning)
                result = await getattr(self.state, name)(**params)
        except StateError as error:
            # The database's own words for what a check let through: to a caller a failure, not a refusal.
            assert not isinstance(error, BackendError), repr(error.__cause__)
            event(f"refused: {error.code}")
            assert self._rows == await self._run(rows_of_all_tables)
            return False, None
        if OPERATIONS[name].writes:
            self._rows = None
        self.accepted += 1
        event("accepted")
        return True, result


def _open(store: AbstractAsyncContextManager[StateDB]) -> Iterator[Probe]:
    with asyncio.Runner() as runner:
        probe = Probe(runner, runner.run(store.__aenter__()))
        yield probe
        runner.run(store.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def sqlite(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probe]:
    """A probe of a SQLite store."""
    yield from _open(open_sqlite(empty_store, tmp_path_factory.mktemp("properties") / "state.db"))


@pytest.fixture(scope="module")
def postgresql(postgres_18: PostgresServer) -> Iterator[Probe]:
    """A probe of a PostgreSQL store."""
    yield from _open(open_postgresql(database_of(postgres_18, "properties")))


# How a method that stores is read back: the reading method, where its name is not that of the writing one.
_READERS = {
    "set_session_provenance": "get_session",
    "update_artifact_verification": "get_session",
    "set_engine_run_lineage": "get_engine_run",
    "record_engine_run_outcome": "get_engine_run",
    "record_message": "get_message",
    "register_project": "get_project",
    "create_approval": "get_approval",
    "create_schedule_run_and_advance": "get_schedule_run",
    "submit_task": "get_schedule_run",
}
_JSON_COLUMNS = {column.name for table in RECORD_TABLES for column in table.columns if isinstance(column.type, Json)}
_COLUMNS = {"verification": "artifact_verification_json", "args": "action_args"}
# Columns that a method sets itself, whatever it is given, and words that are no columns.
_OWN = {"updated_at", "reason_code", "reason_summary", "reason_source", "reason_actor", "evidence_refs", "override"}
_OWN |= {"override_actor", "override_justification", "set_if_null"}


def _row_param(name: str) -> str | None:
    """The parameter that is a whole row."""
    properties = schema_of_params(name)["properties"]
    return next((key for key, schema in properties.items() if "x-table" in schema), None)


def _given(name: str, params: Params) -> Mapping[str, Any]:
    """What is to be stored, by column."""
    row = _row_param(name)
    values = params[row] if row is not None else params
    # The one word that is stored as another.
    kind = {"action_kind": "play"} if values.get("action_kind") == "playbook" and name == "submit_task" else {}
    return {_COLUMNS.get(key, key): value for key, value in {**values, **kind}.items()}


async def _stored(state: StateDB, name: str, params: Params, result: Any) -> Mapping[str, Any] | None:
    """The row that a call wrote; None where it has none."""
    special = _SPECIAL.get(name)
    if special is not None:
        found: Mapping[str, Any] | None = await special(state, params, result)
        return found
    reader = OPERATIONS[_READERS.get(name, f"get_{name.split('_', 1)[1]}")]
    key = reader.parameters[0].name
    row = _row_param(name)
    if row is not None:
        value = params[row]["id"]
    else:
        value = params[key] if key in params else result["id"] if isinstance(result, dict) else result
    if value is None:
        return None
    found = await getattr(state, reader.name)(value)
    return found


async def _definition(state: StateDB, params: Params, version: int) -> Any:
    return await state.get_definition(params["kind"], params["name"], version=version)


async def _event(state: StateDB, params: Params, event_id: str) -> Any:
    return next(row for row in await state.list_admin_events(limit=1000) if row["id"] == event_id)


async def _signal(state: StateDB, params: Params, seq: int) -> Any:
    (row,) = await state.get_session_signals_after(params["session_id"], seq - 1)
    return row


async def _tag(state: StateDB, params: Params, _result: bool) -> Any:
    (tag,) = set(await state.list_run_tags(params["session_id"])) & {params["tag"].strip()}
    return {"tag": tag} if tag == params["tag"] else None


async def _progression(state: StateDB, params: Params, _result: None) -> Any:
    ids = await state.get_progression(params["progression_id"])
    exists = await state.get_progression_generation(params["progression_id"]) is not None
    return {"collection": ids} if exists else None


_SPECIAL: dict[str, Any] = {
    "save_definition": _definition,
    "insert_admin_event": _event,
    "insert_session_signal": _signal,
    "create_run_tag": _tag,
    "create_progression": _progression,
    "set_progression": _progression,
}
# Not read back here: its conformance tests look at every column, and what it writes is not what it is given.
NOT_READ_BACK = {
    "enqueue_revival_heartbeat",
    "insert_messages",
    "register_heartbeat",
    "register_project",
    "set_session_user_label",
    "update_status",
}


def _assert_same(column: str, given: Any, found: Any) -> None:
    if column == "embedding" and given is not None:
        floats = base64.b64decode(given) if isinstance(given, str) else given
        if isinstance(given, (list, tuple)):
            floats = struct.pack(f"<{len(given)}f", *given)
        assert floats == struct.pack(f"<{len(found)}f", *found)
    elif column in _JSON_COLUMNS:
        assert as_json(given) == found, column
    elif isinstance(given, int) and isinstance(found, float) and abs(given) > 2**53:
        # A float column holds the nearest float.
        assert float(min(abs(given), 2**1023)) <= abs(found)
    elif isinstance(found, float) and isinstance(given, (int, float)):
        assert float(given) == found, column
    else:
        assert as_json(given) == found, column


async def store_and_read(probe: Probe, name: str, params: Params) -> None:
    """Call a method that stores, and compare what it was given with what can be read."""
    accepted, result = await probe.call(name, params)
    # False: a claim or a guard did not hold.
    if not accepted or result is False or name in NOT_READ_BACK:
        return
    given = _given(name, params)
    if name.startswith("create_") and KNOWN in (given.get("id"), given.get("progression_id")):
        return  # It exists and stays what it was.
    found = await _stored(probe.state, name, params, result)
    if found is None:
        # A missing row is silent, and a control is only taken by a session that is there and runs.
        silent = name.startswith(("update_", "set_", "record_")) or result is None or name in _SPECIAL
        assert silent, "nothing was stored"
        return
    skipped = _OWN | set(given.get("set_if_null") or ())
    for column, value in given.items():
        if column in found and column not in skipped:
            # None asks for a column's default; only a JSON column holds it as it is.
            if value is None and found[column] is not None:
                assert found[column] == [] or not isinstance(found[column], (dict, list)), f"{column} was None"
                continue
            _assert_same(column, value, found[column])


def test_every_method_that_stores_is_read_back() -> None:
    """A new one needs a reading method by the same noun, or a word here."""
    ways = _SPECIAL.keys() | _READERS.keys() | NOT_READ_BACK
    assert [] == [name for name in STORING if name not in ways and f"get_{name.split('_', 1)[1]}" not in OPERATIONS]


# Fewer examples than this may all be spoilt.
FEW = 10
# They want arguments that fit together, which no schema says, or the one row in another state.
ALL_REFUSED = {"ack_dispatch", "apply_schedule_set", "consume_approval", "retry_dispatch", "update_status"}


# Examples of which one is accepted; of most methods 18 are enough.
RARELY_ACCEPTED = {"create_schedule": 80, "insert_engine_run": 40}
# So many times the examples, other ones in every run.
_MORE = int(os.environ.get("LIONSTATE_MORE_EXAMPLES", "0"))


@pytest.fixture(autouse=True)
def same_calls_in_every_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without constants that hypothesis finds in modules: which ones a worker has imported decides what it draws."""
    if not _MORE:
        monkeypatch.setattr(providers, "_get_local_constants", providers.Constants)
    providers.CONSTANTS_CACHE.cache.clear()
    yield
    providers.CONSTANTS_CACHE.cache.clear()


def _try(probe: Probe, name: str, count: int) -> None:
    """The same calls in every run, unless more are asked for."""

    @settings(
        max_examples=count * max(1, _MORE),
        derandomize=not _MORE,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(params=calls(name))
    def check(params: Params) -> None:
        note(f"{name}(**{params!r})")
        probe.runner.run(store_and_read(probe, name, params) if name in STORING else probe.call(name, params))

    before = probe.accepted
    check()
    if count > FEW:
        assert probe.accepted > before or name in ALL_REFUSED, "not one call was accepted: this tests refusals only"


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_a_call_is_stored_or_changes_nothing_on_sqlite(sqlite: Probe, name: str) -> None:
    _try(sqlite, name, RARELY_ACCEPTED.get(name, 18) if OPERATIONS[name].writes else 6)


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_a_call_is_stored_or_changes_nothing_on_postgresql(postgresql: Probe, name: str) -> None:
    _try(postgresql, name, 5 if OPERATIONS[name].writes else 3)
