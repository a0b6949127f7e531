"""The JSON column type, on SQLite and by its processors on PostgreSQL."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, Dialect, create_engine, insert, null, select, text, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import StatementError
from sqlalchemy.schema import CreateTable

from lionstate.schema import Json, decode_json, encode_json, metadata
from lionstate.schema.conversation import messages
from lionstate.schema.evidence import admin_events
from lionstate.schema.own import progression_storage_state
from lionstate.schema.scheduling import schedule_runs


@pytest.fixture
def conn() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        metadata.create_all(connection, tables=[messages, admin_events, schedule_runs])
        yield connection
    engine.dispose()


def postgresql_dialect() -> Dialect:
    return make_url("postgresql+asyncpg://").get_dialect()()


def put(conn: Connection, details: Any) -> None:
    conn.execute(insert(admin_events).values(id="e", created_at=1.0, action="a", details=details))


def stored(conn: Connection) -> Any:
    return conn.execute(text("SELECT details FROM admin_events")).scalar_one()


def read(conn: Connection) -> Any:
    return conn.execute(select(admin_events.c.details)).scalar_one()


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"a": [1, 2.5, None, True]},
        "text",
        '{"holds": "json"}',
        "5",
        5,
        -2.5,
        True,
        "",
        "naïve ✓",
        "\ud800",
    ],
    ids=repr,
)
def test_round_trip(conn: Connection, value: Any) -> None:
    put(conn, value)
    assert value == read(conn)


def test_none_is_json_null_and_left_out_is_sql_null(conn: Connection) -> None:
    row = {"created_at": 1.0, "role": "r", "lion_class": 0, "content": None}
    conn.execute(insert(messages).values(id="bound", node_metadata=None, **row))
    conn.execute(insert(messages).values(id="absent", **row))
    conn.execute(insert(messages).values(id="null", node_metadata=null(), **row))
    found = conn.execute(text("SELECT id, content, node_metadata FROM messages ORDER BY id")).all()
    assert [("absent", "null", None), ("bound", "null", "null"), ("null", "null", None)] == [*map(tuple, found)]
    assert [None, None, None] == conn.execute(select(messages.c.node_metadata)).scalars().all()
    conn.execute(update(messages).values(node_metadata=None))
    assert 3 == conn.execute(text("SELECT count(*) FROM messages WHERE node_metadata = 'null'")).scalar_one()


def test_none_in_executemany(conn: Connection) -> None:
    rows = [
        {
            "id": str(i),
            "created_at": 1.0,
            "role": "r",
            "lion_class": 0,
            "content": value,
            "node_metadata": value,
        }
        for i, value in enumerate([None, {"a": 1}])
    ]
    conn.execute(insert(messages), rows)
    assert ["null", '{"a": 1}'] == conn.execute(text("SELECT content FROM messages ORDER BY id")).scalars().all()


def test_resume_packet_binds_none_as_sql_null(conn: Connection) -> None:
    values = {"id": "r", "trigger_context": {}, "action_kind": "agent", "action_args": {}}
    conn.execute(insert(schedule_runs).values(fired_at=1.0, created_at=1.0, resume_packet=None, **values))
    assert [None] == conn.execute(text("SELECT resume_packet FROM schedule_runs")).scalars().all()


def test_uuid_becomes_text(conn: Connection) -> None:
    uuid = UUID("12345678-1234-5678-1234-567812345678")
    put(conn, {"id": uuid})
    assert {"id": str(uuid)} == read(conn)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_numbers_without_json_form_are_refused(conn: Connection, value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_json({"a": [value]})
    with pytest.raises(StatementError) as caught:
        put(conn, {"a": [value]})
    assert isinstance(caught.value.orig, ValueError)


def test_values_without_json_form_are_refused() -> None:
    with pytest.raises(TypeError, match="type set cannot be stored"):
        encode_json({"a": {1}})


@pytest.mark.parametrize("raw", ["not json", "{", "", "NaN", '{"a": Infinity}', "[" * 100_000], ids=range(6))
def test_text_that_is_not_json_comes_back_as_stored(conn: Connection, raw: str) -> None:
    conn.execute(text("INSERT INTO admin_events VALUES ('e', 1, 'a', NULL, :raw, 'x')"), {"raw": raw})
    assert raw == read(conn)


def test_numeric_affinity_is_undone(conn: Connection) -> None:
    put(conn, 5)
    assert isinstance(stored(conn), int)
    assert 5 == read(conn)


def test_encoding_is_the_one_in_the_field() -> None:
    assert '{"text": "na\\u00efve", "n": 0}' == encode_json({"text": "naïve", "n": 0})
    assert "null" == encode_json(None)
    assert b"\x00" == decode_json(b"\x00")


def test_postgresql_decodes_once_in_the_driver() -> None:
    dialect = postgresql_dialect()
    assert Json().result_processor(dialect, None) is None
    bind = Json().bind_processor(dialect)
    assert ['"{}"', "null"] == [bind("{}"), bind(None)]


def test_postgresql_types() -> None:
    dialect = postgresql_dialect()
    assert "content JSON NOT NULL" in str(CreateTable(messages).compile(dialect=dialect))
    ddl = str(CreateTable(progression_storage_state).compile(dialect=dialect))
    assert "updated_at DOUBLE PRECISION NOT NULL" in ddl
    assert "generation BIGINT NOT NULL" in ddl
