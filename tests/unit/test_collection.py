"""The JSON value: readable and strict verdicts, both decoders, appends to its end, prepared and parsed
forms."""

import hashlib
import json
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from lionstate.errors import BlockedCode, InvalidInputError, MalformedCollectionError
from lionstate.progression import strict
from lionstate.progression.collection import (
    ParsedCollection,
    append_text,
    appended_tail,
    check_new_id,
    element,
    encode,
    is_valid_new_id,
    parse_for_append,
    parse_readable,
    prepare,
)
from lionstate.progression.digest import digest_of
from lionstate.progression.strict import POSTGRESQL_MAX_ID_BYTES, decode_again, strict_verdict

VECTORS = json.loads((Path(__file__).parent.parent / "fixtures/vectors/collections.json").read_text("utf-8"))
BY_NAME = {vector["name"]: vector for vector in VECTORS}

NEW_IDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)
SPACE = st.text(" \t\n\r", max_size=3)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def readable_texts(draw: st.DrawFn) -> str:
    """Arrays as any writer may have left them: odd whitespace, raw or escaped characters, any members."""
    members = draw(st.lists(st.text() | JSON_VALUES, max_size=5))
    written = [json.dumps(member, ensure_ascii=draw(st.booleans())) for member in members]
    inner = ",".join(f"{draw(SPACE)}{member}{draw(SPACE)}" for member in written) or draw(SPACE)
    return f"{draw(SPACE)}[{inner}]{draw(SPACE)}"


# Random text almost never is JSON: this alphabet of fragments often nearly is.
FRAGMENTS = [
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    '"',
    "a",
    "\\",
    "\\u0000",
    "\\ud83d",
    "\\ude00",
    "\\n",
    "\0",
    "\n",
    " ",
]
FRAGMENTS += [
    "\x0b",
    "\u00a0",
    "\ufeff",
    "\x7f",
    "\u2028",
    "é",
    "😀",
    "1",
    "-",
    "0",
    ".5",
    "e9",
    "NaN",
    "Infinity",
]
FRAGMENTS += [
    "-Infinity",
    "null",
    "true",
    "'",
    "//",
    "/*",
    '"b"',
    '["c"]',
    "\\x41",
    "\\/",
    "\\u00",
    "\ud800",
    "\ude00",
]
NEARLY_JSON = st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join)
ANY_TEXT = st.text() | NEARLY_JSON | NEARLY_JSON.map(lambda inner: f'["{inner}"]') | readable_texts()


def same(left: object, right: object) -> bool:
    """Compare with NaN equal to itself, and 1 unequal to 1.0 and true."""
    return repr(left) == repr(right)


def readable(text: object) -> list[Any] | None:
    try:
        return parse_readable(text)
    except MalformedCollectionError:
        return None


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


