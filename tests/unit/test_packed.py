"""Packed ids behave as the list they stand for."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lionstate.progression import strict
from lionstate.progression.packed import PackedIds

IDS = st.lists(st.text(max_size=5), max_size=30)


def packed(ids: list[str]) -> PackedIds:
    """The same ids, packed."""
    return PackedIds("".join(ids), list(map(len, ids)))


@given(IDS, st.integers(-35, 35), st.integers(-35, 35), st.integers(1, 4))
def test_they_read_like_a_list(ids: list[str], start: int, stop: int, step: int) -> None:
    found = packed(ids)
    assert (ids, ids, len(ids)) == (list(found), found[:], len(found))
    assert ids[start:stop:step] == found[start:stop:step]
    assert list(reversed(ids)) == list(reversed(found))
    if -len(ids) <= start < len(ids):
        assert ids[start] == found[start]
    else:
        with pytest.raises(IndexError):
            found[start]
    assert ids == list(pickle.loads(pickle.dumps(found)))


def test_a_large_value_has_the_same_verdict_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps([f"ä{number}" for number in range(1_000)])
    plain = strict.strict_verdict(text)
    monkeypatch.setattr(strict, "_PACKED_CHARS", 10)
    found = strict.strict_verdict(text)
    assert isinstance(found.ids, PackedIds)
    assert (plain.ids, plain.digest, plain.max_id_bytes, 1_000) == (
        list(found.ids),
        found.digest,
        found.max_id_bytes,
        found.count,
    )
    assert plain.digest == strict.digest_again(text)
    assert strict.digest_again("[") is None
