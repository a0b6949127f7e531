"""What nobody has set up on the server is told with what to do about it, and nothing is changed."""

from __future__ import annotations

import pytest
from sqlalchemy import make_url

from lionstate import StateDB
from lionstate.dialects.sqlstates import error_of_state
from lionstate.errors import BackendUnavailableError
from tests.support.postgres import PostgresServer


@pytest.mark.parametrize(
    ("user", "database", "said"),
    [
        (None, "setup_none", r"does not exist: create it.*\(3D000\)"),
        ("setup_nobody", "setup_there", r"create it \(CREATE ROLE NAME LOGIN\).*\(28000\)"),
        ("setup_guest", "setup_there", r"lacks a right in the database: grant it.*\(42501\)"),
    ],
)
async def test_a_store_cannot_be_made(postgres_18: PostgresServer, user: str | None, database: str, said: str) -> None:
    for statement in ("DROP DATABASE IF EXISTS setup_there", "DROP ROLE IF EXISTS setup_guest"):
        postgres_18.execute(statement)
    postgres_18.create_database("setup_there")
    postgres_18.execute("CREATE ROLE setup_guest LOGIN")
    url = make_url(postgres_18.dsn(database))
    url = url if user is None else url.set(username=user)
    with pytest.raises(BackendUnavailableError, match=said):
        async with StateDB(url=url.render_as_string(hide_password=False)):
            pass


def test_a_wrong_password() -> None:
    """Servers of the tests trust everybody."""
    assert "refuses the password of the URL: correct it" in str(error_of_state("28P01"))
