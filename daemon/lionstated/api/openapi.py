"""`/openapi.json`, generated from the operations table: types and docstrings, nothing by hand."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec

from lionstate import __version__, wire

from .contracts import OperationLike

__all__ = ["openapi_document"]

_PROBLEM = {
    "description": "A problem document (RFC 9457).",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
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


def openapi_document(table: Mapping[str, tuple[OperationLike, wire.Codec]]) -> dict[str, Any]:
    """Describe every operation and the batch route as OpenAPI 3.1."""
    codecs = [codec for _, codec in table.values()]
    types = [codec.params_type for codec in codecs] + [codec.result_type for codec in codecs]
    schemas, components = msgspec.json.schema_components(
        [*types, wire.BatchRequest, wire.BatchResponse], ref_template="#/components/schemas/{name}"
    )
    rest = list(schemas)
    params, results = rest[: len(codecs)], rest[len(codecs) : 2 * len(codecs)]
    paths: dict[str, Any] = {
        f"/v1/ops/{name}": {"post": _operation(name, operation, params[index], results[index])}
        for index, (name, (operation, _)) in enumerate(table.items())
    }
    paths["/v1/batch"] = {
        "post": {
            "operationId": "batch",
            "summary": "Run operations in order; atomic makes them one transaction.",
            **_exchange(rest[-2], rest[-1]),
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "lionstated", "version": __version__},
        "paths": paths,
        "components": {"schemas": {**components, "Problem": _PROBLEM_SCHEMA}},
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
