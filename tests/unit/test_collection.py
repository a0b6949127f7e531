"""The JSON value: reads, appends to its end, prepared and parsed forms."""

import hashlib
import json
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lionstate.errors import InvalidInputError, MalformedCollectionError
from lionstate.progression import known_text
from lionstate.progression.collection import (
    ParsedCollection,
    append_text,
    check_new_id,
    element,
    encode,
    is_valid_new_id,
    parse_for_append,
    parse_readable,
    prepare,
)
from lionstate.progression.digest import digest_of
from lionstate.progression.known_text import KnownText
from lionstate.progression.strict import POSTGRESQL_MAX_ID_BYTES, decode_again, strict_verdict
from tests.support.collection_texts import (
    BY_NAME,
    NEARLY_JSON,
    NEW_IDS,
    VECTORS,
    readable,
    readable_texts,
    same,
)


def appended_tail(old_text: str, new_text: str) -> list[str] | None:
    """The own appends between two texts, as a store tells them that compares in memory."""
    known = KnownText.of(old_text)
    if known is None or not new_text.startswith(known.prefix):
        return None
    return known.tail(new_text[len(known.prefix) :])


def test_a_text_is_hashed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in one: characters of several bytes at the cuts, a lone surrogate, and a place before the end."""
    text = '["é😀", "m", "ü"]  '
    monkeypatch.setattr(known_text, "_PIECE_CHARS", 2)
    for end in range(len(text) + 1):
        size, found = known_text.hash_text(text, end)
        encoded = text[:end].encode()
        assert (len(encoded), hashlib.sha256(encoded).hexdigest()) == (size, found.hexdigest())
    with pytest.raises(UnicodeEncodeError):
        known_text.hash_text("[\ud800]", 8)
    assert 5 == known_text.hash_text("[\ud800]", 3, errors="surrogatepass")[0]


class TestVectors:
    def test_are_there(self) -> None:
        assert 33 == len(VECTORS) == len(BY_NAME)

    @pytest.mark.parametrize("name", BY_NAME)
    def test_strict(self, name: str) -> None:
        vector = BY_NAME[name]
        verdict = strict_verdict(vector["text"])

        assert vector["code"] == verdict.code
        assert vector["digest"] == verdict.digest
        if vector["code"] is None:
            assert vector["count"] == verdict.count
            assert vector["digest"] == digest_of(verdict.ids)
        else:
            assert [] == verdict.ids

    @pytest.mark.parametrize("name", BY_NAME)
    def test_readable(self, name: str) -> None:
        vector = BY_NAME[name]
        if vector["readable"]:
            assert vector["count"] == len(parse_readable(vector["text"]))
        else:
            with pytest.raises(MalformedCollectionError) as caught:
                parse_readable(vector["text"])
            assert vector["code"] == caught.value.reason

    @pytest.mark.parametrize("name", BY_NAME)
    def test_second_decoder(self, name: str) -> None:
        vector = BY_NAME[name]
        ids = decode_again(vector["text"])

        assert (vector["code"] is None) == (ids is not None)
        if ids is not None:
            assert vector["digest"] == digest_of(ids)

    @pytest.mark.parametrize("name", BY_NAME)
    def test_append_keeps_the_verdict(self, name: str) -> None:
        """fault 53: an append never rewrites a value into validity."""
        vector = BY_NAME[name]
        if not vector["readable"]:
            return
        grown = append_text(vector["text"], "new")

        assert same([*parse_readable(vector["text"]), "new"], parse_readable(grown))
        assert vector["code"] == strict_verdict(grown).code
        assert ["new"] == appended_tail(vector["text"], grown)


@given(st.lists(NEW_IDS))
def test_encode_round_trips(ids: list[str]) -> None:
    text = encode(ids)

    assert json.dumps(ids) == text
    assert ids == strict_verdict(text).ids == parse_readable(text)
    assert text == "[" + ", ".join(map(element, ids)) + "]"


class TestAppend:
    @given(readable_texts() | NEARLY_JSON, NEW_IDS)
    def test_adds_one_element_to_any_readable_text(self, text: str, message_id: str) -> None:
        old = readable(text)
        assume(old is not None)
        grown = append_text(text, message_id)
        end = len(text.rstrip(" \t\n\r")) - 1

        assert same([*(old or []), message_id], parse_readable(grown))
        assert grown.startswith(text[:end])
        assert grown.endswith(text[end:])
        assert strict_verdict(text).code == strict_verdict(grown).code

    @pytest.mark.parametrize(
        ("text", "grown"),
        [
            ("[]", '["x"]'),
            (" [ \n] ", ' [ \n"x"] '),
            ('["a"]', '["a", "x"]'),
            ('["a" ]\n', '["a" , "x"]\n'),
            ('["["]', '["[", "x"]'),
            ("[[]]", '[[], "x"]'),
            ("[[ ]\t]", '[[ ]\t, "x"]'),
            ("[NaN]", '[NaN, "x"]'),
        ],
    )
    def test_spelling(self, text: str, grown: str) -> None:
        assert grown == append_text(text, "x")

    @pytest.mark.parametrize("text", ["", "  ", "]", "{}", '["a"', "[] x", "null", "\u00a0"])
    def test_refuses_what_has_no_end_of_an_array(self, text: str) -> None:
        with pytest.raises(MalformedCollectionError):
            append_text(text, "x")

    def test_refuses_a_bad_id(self) -> None:
        with pytest.raises(InvalidInputError):
            append_text("[]", "")


class TestTail:
    @given(readable_texts(), st.lists(NEW_IDS, max_size=6))
    def test_finds_own_appends(self, text: str, ids: list[str]) -> None:
        grown = text
        for message_id in ids:
            grown = append_text(grown, message_id)

        assert ids == appended_tail(text, grown)

    @given(readable_texts(), st.lists(NEW_IDS, max_size=6))
    def test_records_the_grown_text_without_the_prefix(self, text: str, ids: list[str]) -> None:
        grown = text
        for message_id in ids:
            grown = append_text(grown, message_id)
        known = KnownText.of(text)
        if known is None:
            return
        encoded = grown.encode()

        assert (len(encoded), hashlib.sha256(encoded).hexdigest()) == known.record(grown[len(known.prefix) :])
        assert len(grown[len(known.prefix) :].encode()) <= known.most_rest_bytes

    @given(readable_texts(), readable_texts())
    def test_never_claims_a_foreign_change(self, old_text: str, new_text: str) -> None:
        tail = appended_tail(old_text, new_text)

        if tail is not None:
            assert same([*parse_readable(old_text), *tail], parse_readable(new_text))

    @pytest.mark.parametrize(
        ("old_text", "new_text"),
        [
            ('["a"]', '["b"]'),
            ('["a"]', '["a","x"]'),
            ('["a"]', '["a", "x" ]'),
            ('["a"]', '["a", 1]'),
            ('["a"]', '["a", "x",]'),
            ('["a"]', '["a", ""]'),
            ('["a"]', '["a", "\\u0000"]'),
            ('["a"]', '["a", "\\ud800"]'),
            ('["a"]', '["a", "é"]'),
            ('["a"]', '["a", "\\/"]'),
            ('["a"]', '["a", "b"], "c"]'),
            ('["a"]', '["a" "b"]'),
            ('["a"]', '["b", "x"]'),
            ('["a"]\n', '["a", "x"] '),
            ('["a"] ', '["a", "x"]'),
            ('["a", "b"]', '["a"]'),
            ('["a"]', '["a", ]'),
            ("[]", "[ ]"),
            ("[]", '[, "x"]'),
            ("", "[]"),
            ("[]", ""),
            ('["a"', '["a", "x"]'),
        ],
    )
    def test_anything_else_is_none(self, old_text: str, new_text: str) -> None:
        assert appended_tail(old_text, new_text) is None

    def test_at_most_a_thousand(self) -> None:
        old = encode(["a"])
        longest = "\x01" * 1_024

        assert [longest] * 1_000 == appended_tail(old, encode(["a", *[longest] * 1_000]))
        assert appended_tail(old, encode(["a", *["b"] * 1_001])) is None
        assert appended_tail(old, encode(["a", "x" * 7_000_000])) is None


class TestNewIds:
    GOOD = ("a", " ", "x" * 1_024, "é" * 512, "😀" * 256, "\x01", "\x7f", '"\\')
    BAD = (None, 1, b"a", "", "a\0b", "\ud800", "a\ude00", "x" * 1_025, "é" * 513, "😀" * 257)

    @pytest.mark.parametrize("message_id", GOOD)
    def test_good(self, message_id: str) -> None:
        check_new_id(message_id)
        assert is_valid_new_id(message_id)
        assert (message_id,) == prepare([message_id]).ids
        assert None is strict_verdict(append_text("[]", message_id)).code_for(POSTGRESQL_MAX_ID_BYTES)

    @pytest.mark.parametrize("message_id", BAD)
    def test_bad(self, message_id: Any) -> None:
        assert not is_valid_new_id(message_id)
        with pytest.raises(InvalidInputError) as caught:
            check_new_id(message_id)
        assert not message_id or str(message_id) not in str(caught.value)
        with pytest.raises(InvalidInputError, match="at position 2 is"):
            prepare(["a", "b", message_id])


class TestPrepare:
    @given(st.lists(NEW_IDS))
    def test_holds_what_is_written(self, ids: list[str]) -> None:
        prepared = prepare(iter(ids))

        assert tuple(ids) == prepared.ids
        assert len(ids) == prepared.count
        assert json.dumps(ids) == prepared.text
        assert len(prepared.text.encode()) == prepared.text_bytes
        assert hashlib.sha256(prepared.text.encode()).hexdigest() == prepared.text_sha256
        assert strict_verdict(prepared.text).digest == prepared.digest == digest_of(ids)

    @pytest.mark.parametrize("collection", [None, [], (), iter([])])
    def test_empty(self, collection: Any) -> None:
        assert ("[]", 0, 2) == (prepare(collection).text, prepare(None).count, prepare(None).text_bytes)

    @pytest.mark.parametrize("collection", ["secret", b"secret", 0, False, 5, object(), ""])
    def test_refuses_what_is_no_collection(self, collection: Any) -> None:
        with pytest.raises(InvalidInputError) as caught:
            prepare(collection)
        assert "secret" not in str(caught.value)

    def test_keeps_duplicates_and_shows_nothing(self) -> None:
        prepared = prepare(["secret", "secret"])

        assert ("secret", "secret") == prepared.ids
        assert "secret" not in repr(prepared)
        with pytest.raises(FrozenInstanceError):
            prepared.digest = ""  # type: ignore[misc]


class TestParsed:
    def test_contains_strings_only(self) -> None:
        parsed = parse_for_append('["a", 1, null, ["b"], {"c": 1}, NaN]')

        assert 6 == parsed.count
        assert [True, False, False, False] == [parsed.contains(found) for found in ("a", "1", "b", "c")]

    def test_refuses_as_readable_does(self) -> None:
        with pytest.raises(MalformedCollectionError) as caught:
            parse_for_append('{"a": 1}')
        assert "not_array" == caught.value.reason

    def test_hands_over_without_a_copy(self) -> None:
        parsed = parse_for_append('["a"]')
        elements = parsed.elements
        grown = append_text(parsed.text, "b")
        successor = parsed.extended(grown, ["b"])

        assert successor.elements is elements
        assert ["a", "b"] == parse_readable(successor.text) == successor.elements
        assert successor.contains("a")
        assert successor.contains("b")
        assert not successor.contains("c")

    def test_predecessor_is_spent(self) -> None:
        parsed = parse_for_append("[]")
        parsed.extended('["b"]', ["b"])

        for use in (lambda: parsed.count, lambda: parsed.contains("b"), lambda: parsed.extended("[]", [])):
            with pytest.raises(RuntimeError, match="handed over"):
                use()

    @given(st.lists(NEW_IDS), st.lists(st.lists(NEW_IDS, max_size=3), max_size=3))
    def test_is_the_parse_of_its_text(self, ids: list[str], appends: list[list[str]]) -> None:
        parsed: ParsedCollection = parse_for_append(encode(ids))
        for more in appends:
            text = parsed.text
            for message_id in more:
                text = append_text(text, message_id)
            parsed = parsed.extended(text, more)
        fresh = parse_for_append(parsed.text)

        assert fresh.elements == parsed.elements
        assert all(parsed.contains(message_id) for message_id in fresh.elements)
