"""A request of several operations, and its answer."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from lionstate.errors import InvalidInputError, WireError
from lionstate.wire.codec import encode_result, sentence
from lionstate.wire.doubled import refuse_doubled_keys
from lionstate.wire.stored import written_from

__all__ = [
    "BatchCall",
    "BatchReply",
    "BatchRequest",
    "BatchResponse",
    "decode_batch_request",
    "decode_batch_response",
    "raw_result",
]


class BatchCall(msgspec.Struct, forbid_unknown_fields=True):
    """One operation of a batch; `params` stays JSON until the operation is known."""

    operation: str
    params: msgspec.Raw = msgspec.Raw(b"{}")
    idempotency_key: str | None = None


class BatchRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An ordered list of operations; `atomic` makes them one transaction."""

    operations: list[BatchCall]
    atomic: bool = False


class BatchReply(msgspec.Struct, omit_defaults=True):
    """What became of one operation of a batch."""

    outcome: Literal["written", "not_written", "unknown"]
    result: msgspec.Raw = msgspec.Raw(b"")
    error: dict[str, Any] | None = None
    replayed: bool = False


class BatchResponse(msgspec.Struct):
    """One reply for each operation, in the order of the request."""

    results: list[BatchReply]


_batch_request = msgspec.json.Decoder(BatchRequest)
_batch_response = msgspec.json.Decoder(BatchResponse)


def decode_batch_request(body: bytes) -> BatchRequest:
    """Decode a batch request; of its parameters it is proved that no object has a key twice.

    Raises:
        InvalidInputError: It is not one, or a key stands twice.
    """
    try:
        request = _batch_request.decode(body)
        refuse_doubled_keys("batch", body, 0)
        return request
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as exc:
        raise InvalidInputError(sentence("batch", exc)) from None


def decode_batch_response(body: bytes, *, expected: int) -> list[BatchReply]:
    """Decode a batch response.

    Raises:
        WireError: It is none, or it does not have one reply for each of `expected` operations.
    """
    try:
        results: list[BatchReply] = written_from(body, _batch_response, _with_raw_results).results
    except (ValueError, RecursionError) as exc:
        raise WireError("the answer to a batch could not be understood") from exc
    if len(results) != expected:
        raise WireError(f"the answer to a batch of {expected} has {len(results)} results")
    return results


def _with_raw_results(found: Any) -> Any:
    replies = found.get("results") if isinstance(found, dict) else None
    return {"results": [raw_result(one) for one in replies]} if isinstance(replies, list) else found


def raw_result(found: Any) -> Any:
    """A decoded reply with its ``result`` as JSON again."""
    if not isinstance(found, dict) or "result" not in found:
        return found
    return {**found, "result": msgspec.Raw(encode_result(found["result"]))}
