"""The ordered digest (ADR-0117 D3)."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lionstate.errors import InvalidInputError
from lionstate.progression.digest import Digest, digest_of, slices

TEXTS = st.text(st.characters(codec="utf-8"))
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def by_definition(ids: list[str]) -> str:
    hashed = hashlib.sha256()
    for message_id in ids:
        data = message_id.encode()
        hashed.update(len(data).to_bytes(8, "big") + data)
    return hashed.hexdigest()


def test_hundred_thousand_ids() -> None:
    ids = [hashlib.sha256(str(i).encode()).hexdigest()[:32] for i in range(100_000)]

    assert "765530b6f75b1458bfd074e3aad84525123276d1f3f7e45a5e5dc7cbb831cfb9" == digest_of(ids)


def test_empty_list() -> None:
    assert EMPTY == digest_of([])
    assert EMPTY == Digest().hexdigest()


@given(st.lists(TEXTS))
def test_is_the_definition(ids: list[str]) -> None:
    assert by_definition(ids) == digest_of(ids)


@given(st.integers(0, 300), st.lists(st.sampled_from("abc"), max_size=8))
def test_is_the_definition_for_ids_of_one_length(length: int, letters: list[str]) -> None:
    """Lengths above 127 make header bytes that are not ASCII."""
    ids = [letter * length for letter in letters]

    assert by_definition(ids) == digest_of(ids)


@given(st.lists(st.lists(TEXTS)))
def test_does_not_depend_on_the_cuts(pieces: list[list[str]]) -> None:
    digest = Digest()
    for piece in pieces:
        digest.update(iter(piece))
    whole = [message_id for piece in pieces for message_id in piece]

    assert by_definition(whole) == digest.hexdigest()
    assert len(whole) == digest.count


def test_slice_boundary() -> None:
    ids = [str(i) for i in range(20_001)]

    assert by_definition(ids) == digest_of(ids)


def test_frames_tell_lists_apart() -> None:
    assert 4 == len({digest_of(ids) for ids in (["ab"], ["a", "b"], ["b", "a"], ["ab", ""])})


@pytest.mark.parametrize("ids", [["secret", "\ud800secret"], ["secret", 1], "secret", b"secret"])
def test_refuses_what_has_no_utf8_form(ids: list[str]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        digest_of(ids)

    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@given(st.lists(TEXTS), st.integers(1, 5))
def test_slices(ids: list[str], size: int) -> None:
    cut = list(slices(ids, size))

    assert ids == [message_id for piece in cut for message_id in piece]
    assert all(0 < len(piece) <= size for piece in cut)
