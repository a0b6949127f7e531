"""The book-keeping of the kill tests: it must not overlook anything."""

from __future__ import annotations

import pytest

from tests.support.load import Load


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("found", "good"),
    [
        (["old", "a", "x", "b"], True),
        (["old", "a", "b", "?"], True),
        (["old", "a"], False),
        (["old", "b", "a"], False),
        (["old", "a", "b", "a"], False),
        (["a", "b"], False),
        (["old", "a", "b", "refused"], False),
        (["old", "a", "b", "nobody's"], False),
        (["old", "a", "b", "?", "?"], False),
    ],
)
async def test_every_loss_is_seen(found: list[str], good: bool) -> None:
    load = Load("unix:/nowhere", ["p"], writers=2)
    load.writers[0].acknowledged = [("p", "a"), ("p", "b")]
    load.writers[1].acknowledged = [("p", "x")] if "x" in found else []
    load.writers[1].unknown = {"?"}
    load.writers[1].refused = {"refused": "closed"}
    if good:
        load.check({"p": found}, {"p": ["old"]})
        return
    with pytest.raises(AssertionError):
        load.check({"p": found}, {"p": ["old"]})
