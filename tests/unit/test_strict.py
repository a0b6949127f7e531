"""The strict verdict on a collection, and the second decoder."""

import json

import msgspec
import pytest
from hypothesis import example, given

from lionstate.errors import BlockedCode, MalformedCollectionError
from lionstate.progression import strict
from lionstate.progression.collection import (
    encode,
    parse_readable,
)
from lionstate.progression.digest import digest_of
from lionstate.progression.strict import POSTGRESQL_MAX_ID_BYTES, decode_again, strict_verdict
from tests.support.collection_texts import ANY_TEXT, NEARLY_JSON, readable, readable_texts


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
            ("[", "1", "}", "malformed_json"),
            ('{"a":', "1", "]", "malformed_json"),
            ("[", "", "", "malformed_json"),
            ("[", "", "}", "malformed_json"),
            ('{"a":', "1", "}", "not_array"),
            ('{"a":', "", "}", "malformed_json"),
        ],
    )
    def test_depth_does_not_change_the_verdict(self, depth: int, begin: str, middle: str, end: str, code: str) -> None:
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
@example("[1}")
@example("[] []")
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


def test_decoders_share_no_parser() -> None:
    assert isinstance(strict._array_of_text, msgspec.json.Decoder)
    assert strict._decode.__module__.startswith("json")
