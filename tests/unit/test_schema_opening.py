"""Which stores are opened, what an open writes, and which are refused (design decision 32)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event, text

from lionstate.errors import ForeignLineageError, SchemaError, SchemaTooNewError, UnrecognizedStoreError
from lionstate.schema import (
    OWN_SCHEMA_VERSION,
    OWN_TABLES,
    RECORD_TABLES,
    OpenReport,
    StoreKind,
    apply_schema,
    delete_trigger_exists,
    fence_exists,
    inspect_store,
    normalized_default,
    own_tables_exist,
    read_own_version,
    record_normalized_default,
    schema_complete,
)

FIXTURE = Path(__file__).parents[1] / "fixtures" / "lionagi-0.36.0-small.db"
NOW = 1_700_000_000.5


@pytest.fixture
def empty() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    with engine.begin() as conn:
        yield conn
    engine.dispose()


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Connection]:
    copy = tmp_path / "real.db"
    shutil.copyfile(FIXTURE, copy)
    engine = create_engine(f"sqlite:///{copy}")
    with engine.begin() as conn:
        yield conn
    engine.dispose()


def open_store(conn: Connection, *, lionagi_compatible: bool = False) -> OpenReport:
    return apply_schema(conn, inspect_store(conn), lionagi_compatible=lionagi_compatible, now=NOW)


def meta(conn: Connection) -> dict[str, str]:
    return {key: value for key, value in conn.execute(text("SELECT key, value FROM schema_meta"))}


def set_meta(conn: Connection, **rows: str | None) -> None:
    """Set rows of schema_meta; None removes one."""
    for key, value in rows.items():
        conn.execute(text("DELETE FROM schema_meta WHERE key = :key"), {"key": key})
        if value is not None:
            conn.execute(text("INSERT INTO schema_meta VALUES (:key, :value)"), {"key": key, "value": value})


def objects(conn: Connection) -> list[Any]:
    return [tuple(row) for row in conn.execute(text("SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2"))]


def dump(conn: Connection) -> list[str]:
    return list(conn.connection.driver_connection.iterdump())  # type: ignore[union-attr]


class TestNewStore:
    def test_gets_everything(self, empty: Connection) -> None:
        assert StoreKind.NEW is inspect_store(empty)
        assert OpenReport(StoreKind.NEW, created_own=True, missing_tables=()) == open_store(empty)
        tables = {name for kind, name, _ in objects(empty) if kind == "table"}
        assert {table.name for table in (*RECORD_TABLES, *OWN_TABLES)} == tables
        assert own_tables_exist(empty)
        assert delete_trigger_exists(empty)
        assert not fence_exists(empty)

    def test_rows(self, empty: Connection) -> None:
        open_store(empty)
        assert {
            "version": "4",
            "lineage": "lionstate",
            "created_at": "1700000000",
            "lionstate.schema_version": str(OWN_SCHEMA_VERSION),
        } == meta(empty)
        types = [tuple(row) for row in empty.execute(text("SELECT * FROM message_types ORDER BY type_id"))]
        assert [(0, "__unknown__"), (5, "lionagi.protocols.messages.action_response.ActionResponse")] == [
            types[0],
            types[5],
        ]
        assert 6 == len(types)
        assert normalized_default(empty)

    def test_message_types_equal_a_real_store(self, empty: Connection, real: Connection) -> None:
        open_store(empty)
        query = text("SELECT type_id, lion_class FROM message_types ORDER BY type_id LIMIT 6")
        assert real.execute(query).all() == empty.execute(query).all()

    def test_lionagi_compatible(self, empty: Connection) -> None:
        open_store(empty, lionagi_compatible=True)
        assert ("4", "lionagi") == (meta(empty)["version"], meta(empty)["lineage"])
        assert not normalized_default(empty)
        assert StoreKind.LIONAGI is inspect_store(empty)

    def test_opens_again_as_its_own(self, empty: Connection) -> None:
        open_store(empty)
        before = dump(empty)
        assert OpenReport(StoreKind.LIONSTATE, created_own=False, missing_tables=()) == open_store(empty)
        assert before == dump(empty)

    def test_in_a_file_with_tables_of_lionagi_stays_open_to_lionagi(self, empty: Connection) -> None:
        empty.execute(text("CREATE TABLE studio_operator_turns (id TEXT)"))
        assert StoreKind.NEW is inspect_store(empty)
        open_store(empty)
        assert "lionagi" == meta(empty)["lineage"]
        assert not normalized_default(empty)

    def test_refuses_known_names_of_another_shape(self, empty: Connection) -> None:
        empty.execute(text("CREATE TABLE sessions (id TEXT, token TEXT)"))
        before = objects(empty)
        with pytest.raises(UnrecognizedStoreError, match="sessions exists without the columns cc_session_id"):
            open_store(empty)
        assert before == objects(empty)

    def test_another_process_was_first(self, empty: Connection) -> None:
        seen = inspect_store(empty)
        open_store(empty)
        before = dump(empty)
        report = apply_schema(empty, seen, lionagi_compatible=True, now=NOW + 5)
        assert OpenReport(StoreKind.LIONSTATE, created_own=False, missing_tables=()) == report
        assert before == dump(empty)


class TestExistingStore:
    def test_real_store_keeps_tables_indexes_and_rows(self, real: Connection) -> None:
        before, rows = objects(real), meta(real)
        assert StoreKind.LIONAGI is inspect_store(real)
        assert OpenReport(StoreKind.LIONAGI, created_own=True, missing_tables=()) == open_store(real)
        after = objects(real)
        assert before == [entry for entry in after if entry in before]
        own = {table.name for table in OWN_TABLES}
        added = {entry[1] for entry in after if entry not in before}
        expected = own | {index.name for table in OWN_TABLES for index in table.indexes}
        expected |= {"lionstate_progressions_delete"}
        assert expected == {name for name in added if not name.startswith("sqlite_autoindex_")}
        assert {**rows, "lionstate.schema_version": str(OWN_SCHEMA_VERSION)} == meta(real)
        assert not normalized_default(real)
        assert not fence_exists(real)

    def test_opening_again_writes_nothing(self, real: Connection) -> None:
        assert not schema_complete(real, inspect_store(real))
        open_store(real)
        statements: list[str] = []

        def note(*args: Any) -> None:
            statements.append(args[2].lstrip().split()[0].upper())

        event.listen(real, "before_cursor_execute", note)
        assert schema_complete(real, inspect_store(real))
        assert OpenReport(StoreKind.LIONAGI, created_own=False, missing_tables=()) == open_store(real)
        assert {"SELECT", "PRAGMA"} == set(statements)

    def test_missing_tables_are_named_and_left_missing(self, real: Connection) -> None:
        real.execute(text("DROP TABLE dispatch_outbox"))
        assert ("dispatch_outbox",) == open_store(real).missing_tables
        assert ("dispatch_outbox",) == open_store(real).missing_tables

    def test_a_lost_trigger_or_side_table_comes_back(self, real: Connection) -> None:
        open_store(real)
        real.execute(text("DROP TRIGGER lionstate_progressions_delete"))
        assert open_store(real).created_own
        real.execute(text("DROP TABLE progression_sizes"))
        assert open_store(real).created_own
        assert own_tables_exist(real)

    @pytest.mark.parametrize("table", ["progression_items", "progression_storage_state"])
    def test_lost_items_are_not_replaced_by_an_empty_table(self, real: Connection, table: str) -> None:
        open_store(real)
        real.execute(text(f"DROP TABLE {table}"))
        with pytest.raises(UnrecognizedStoreError, match=f"is recorded and {table} missing"):
            open_store(real)

    def test_own_names_in_another_shape_are_refused(self, real: Connection) -> None:
        real.execute(text("CREATE TABLE progression_storage_state (progression_id TEXT, phase TEXT)"))
        before = objects(real)
        with pytest.raises(UnrecognizedStoreError, match="progression_storage_state exists without"):
            open_store(real)
        assert before == objects(real)

    def test_before_the_first_open_there_is_no_own_version(self, real: Connection, empty: Connection) -> None:
        assert read_own_version(empty) is None
        assert read_own_version(real) is None
        assert not own_tables_exist(real)
        open_store(real)
        assert OWN_SCHEMA_VERSION == read_own_version(real)

    def test_unknown_tables_are_left_alone(self, real: Connection) -> None:
        real.execute(text("CREATE TABLE somebody_elses (id TEXT)"))
        open_store(real)
        assert ("table", "somebody_elses", "CREATE TABLE somebody_elses (id TEXT)") in objects(real)

    def test_normalized_default_is_replaced(self, real: Connection) -> None:
        open_store(real)
        for enabled in (True, False):
            record_normalized_default(real, enabled=enabled, now=NOW, actor="operator", reason="r")
            assert enabled is normalized_default(real)


@pytest.mark.parametrize(
    "rows",
    [
        {"version": "3"},
        {"version": "junk"},
        {"version": None},
        {"lineage": None},
        {"lineage": None, "version": "1"},
    ],
    ids=str,
)
def test_lionagi_stores_that_open(real: Connection, rows: dict[str, str | None]) -> None:
    set_meta(real, **rows)
    before = meta(real)
    assert StoreKind.LIONAGI is open_store(real).kind
    assert {**before, "lionstate.schema_version": str(OWN_SCHEMA_VERSION)} == meta(real)


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ({"version": "5"}, SchemaTooNewError),
        ({"version": "10"}, SchemaTooNewError),
        ({"version": "9" * 30}, SchemaTooNewError),
        ({"version": "5", "lineage": None}, SchemaTooNewError),
        ({"lionstate.schema_version": str(OWN_SCHEMA_VERSION + 1)}, SchemaTooNewError),
        ({"lineage": "lionstate", "lionstate.schema_version": str(OWN_SCHEMA_VERSION + 1)}, SchemaTooNewError),
        ({"lineage": "another"}, ForeignLineageError),
        ({"lineage": "another", "version": "9"}, ForeignLineageError),
        ({"lineage": ""}, ForeignLineageError),
        ({"lineage": None, "version": None}, UnrecognizedStoreError),
        ({"lineage": None, "version": "junk"}, UnrecognizedStoreError),
        ({"lineage": None, "version": "0"}, UnrecognizedStoreError),
        ({"lineage": None, "version": "-1"}, UnrecognizedStoreError),
        ({"lionstate.schema_version": "junk"}, UnrecognizedStoreError),
    ],
    ids=str,
)
def test_refused(real: Connection, rows: dict[str, str | None], error: type[SchemaError]) -> None:
    set_meta(real, **rows)
    before = dump(real)
    with pytest.raises(error):
        open_store(real)
    assert before == dump(real)


def test_refuses_a_version_without_sessions(empty: Connection) -> None:
    empty.execute(text("CREATE TABLE schema_meta (key TEXT, value TEXT)"))
    set_meta(empty, version="4")
    with pytest.raises(UnrecognizedStoreError):
        inspect_store(empty)


@pytest.mark.parametrize("name", ["users", "Sessions", "progression_items"])
def test_refuses_unknown_tables_without_schema_meta(empty: Connection, name: str) -> None:
    empty.execute(text(f"CREATE TABLE {name} (id TEXT)"))
    with pytest.raises(UnrecognizedStoreError, match="no schema_meta, and 1 tables"):
        inspect_store(empty)


def test_refuses_a_schema_meta_of_another_shape(empty: Connection) -> None:
    empty.execute(text("CREATE TABLE schema_meta (version INTEGER)"))
    with pytest.raises(UnrecognizedStoreError, match="another shape"):
        inspect_store(empty)