class TestStrict:
    def test_bad_ids_behind_many_good_ones(self) -> None:
        """fault 50: an escaped NUL or a lone surrogate is found behind many good ids; a good pair passes."""
        good = ", ".join(f'"{i:032x}"' for i in range(90_000))

        assert BlockedCode.NUL_IN_ID == strict_verdict(f'[{good}, "a\\u0000"]').code
        assert BlockedCode.LONE_SURROGATE == strict_verdict(f'[{good}, "\\ud83d"]').code
        assert BlockedCode.LONE_SURROGATE == strict_verdict(f'[{good}, "\\ude00\\ud83d"]').code
        assert 90_001 == strict_verdict(f'[{good}, "\\ud83d\\ude00"]').count

    @pytest.mark.parametrize(
        "text",
        [
            "['a','b',]",
            '["a" /* b */]',
            '["a"] // b',
            '["a", NaN]',
            "[Infinity]",
            "[-Infinity]",
            '["a\nb"]',
            '["a\tb"]',
            '["a\0b"]',
            '\ufeff["a"]',
            '["a"]\0',
            '["a"]\u00a0',
            '["a"]\x0b',
            '["a"]\x0c',
            '["a"] []',
            "[01]",
            "[+1]",
            "[.5]",
            "[1.]",
            "[0x1]",
            "[\u0661]",
            '["\\u12"]',
            '["\\u+123"]',
            '["\\u\u0661234"]',
            '["\\U00000041"]',
            "[,]",
            "[",
            '{"a": NaN}',
            '{"a": 1,}',
            "True",
        ],
    )
    def test_json5_and_other_leniency(self, text: str) -> None:
        """fault 53: what lenient JSON functions accept has one verdict here."""
        assert BlockedCode.MALFORMED_JSON == strict_verdict(text).code
        assert decode_again(text) is None

    @pytest.mark.parametrize(
        "value",
        [None, b'["a"]', bytearray(b"[]"), memoryview(b"[]"), '["a"]'.encode("utf-16"), 5, 1.5, ["a"]],
    )
    def test_not_text(self, value: object) -> None:
        assert BlockedCode.NOT_TEXT == strict_verdict(value).code
        assert decode_again(value) is None
        with pytest.raises(MalformedCollectionError) as caught:
            parse_readable(value)
        assert "not_text" == caught.value.reason

    @pytest.mark.parametrize(
        ("text", "code"),
        [
            ('[1, "\\u0000", "\\ud800"]', "non_string"),
            ('["\\ud800", "\\u0000"]', "nul_in_id"),
            ('["\\u0000", NaN]', "malformed_json"),
            ('{"a": [1', "malformed_json"),
            ('["\ud800"]', "lone_surrogate"),
            ("[[]]", "non_string"),
            ('[{"a": 1, "a": 2}]', "non_string"),
            ("[1e999]", "non_string"),
        ],
    )
    def test_first_of_several_codes(self, text: str, code: str) -> None:
        assert code == strict_verdict(text).code

    @pytest.mark.parametrize("digits", [4_300, 4_301, 100_000])
    def test_huge_number_is_a_verdict(self, digits: int) -> None:
        text = f"[{'1' * digits}]"

        assert BlockedCode.NON_STRING == strict_verdict(text).code
        if digits > 4_300:
            with pytest.raises(MalformedCollectionError) as caught:
                parse_readable(text)
            assert "non_string" == caught.value.reason

    @pytest.mark.parametrize("depth", [10, 900, 1_000, 100_000])
    @pytest.mark.parametrize(
        ("begin", "middle", "end", "code"),
        [
            ("[", "", "]", "non_string"),
            ("[", '1, {}, {"a": [true], "b": -1.5e+9}', "]", "non_string"),
            ("[", "'a'", "]", "malformed_json"),
            ("[", "1 1", "]", "malformed_json"),
            ("[", "1,", "]", "malformed_json"),
            ("[", "}", "]", "malformed_json"),
            ("[", '{"a"}', "]", "malformed_json"),
            ("[", "{1: 2}", "]", "malformed_json"),
            ("[", '{"a":}', "]", "malformed_json"),
            ("[", '{"a": 1,}', "]", "malformed_json"),
            ("[", "NaN", "]", "malformed_json"),
            ("[", "", "", "malformed_json"),
            ("[", "", "}", "malformed_json"),
            ('{"a":', "1", "}", "not_array"),
            ('{"a":', "", "}", "malformed_json"),
        ],
    )
    def test_depth_does_not_change_the_verdict(
        self, depth: int, begin: str, middle: str, end: str, code: str
    ) -> None:
        text = f" {begin * depth}{middle}{end * depth} "

        assert code == strict_verdict(text).code
        assert decode_again(text) is None

    def test_too_deep_to_read_is_an_error_of_ours(self) -> None:
        with pytest.raises(MalformedCollectionError) as caught:
            parse_readable("[" * 100_000 + "]" * 100_000)
        assert "non_string" == caught.value.reason

    def test_junk_behind_a_deep_value(self) -> None:
        assert BlockedCode.MALFORMED_JSON == strict_verdict("[" * 5_000 + "]" * 5_000 + "[]").code

    @pytest.mark.parametrize(
        ("message_id", "length"),
        [("x" * 2_000, 2_000), ("x" * 2_001, 2_001), ("é" * 1_000, 2_000), ("é" * 1_001, 2_002)],
    )
    def test_length_counts_by_backend(self, message_id: str, length: int) -> None:
        verdict = strict_verdict(encode(["a", message_id]))

        assert length == verdict.max_id_bytes
        assert verdict.code_for(None) is None
        expected = BlockedCode.ID_TOO_LONG if length > 2_000 else None
        assert expected == verdict.code_for(POSTGRESQL_MAX_ID_BYTES)

    def test_length_does_not_hide_another_code(self) -> None:
        assert BlockedCode.NUL_IN_ID == strict_verdict(f'["\\u0000{"x" * 3000}"]').code_for(2_000)

    def test_verdict_shows_no_ids(self) -> None:
        assert "secret" not in repr(strict_verdict('["secret"]'))


@given(ANY_TEXT)
@example('["\\ud83d\\ude00"]')
@example('["\ud83d"]')
@example('["a"]\0')
def test_decoders_agree(text: str) -> None:
    verdict = strict_verdict(text)
    again = decode_again(text)

    assert (verdict.ids if verdict.code is None else None) == again
    if verdict.code is None:
        assert verdict.ids == json.loads(text)
        assert digest_of(verdict.ids) == verdict.digest
        assert max((len(found.encode()) for found in verdict.ids), default=0) == verdict.max_id_bytes


@given(NEARLY_JSON | readable_texts())
@example("[" * 50)
@example('{"a": [1, {"b": null}]}')
def test_the_iterative_grammar_agrees_with_the_parser(text: str) -> None:
    assert (strict_verdict(text).code is not BlockedCode.MALFORMED_JSON) == strict._is_json(text)


@given(ANY_TEXT)
def test_migratable_is_readable(text: str) -> None:
    if strict_verdict(text).code is None:
        assert readable(text) == strict_verdict(text).ids
    if readable(text) is None:
        assert strict_verdict(text).code is not None


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


def test_decoders_share_no_parser() -> None:
    assert isinstance(strict._array_of_text, msgspec.json.Decoder)
    assert strict._decode.__module__.startswith("json")
