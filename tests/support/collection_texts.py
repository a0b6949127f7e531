"""Texts that may stand in ``progressions.collection``: the vectors, and strategies for anything else."""

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from lionstate.errors import MalformedCollectionError
from lionstate.progression.collection import (
    parse_readable,
)

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
