"""`/openapi.json`, generated from the tables of operations and verbs: types, bounds, docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from lionstate import __version__, wire
from lionstate.errors import ERROR_CODES

from .contracts import GENERATION_HEADER, MAX_WAIT_SECONDS, QUERY_NAMES, READS, OperationLike, Verb

__all__ = ["openapi_document"]


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_READING = {
    400: "The request is not acceptable; nothing was changed.",
    401: "The caller is not served here.",
    403: "The caller may not do this; nothing was changed.",
    409: "The request contradicts what the store holds.",
    413: "The body is too large.",
    500: "The database or the daemon failed.",
    503: "Too much waits, or the database cannot be used now; nothing was changed.",
    504: "The deadline passed; nothing was changed.",
}
_WRITING = {**_READING, 404: "The row does not exist; nothing was changed."}
_SEGMENT = {"type": "string", "pattern": r"^[^/.\u0000][^/\u0000]*$"}
_KEY = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}
_DEADLINES = {
    "parameters": [
        {
            "name": "Lionstate-Deadline-Ms",
            "in": "header",
            "description": "Milliseconds after which a call that was not started is given up.",
            "schema": {"type": "integer", "minimum": 0, "maximum": 999_999_999_999},
        }
    ]
}
_KEYED = {
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "Names this call: it is run once, and a repeat gets the first answer. The same key with"
            " another call is refused with `idempotency_conflict`.",
            "schema": _KEY,
        }
    ]
}
_STALE = {
    "parameters": [
        {
            "name": "Lionstate-Stale-Ok",
            "in": "header",
            "description": "Seconds that the answer may be old: a replica may give it (`database.replica_url`).",
            "schema": {"type": "number", "minimum": 1, "maximum": 86_400},
        }
    ]
}
_REPLAYED = {
    "Idempotency-Replayed": {
        "description": "This is the kept answer of an earlier call with the same key.",
        "schema": {"const": "true"},
    }
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
        "replayed": {"const": True},
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
                    "idempotency_key": {**_KEY, "type": ["string", "null"], "default": None},
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
                    "replayed": {"type": "boolean", "default": False},
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


_GENERATION = {
    "description": "Changes when the progression is replaced, not when it grows; null while it has none.",
    "schema": {"type": ["integer", "null"]},
}
_WAIT = (
    {
        "name": "wait_seconds",
        "in": "query",
        "required": False,
        "description": "While there is nothing to answer with, wait so long for a commit that changes that.",
        "schema": {"type": "number", "minimum": 0, "maximum": MAX_WAIT_SECONDS, "default": 0},
    },
)
_SHORT = {full: short for short, full in QUERY_NAMES.items()}
_PROBES = {
    "/": ("The status page.", "text/html", {"type": "string"}),
    "/status.json": ("What the status page shows; no ids.", "application/json", {"type": "object"}),
    "/metrics": ("Every metric, in Prometheus' text format.", "text/plain", {"type": "string"}),
    "/livez": ("Whether the writer answers; 503 when it does not.", "application/json", {"type": "object"}),
    "/readyz": ("Whether requests are served; 503 when they are not.", "application/json", {"type": "object"}),
}
_OPS_LISTENER = [{"url": "http://127.0.0.1:9464", "description": "listen.ops"}]


def openapi_document(
    table: Mapping[str, tuple[OperationLike, wire.Codec]], verbs: Mapping[str, tuple[Verb, wire.Codec]]
) -> dict[str, Any]:
    """Describe every route of the daemon as OpenAPI 3.1."""
    codecs = [codec for _, codec in (*table.values(), *verbs.values())]
    types = [codec.params_type for codec in codecs] + [codec.result_type for codec in codecs]
    found, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schemas = list(found)
    for operation, codec in table.values():
        _specify(components[codec.params_type.__name__], operation.schemas)
    forms = dict(zip(map(id, codecs), zip(schemas, schemas[len(codecs) :], strict=False), strict=True))

    def query(codec: wire.Codec) -> list[dict[str, Any]]:
        # What a route with a body takes as one object, a GET takes name by name.
        form = components[str(forms[id(codec)][0]["$ref"]).rpartition("/")[2]]
        required = form.get("required", ())
        return [
            {"name": name, "in": "query", "required": name in required, "schema": _without_null(schema)}
            for name, schema in form["properties"].items()
        ]

    paths: dict[str, Any] = {
        f"/v1/ops/{name}": {**_DEADLINES, "post": _operation(name, operation, *forms[id(codec)])}
        for name, (operation, codec) in table.items()
    }
    for path, name in READS.items():
        if name in table:
            operation, codec = table[name]
            answer = _answer(forms[id(codec)][1], _READING, {GENERATION_HEADER: _GENERATION})
            parameters = [*map(_in_path, query(codec)), *(_WAIT if path.endswith("/items") else ())]
            described = _described(f"read {name}", operation.script, parameters=parameters, **answer)
            paths[path] = {**_DEADLINES, "get": described}
    for name, (verb, codec) in verbs.items():
        form = {"parameters": query(codec)} if verb.method == "GET" else _body(forms[id(codec)][0])
        described = _described(f"migration {name}", verb.call, **form, **_answer(forms[id(codec)][1], _WRITING))
        paths[f"/v1/migration/{name}"] = {verb.method.lower(): described}
    for path, (text, kind, schema) in _PROBES.items():
        content = {"200": {"description": text, "content": {kind: {"schema": schema}}}}
        probe = {"operationId": path.strip("/") or "page", "summary": text, "responses": content}
        paths[path] = {"get": probe, "servers": _OPS_LISTENER}
    paths["/v1/batch"] = {
        **_DEADLINES,
        "post": {
            "operationId": "batch",
            "summary": "Run operations in order; atomic makes them one transaction.",
            **_body(_ref("BatchRequest")),
            **_answer(_ref("BatchResponse"), _WRITING),
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "lionstated", "version": __version__},
        "paths": paths,
        "components": {"schemas": {**components, **_SCHEMAS}},
    }


def _operation(name: str, operation: OperationLike, params: Any, result: Any) -> dict[str, Any]:
    marks = {"x-writes": operation.writes, "x-idempotent": operation.idempotent}
    if not operation.writes:
        return _described(name, operation.script, **marks, **_STALE, **_body(params), **_answer(result, _READING))
    answer = _answer(result, _WRITING, _REPLAYED)
    return _described(name, operation.script, **marks, **_KEYED, **_body(params), **answer)


def _described(name: str, call: Callable[..., Any], **rest: Any) -> dict[str, Any]:
    text = inspect.getdoc(call) or name
    return {"operationId": name.replace(" ", "_"), "summary": text.splitlines()[0], "description": text, **rest}


def _in_path(parameter: dict[str, Any]) -> dict[str, Any]:
    """A parameter of one of the reads: the progression is part of the path, and some names are shorter there."""
    name = parameter["name"]
    if name == "progression_id":
        return {**parameter, "name": "id", "in": "path", "schema": _SEGMENT}
    return {**parameter, "name": _SHORT.get(name, name)}


def _body(params: Any) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": params}}}}


def _answer(result: Any, refusals: Mapping[int, str], headers: Mapping[str, Any] | None = None) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": _ref("Problem")}}
    done = {"description": "Done.", "content": {"application/json": {"schema": result}}}
    return {
        "responses": {
            "200": {**done, "headers": headers} if headers else done,
            **{str(status): {"description": text, "content": problem} for status, text in sorted(refusals.items())},
        }
    }


def _specify(params: dict[str, Any], said: Mapping[str, Mapping[str, Any]]) -> None:
    """Put what the checks say of parameters in the place of what their types say."""
    properties = params["properties"]
    properties.update({name: schema for name, schema in said.items() if schema and name in properties})


def _without_null(schema: Any) -> Any:
    """What a query can carry: it has no form for null, which is what an absent parameter means."""
    kept = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    return kept[0] if len(kept) == 1 else schema
