"""What is repeated of SQLite's error texts."""

from __future__ import annotations

import sqlite3

import pytest

from lionstate.dialects import dialect_named
from lionstate.dialects.sqlite_words import said
from lionstate.schema.ddl import FENCE_MESSAGE


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("INSERT INTO t VALUES (NULL, 1)", "NOT NULL constraint failed: t.a"),
        ("INSERT INTO t VALUES ('SECRET', -1)", "CHECK constraint failed: positive"),
        ("INSERT INTO t VALUES ('SECRET', 'fire')", "SQLITE_CONSTRAINT_TRIGGER"),
        ("INSERT INTO t VALUES ('SECRET', 'fence')", FENCE_MESSAGE),
        ("SELECT json_extract('{}', 'SECRET text')", "SQLITE_ERROR"),
        ("SELECT json_extract('SECRET', '$')", "malformed JSON"),
        ("SELECT 'a' 'SECRET text' FROM FROM", "syntax error"),
        ("SELECT * FROM absent", "no such table: absent"),
        ("SELECT CAST(x'534543524554ff' AS TEXT) AS c", "OperationalError"),
    ],
)
def test_only_fixed_words_and_names_of_the_schema(statement: str, expected: str) -> None:
    driver = sqlite3.connect(":memory:")
    driver.execute("CREATE TABLE t (a TEXT NOT NULL, b INTEGER CONSTRAINT positive CHECK (b <> -1))")
    driver.execute(
        "CREATE TRIGGER g BEFORE INSERT ON t WHEN new.b = 'fire' BEGIN SELECT RAISE(ABORT, 'SECRET text'); END"
    )
    driver.execute(
        f"CREATE TRIGGER f BEFORE INSERT ON t WHEN new.b = 'fence' BEGIN SELECT RAISE(ABORT, '{FENCE_MESSAGE}'); END"
    )
    with pytest.raises(sqlite3.Error) as caught:
        driver.execute(statement).fetchall()
    driver.close()
    assert expected == said(caught.value)
    assert "SECRET" not in str(dialect_named("sqlite").classify_error(caught.value))
