"""What a choice of columns reads, and how much there is to decode."""

from __future__ import annotations

from lionstate.records.message_forms import form_of


def test_columns_asked_for_in_any_order_are_one_query() -> None:
    assert ("content", "role") == form_of(("role", "content")).read == form_of(("content", "role")).read
    assert ("id", "content", "role") == form_of(("role", "content"), by_id=True).read
    assert form_of(None) is form_of(None, by_id=True)


def test_the_size_is_that_of_large_values_that_were_read() -> None:
    """A number, which SQLite stores as such, and what is absent have none."""
    form = form_of(("embedding", "role", "node_metadata"))
    rows = [("x" * 1_000, b"1234", "user", 0, 1), (5, None, "user", 1, 1), (None, None, "user", 2, 1)]
    assert 3 * 64 + 1_000 + 4 == form.size_of(rows)
    assert 64 == form_of(("role", "id")).size_of([("m" * 1_000, "user", 0, 1)])
