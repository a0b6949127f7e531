"""The strict verdict on a collection: is this value an RFC 8259 array of strings that may be migrated?

Decides admission and nothing else. No database function is asked, so a value has the same verdict on both
backends and every SQLite version. `decode_again` is the second, independent decoder of the proofs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from lionstate.errors import BlockedCode
from lionstate.progression.digest import digest_of
from lionstate.progression.packed import PackedIds

__all__ = ["POSTGRESQL_MAX_ID_BYTES", "Verdict", "decode_again", "digest_again", "strict_verdict"]

# Characters of a text from which its ids are kept packed.
_PACKED_CHARS: Final = 4 * 1024 * 1024

POSTGRESQL_MAX_ID_BYTES = 2_000
"""The longest existing id that migrates there: its B-tree refuses rows of about 2,700 bytes."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the strict decoder says about one value.

    Attributes:
        code: None when the value may be migrated, whatever the length of its ids.
        ids: The ids in order, of a large value packed; [] when there is a code.
        digest: Their digest; None when there is a code.
        max_id_bytes: UTF-8 length of the longest id; 0 when there is none.
    """

    code: BlockedCode | None
    ids: Sequence[str] = field(default_factory=list, repr=False)
    digest: str | None = None
    max_id_bytes: int = 0

    @property
    def count(self) -> int:
        """Ids found; 0 when there is a code."""
        return len(self.ids)

    def code_for(self, max_id_bytes: int | None) -> BlockedCode | None:
        """Give the code for a store that takes ids up to this length; None has no limit."""
        if self.code is None and max_id_bytes is not None and self.max_id_bytes > max_id_bytes:
            return BlockedCode.ID_TOO_LONG
        return self.code


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


def _any_number(_: str) -> int:
    # Never int(): over 4,300 digits it raises, and the number is a non-string either way.
    return 0


_decode = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_int=_any_number, parse_float=_any_number, strict=True
).decode


def strict_verdict(value: object) -> Verdict:
    """Judge a value as it came out of the column.

    Of several codes the first of this order counts: not_text, malformed_json, not_array, non_string,
    nul_in_id, lone_surrogate. ``id_too_long`` depends on the backend: `Verdict.code_for`.

    Cost: linear, about 25 ms for 100,000 ids of 32 characters. The decoding is one call that holds the GIL.
    Contract: ADR-0117 D3 (admission step 2); decisions 9 and 15.
    """
    if not isinstance(value, str):
        return Verdict(BlockedCode.NOT_TEXT)
    try:
        decoded: object = _decode(value)
    except RecursionError:
        # Where the parser gives up depends on the caller's stack; the verdict must not.
        return Verdict(_verdict_on_deep(value))
    except ValueError:
        return Verdict(BlockedCode.MALFORMED_JSON)
    if not isinstance(decoded, list):
        return Verdict(BlockedCode.NOT_ARRAY)
    try:
        joined = "".join(decoded)
    except TypeError:
        return Verdict(BlockedCode.NON_STRING)
    ids: list[str] = decoded
    if "\0" in joined:
        return Verdict(BlockedCode.NUL_IN_ID)
    if joined.isascii():
        max_id_bytes = max(map(len, ids), default=0)
    else:
        try:
            max_id_bytes = max(len(message_id.encode()) for message_id in ids)
        except UnicodeEncodeError:
            return Verdict(BlockedCode.LONE_SURROGATE)
    digest = digest_of(ids)
    if len(value) < _PACKED_CHARS:
        return Verdict(None, ids, digest, max_id_bytes)
    return Verdict(None, PackedIds(joined, list(map(len, ids))), digest, max_id_bytes)


_array_of_text = msgspec.json.Decoder(list[str], strict=True)


def decode_again(value: object) -> list[str] | None:
    """Decode a value by a parser that shares no code with `strict_verdict`; None when it may not be migrated.

    It gives no code and no digest: it exists to disagree, should one of the two parsers be wrong.

    Cost: linear, about 10 ms for 100,000 ids of 32 characters.
    """
    if not isinstance(value, str):
        return None
    try:
        ids = _array_of_text.decode(value)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return None if any("\0" in message_id for message_id in ids) else ids


def digest_again(value: object) -> str | None:
    """Digest what `decode_again` reads, where it is read; None when the value may not be migrated."""
    ids = decode_again(value)
    return None if ids is None else digest_of(ids)


_TOKEN = re.compile(
    r"[ \t\n\r]*(?:(?P<mark>[\[\]{}:,])"
    r'|(?P<text>"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")'
    r"|(?P<scalar>true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?))"
)
_OPENERS = {"]": "[", "}": "{"}


def _is_json(text: str) -> bool:
    """Check RFC 8259 grammar without recursion; about a microsecond a token."""
    opened: list[str] = []
    expected = "value"
    position, end = 0, len(text.rstrip(" \t\n\r"))
    while position < end:
        token = _TOKEN.match(text, position, end)
        if token is None:
            return False
        position = token.end()
        mark = token["mark"]
        if mark in ("[", "{") and expected in ("value", "value or ]"):
            opened.append(mark)
            expected = "value or ]" if mark == "[" else "key or }"
        elif mark in ("]", "}"):
            if (
                not opened
                or opened.pop() != _OPENERS[mark]
                or expected not in (", or close", f"value or {mark}", f"key or {mark}")
            ):
                return False
            expected = ", or close" if opened else "end"
        elif mark == "," and expected == ", or close":
            expected = "value" if opened[-1] == "[" else "key"
        elif mark == ":" and expected == ":":
            expected = "value"
        elif token["text"] is not None and expected in ("key", "key or }"):
            expected = ":"
        elif mark is None and expected in ("value", "value or ]"):
            expected = ", or close" if opened else "end"
        else:
            return False
    return expected == "end"


def _verdict_on_deep(text: str) -> BlockedCode:
    if not _is_json(text):
        return BlockedCode.MALFORMED_JSON
    return BlockedCode.NON_STRING if text.lstrip(" \t\n\r").startswith("[") else BlockedCode.NOT_ARRAY
