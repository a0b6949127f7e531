"""`/openapi.json`, generated from the operations table: types, bounds and docstrings, nothing by hand."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec

from lionstate import __version__, wire
from lionstate.errors import ERROR_CODES

from .contracts import OperationLike

__all__ = ["openapi_document"]


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_ALWAYS = {
    400: "The request is not acceptable; nothing was changed.",
    401: "The caller is not served here.",
    409: "The request contradicts what the store holds.",
    413: "The body is too large.",
    500: "The database or the daemon failed.",
    503: "Too much waits, or the database cannot be used now; nothing was changed.",
    504: "The deadline passed; nothing was changed.",
}
_MISSING = {404: "The row does not exist; nothing was changed."}
_DEADLINE = {
    "name": "Lionstate-Deadline-Ms",
    "in": "header",
    "description": "Milliseconds after which a call that was not started is given up.",
    "schema": {"type": "integer", "minimum": 0, "maximum": 999_999_999_999},
}
_PROBLEM_SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string"},
        "code": {"enum": sorted(ERROR_CODES)},
        "reason": {"type": "string"},
        "retry_after_seconds": {"type": "number", "minimum": 0},
        "request_id": {"type": "string"},
        "outcome": {"enum": ["not_written", "unknown"]},
    },
}
# By hand: parameters and results in it are JSON of another operation's schema, which types cannot say.
_BATCH_REQUEST = {
    "type": "object",
    "required": ["operations"],
    "additionalProperties": False,
    "properties": {
        "operations": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["operation"],
                "additionalProperties": False,
                "properties": {
                    "operation": {"type": "string"},
                    "params": {"type": "object", "default": {}},
                    "idempotency_key": {"type": ["string", "null"], "default": None},
                },
            },
        },
        "atomic": {"type": "boolean", "default": False},
    },
}
_BATCH_RESPONSE = {
    "type": "object",
    "required": ["results"],
    "properties": {
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["outcome"],
                "properties": {
                    "outcome": {"enum": ["written", "not_written", "unknown"]},
                    "result": {},
                    "error": _ref("Problem"),
                },
            },
        }
    },
}
_PAGES = ("/v1/progressions/{id}/items", "list_progression_items")
_SHORT = {"after_ordinal": "after", "before_ordinal": "before"}
_SCHEMAS = {
    "Problem": _PROBLEM_SCHEMA,
    "BatchRequest": _BATCH_REQUEST,
    "BatchResponse": _BATCH_RESPONSE,
}


def openapi_document(table: Mapping[str, tuple[OperationLike, wire.Codec]]) -> dict[str, Any]:
    """Describe every operation and the batch route as OpenAPI 3.1."""
    codecs = [codec for _, codec in table.values()]
    types = [codec.params_type for codec in codecs] + [codec.result_type for codec in codecs]
    found, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schemas = list(found)
    params, results = schemas[: len(codecs)], schemas[len(codecs) :]
    for operation, codec in table.values():
        _specify(components[codec.params_type.__name__], operation.schemas)
    paths: dict[str, Any] = {
        f"/v1/ops/{name}": {"post": _operation(name, operation, params[index], results[index])}
        for index, (name, (operation, _)) in enumerate(table.items())
    }
    paths["/v1/batch"] = {
        "post": {
            "operationId": "batch",
            "summary": "Run operations in order; atomic makes them one transaction.",
            **_exchange(_ref("BatchRequest"), _ref("BatchResponse"), {**_ALWAYS, **_MISSING}),
        }
    }
    for path, name in (("/v1/progressions/{id}", "get_progression"), _PAGES):
        if name in table:
            operation, codec = table[name]
            answer = results[list(table).index(name)]
            paths[path] = {"get": _read(operation, components[codec.params_type.__name__], answer)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "lionstated", "version": __version__},
        "paths": paths,
        "components": {"schemas": {**components, **_SCHEMAS}},
    }


def _specify(params: dict[str, Any], said: Mapping[str, Mapping[str, Any]]) -> None:
    """Put what the checks say of parameters in the place of what their types say."""
    properties = params["properties"]
    properties.update({name: schema for name, schema in said.items() if schema and name in properties})


def _read(operation: OperationLike, params: Mapping[str, Any], result: Any) -> dict[str, Any]:
    """One of the two reads whose parameters are a path and a query."""
    progression = {"type": "string", "pattern": r"^[^/.\u0000][^/\u0000]*$"}
    query = {_SHORT.get(name, name): schema for name, schema in params["properties"].items()}
    del query["progression_id"]
    # What is absent is null: a query has no form for it.
    given = {name: next(iter(schema.get("anyOf", [schema]))) for name, schema in query.items()}
    return {
        "operationId": f"read_{operation.name}",
        "summary": _text(operation).splitlines()[0],
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": progression},
            *({"name": name, "in": "query", "schema": schema} for name, schema in given.items()),
            _DEADLINE,
        ],
        "responses": _responses(result, {status: text for status, text in _ALWAYS.items() if status != 413}),
    }


def _text(operation: OperationLike) -> str:
    return inspect.getdoc(operation.script) or operation.name


def _operation(name: str, operation: OperationLike, params: Any, result: Any) -> dict[str, Any]:
    text = _text(operation)
    refusals = {**_ALWAYS, **_MISSING} if operation.writes else _ALWAYS
    return {
        "operationId": name,
        "summary": text.splitlines()[0],
        "description": text,
        "x-writes": operation.writes,
        "x-idempotent": operation.idempotent,
        **_exchange(params, result, refusals),
    }


def _exchange(params: Any, result: Any, refusals: Mapping[int, str]) -> dict[str, Any]:
    return {
        "parameters": [_DEADLINE],
        "requestBody": {"required": True, "content": {"application/json": {"schema": params}}},
        "responses": _responses(result, refusals),
    }


def _responses(result: Any, refusals: Mapping[int, str]) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": _ref("Problem")}}
    return {
        "200": {"description": "Done.", "content": {"application/json": {"schema": result}}},
        **{str(status): {"description": text, "content": problem} for status, text in sorted(refusals.items())},
    }
