"""JSON Schemas of arguments, beside the checks that enforce them: what the API's document says of a parameter; pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from sqlalchemy import Column, Float, Integer, LargeBinary, Table, Text

from lionstate.schema.types import Json

__all__ = [
    "ANY",
    "FLAG",
    "ID",
    "INTEGER",
    "MAPPING",
    "NUMBER",
    "TEXT",
    "Schema",
    "choice",
    "column_schema",
    "columns_schema",
    "described",
    "list_of",
    "merged",
    "nullable",
    "row_schema",
    "schema_of",
    "schemas_of",
    "whole_number",
]

Schema: TypeAlias = dict[str, Any]
C = TypeVar("C", bound=Callable[..., Any])


def whole_number(least: int, most: int) -> Schema:
    """A whole number between two bounds, both included."""
    return {"type": "integer", "minimum": least, "maximum": most}


ANY: Final[Schema] = {}
FLAG: Final[Schema] = {"type": "boolean"}
MAPPING: Final[Schema] = {"type": "object"}
NUMBER: Final[Schema] = {"type": "number"}
INTEGER: Final = whole_number(-(2**31), 2**31 - 1)
# Neither database stores NUL.
TEXT: Final[Schema] = {"type": "string", "pattern": r"^[^\u0000]*$"}
# In bytes, which a schema cannot say; a text of so many characters has at least as many.
ID: Final[Schema] = {**TEXT, "minLength": 1, "maxLength": 1024}
_EMBEDDING: Final[Schema] = {
    "anyOf": [{"type": "array", "items": NUMBER}, {"type": "string", "contentEncoding": "base64"}]
}


def nullable(schema: Schema) -> Schema:
    """The same, or null."""
    kind = schema.get("type")
    if not schema:
        return schema
    if isinstance(kind, str):
        return {**schema, "type": [kind, "null"]}
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    return {"anyOf": [schema, {"type": "null"}]}


def choice(words: Collection[str]) -> Schema:
    """One word of a closed vocabulary."""
    return {"enum": sorted(words)}


def list_of(schema: Schema, most: int | None = None) -> Schema:
    """A list of values, at most so many."""
    return {"type": "array", "items": schema, **({} if most is None else {"maxItems": most})}


_BY_TYPE: Final = ((Json, ANY), (Text, TEXT), (Float, NUMBER), (Integer, INTEGER), (LargeBinary, _EMBEDDING))


def column_schema(column: Column[Any]) -> Schema:
    """What a column takes; ``x-references`` names the table that it refers to."""
    found = next(schema for kind, schema in _BY_TYPE if isinstance(column.type, kind))
    targets = [key.target_fullname.split(".")[0] for key in column.foreign_keys]
    return {**found, **({"x-references": str(targets[0])} if targets else {})}


def columns_schema(table: Table, names: Iterable[str]) -> dict[str, Schema]:
    """What new values of columns may be; None only where the column takes it."""
    # A column's own name is no plain text to an encoder.
    found = {str(name): table.c[name] for name in sorted(names) if name in table.c}
    return {
        name: nullable(column_schema(column)) if column.nullable else column_schema(column)
        for name, column in found.items()
    }


def row_schema(table: Table, columns: Iterable[str], required: Iterable[str]) -> Schema:
    """A mapping that becomes a row: None means a column's default, keys that are no columns are left alone."""
    needed = sorted(required)
    properties = {str(name): nullable(column_schema(table.c[name])) for name in sorted(columns)}
    properties.update({name: column_schema(table.c[name]) for name in needed})
    return {"type": "object", "x-table": str(table.name), "properties": properties, "required": needed}


def described(schema: Schema) -> Callable[[C], C]:
    """Say what values a check accepts, as far as a schema can say it."""

    def decorate(check: C) -> C:
        vars(check)["schema"] = schema
        return check

    return decorate


def schema_of(check: Callable[..., Any]) -> Schema | None:
    """What a check accepts; None if that was not said."""
    found: Schema | None = getattr(check, "schema", None)
    return found


def schemas_of(script: Callable[..., Any]) -> Mapping[str, Schema]:
    """What the arguments of a script or of a rule may be, by name, where that was said."""
    found: Mapping[str, Schema] = getattr(script, "schemas", {})
    return found


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Merge schemas, key by key; a later one says more of what an earlier one says."""
    result: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
            result[key] = merged(result[key], value) if both else value
    return result
