"""Hypothesis strategies for the parameters of any operation, derived from the document that the API publishes.

A parameter's strategy follows its JSON Schema; whatever names a row takes the one row that ``seeded`` puts into every
table, most of the time. ``calls`` also spoils one value of a call now and then: those calls should be refused.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from lionstate import wire
from lionstate.operations import OPERATIONS
from lionstated.api.openapi import openapi_document

__all__ = ["KNOWN", "calls", "hostile", "plain_json", "schema_of_params"]

# The id, and every other key, of the row that each table has.
KNOWN = "known"
_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_any_text = st.text(max_size=6)
_ids = st.one_of(st.just(KNOWN), st.just(KNOWN), st.just(KNOWN), _texts)
_finite = st.floats(allow_nan=False, allow_infinity=False)
_numbers = st.one_of(st.integers(-(2**53), 2**53), _finite)


def _below(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.lists(inner, max_size=3), st.dictionaries(_any_text, inner, max_size=3))


# Any depth; a lone surrogate and NUL inside are storable, escaped.
plain_json = st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), _finite, _any_text), _below, max_leaves=6)
_objects = st.dictionaries(_any_text, plain_json, max_size=3)


# A number as the whole value, which SQLite's affinity would change if it were given as text.
_bare_numbers = st.one_of(
    _finite,
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(
        [0.1 + 0.2, 1.7976931348623157e308, 5e-324, -1.055793262614264e-300, 2**53 + 1, 2**63 - 1, -(2**63)]
    ),
)
_bare_or_not = st.one_of(plain_json, plain_json, _bare_numbers)


# Values that hardly any parameter takes.
hostile = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**31, -(2**31) - 1, 2**63, -(2**63) - 1, 10**400, math.inf, -math.inf, math.nan, 1e308, -1]),
    st.sampled_from(["", " ", "\0", "a\0b", "\ud800", "x" * 2_000, "null", "{}", "[]", "'\"", "%", "\n"]),
    st.binary(max_size=5),
    _texts,
    plain_json,
    st.sampled_from([object(), {1: 2}, {"a": {1, 2}}, {"a": math.nan}, {"a": object()}, (), set()]),
)


@functools.cache
def _document() -> dict[str, Any]:
    return openapi_document({name: (entry, wire.Codec.of(entry.script)) for name, entry in OPERATIONS.items()}, {})


def schema_of_params(name: str) -> dict[str, Any]:
    """The published schema of an operation's parameters."""
    found: dict[str, Any] = _document()["components"]["schemas"][f"{name}_params"]
    return found


def _text(name: str, schema: Mapping[str, Any]) -> st.SearchStrategy[str]:
    names_a_row = "x-references" in schema or name.endswith(("id", "ids", "new"))
    found = _ids if names_a_row else st.one_of(_texts, st.just(KNOWN))
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength", math.inf)
    return found.filter(lambda text: shortest <= len(text) <= longest)


def _number(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    if schema["type"] == "integer":
        return st.integers(-(2**63) if least is None else least, schema.get("maximum", 2**63 - 1))
    if least is None:
        return _numbers
    return st.floats(least, 1e12, exclude_min="exclusiveMinimum" in schema, allow_nan=False)


def of_schema(name: str, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema allows; what it leaves open is any JSON."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([of_schema(name, one) for one in schema["anyOf"]])
    if "contentEncoding" in schema:
        return st.sampled_from(["", "AACAPw=="])
    kind = schema.get("type")
    if isinstance(kind, list):
        return st.one_of([of_schema(name, {**schema, "type": one}) for one in kind])
    if kind == "string":
        return _text(name, schema)
    if kind in ("integer", "number"):
        return _number(schema)
    if "prefixItems" in schema:
        return st.tuples(*(of_schema(name, one) for one in schema["prefixItems"])).map(list)
    if kind == "array":
        items = of_schema(name, schema.get("items", {}))
        least, most = schema.get("minItems", 0), min(4, schema.get("maxItems", 4))
        return st.lists(items, min_size=least, max_size=most, unique=schema.get("uniqueItems", False))
    if kind == "object" and "properties" in schema:
        return _mapping(schema)
    simple = {"null": st.none(), "boolean": st.booleans(), "object": _objects}
    if kind in simple:
        return simple[kind]
    values = _bare_or_not
    return values.filter(lambda value: value is not None) if "not" in schema else values


def _mapping(schema: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    properties = {name: of_schema(name, one) for name, one in schema["properties"].items() if one != {"not": {}}}
    # In one order: that of a set is another in every process, and so were the calls.
    required = sorted(schema.get("required", ()))
    fresh = {"id": _texts} if "x-table" in schema else {}
    needed = {name: fresh.get(name, properties[name]) for name in required}
    rest = {name: one for name, one in properties.items() if name not in required}
    # A few of the many optional keys at a time: with all of them a call is hardly ever acceptable.
    return st.fixed_dictionaries(needed).flatmap(lambda given: _some(rest).map(lambda more: given | more))


@st.composite
def _some(draw: st.DrawFn, properties: Mapping[str, st.SearchStrategy[Any]]) -> dict[str, Any]:
    if not properties:
        return {}
    names = draw(st.lists(st.sampled_from(sorted(properties)), max_size=6, unique=True))
    return {name: draw(properties[name]) for name in names}


@functools.cache
def _acceptable(name: str) -> st.SearchStrategy[dict[str, Any]]:
    return _mapping(schema_of_params(name))


@st.composite
def calls(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Parameters of a call; in about one of three calls one of them, or one key of a mapping, is spoilt."""
    params: dict[str, Any] = dict(draw(_acceptable(name)))
    if not params or draw(st.integers(0, 2)):
        return params
    spoilt = draw(st.sampled_from(sorted(params)))
    inner = params[spoilt]
    if isinstance(inner, dict) and inner and draw(st.booleans()):
        params[spoilt] = {**inner, draw(st.sampled_from(sorted(inner, key=repr))): draw(hostile)}
    else:
        params[spoilt] = draw(hostile)
    return params


def as_json(value: Any) -> Any:
    """What a JSON value is after it was stored."""
    return json.loads(json.dumps(value))
