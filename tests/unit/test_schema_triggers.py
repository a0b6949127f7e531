"""The fence and the delete trigger on SQLite (design decisions 21, 22)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import IntegrityError

from lionstate.schema import (
    delete_trigger_exists,
    fence_exists,
    install_delete_trigger,
    install_fence,
    metadata,
    remove_delete_trigger,
    remove_fence,
)


@pytest.fixture(params=["OFF", "ON"], ids=["foreign_keys_off", "foreign_keys_on"])
def conn(request: pytest.FixtureRequest) -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA foreign_keys = {request.param}")
        metadata.create_all(connection)
        yield connection
    engine.dispose()


def put(conn: Connection, name: str, *, authority: str | None, replacing: int = 0) -> None:
    conn.execute(text("INSERT INTO progressions VALUES (:id, 1.0, '[\"a\"]')"), {"id": name})
    if authority is not None:
        conn.execute(
            text(
                "INSERT INTO progression_storage_state"
                " (progression_id, phase, updated_at, generation, authority, replacing)"
                " VALUES (:id, 'blocked', 1.0, 7, :authority, :replacing)"
            ),
            {"id": name, "authority": authority, "replacing": replacing},
        )


def change(conn: Connection, name: str, collection: str = '["a","b"]') -> int:
    statement = text("UPDATE progressions SET collection = :value WHERE id = :id")
    return conn.execute(statement, {"value": collection, "id": name}).rowcount


@pytest.mark.parametrize("authority", ["items", "none"])
def test_fence_refuses_a_change(conn: Connection, authority: str) -> None:
    install_fence(conn)
    put(conn, "p", authority=authority)
    with pytest.raises(IntegrityError, match="progression is normalized; use lionstate") as caught:
        change(conn, "p")
    assert "lionstate.lionagi" in str(caught.value.orig)
    assert '["a"]' == conn.execute(text("SELECT collection FROM progressions")).scalar_one()


def test_fence_refuses_an_append_as_lionagi_sends_it(conn: Connection) -> None:
    install_fence(conn)
    put(conn, "p", authority="items")
    append = text(
        "UPDATE progressions SET collection = json_insert(collection, '$[#]', :mid) WHERE id = 'p'"
        " AND NOT EXISTS (SELECT 1 FROM json_each(collection) WHERE value = :mid)"
    )
    with pytest.raises(IntegrityError, match="normalized"):
        conn.execute(append, {"mid": "b"})


@pytest.mark.parametrize(("authority", "replacing"), [(None, 0), ("json", 0), ("items", 1), ("none", 1)])
def test_fence_lets_through(conn: Connection, authority: str | None, replacing: int) -> None:
    install_fence(conn)
    put(conn, "p", authority=authority, replacing=replacing)
    assert 1 == change(conn, "p")


def test_fence_lets_through_what_changes_nothing(conn: Connection) -> None:
    install_fence(conn)
    put(conn, "p", authority="items")
    assert 1 == change(conn, "p", '["a"]')
    assert 1 == conn.execute(text("UPDATE progressions SET created_at = 2.0")).rowcount


def test_fence_comes_and_goes(conn: Connection) -> None:
    assert not fence_exists(conn)
    remove_fence(conn)
    install_fence(conn)
    install_fence(conn)
    assert fence_exists(conn)
    remove_fence(conn)
    assert not fence_exists(conn)
    put(conn, "p", authority="items")
    assert 1 == change(conn, "p")


def test_delete_takes_own_rows_along(conn: Connection) -> None:
    install_delete_trigger(conn)
    assert delete_trigger_exists(conn)
    for name in ("p", "q"):
        put(conn, name, authority="items")
        for statement in (
            "INSERT INTO progression_items VALUES (:id, 0, 'a')",
            "INSERT INTO progression_sizes VALUES (:id, 5, 1, 1.0)",
            "INSERT INTO progression_activity VALUES (:id, 1, 1.0)",
            "INSERT INTO progression_orders VALUES (:id, 'hold', 'a', NULL, 1.0, NULL)",
            "INSERT INTO progression_proofs VALUES (:id, 7, 1, 1.0)",
        ):
            conn.execute(text(statement), {"id": name})
    conn.execute(text("DELETE FROM progressions WHERE id = 'p'"))
    own = ("items", "storage_state", "sizes", "activity", "orders", "proofs")
    for table in (f"progression_{name}" for name in own):
        assert ["q"] == conn.execute(text(f"SELECT progression_id FROM {table}")).scalars().all()


def test_delete_trigger_comes_and_goes(conn: Connection) -> None:
    assert not delete_trigger_exists(conn)
    install_delete_trigger(conn)
    install_delete_trigger(conn)
    assert delete_trigger_exists(conn)
    remove_delete_trigger(conn)
    assert not delete_trigger_exists(conn)
