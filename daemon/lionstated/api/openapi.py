"""`/openapi.json`, generated from the operations table: types and docstrings, nothing by hand."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec

from lionstate import __version__, wire

from .contracts import OperationLike

__all__ = ["openapi_document"]


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_PROBLEM = {
    "description": "A problem document (RFC 9457).",
    "content": {"application/problem+json": {"schema": _ref("Problem")}},
}
_PROBLEM_SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "reason": {"type": "string"},
        "retry_after_seconds": {"type": "number"},
        "request_id": {"type": "string"},
        "outcome": {"enum": ["not_written", "unknown"]},
    },
}
# By hand: parameters and results in it are JSON of another operation's schema, which types cannot say.
_BATCH_REQUEST = {
    "type": "object",
    "required": ["operations"],
    "properties": {
        "operations": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["operation"],
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
    paths: dict[str, Any] = {
        f"/v1/ops/{name}": {"post": _operation(name, operation, params[index], results[index])}
        for index, (name, (operation, _)) in enumerate(table.items())
    }
    paths["/v1/batch"] = {
        "post": {
            "operationId": "batch",
            "summary": "Run operations in order; atomic makes them one transaction.",
            **_exchange(_ref("BatchRequest"), _ref("BatchResponse")),
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "lionstated", "version": __version__},
        "paths": paths,
        "components": {"schemas": {**components, **_SCHEMAS}},
    }


def _operation(name: str, operation: OperationLike, params: Any, result: Any) -> dict[str, Any]:
    text = inspect.getdoc(operation.script) or name
    return {
        "operationId": name,
        "summary": text.splitlines()[0],
        "description": text,
        "x-writes": operation.writes,
        "x-idempotent": operation.idempotent,
        **_exchange(params, result),
    }


def _exchange(params: Any, result: Any) -> dict[str, Any]:
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": params}}},
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": result}}},
            "default": _PROBLEM,
        },
    }
