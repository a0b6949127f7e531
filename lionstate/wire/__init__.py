"""JSON for parameters, results, problem documents and batches: what client and daemon agree on; knows no transport."""

from __future__ import annotations

from lionstate.wire.batches import (
    BatchCall,
    BatchReply,
    BatchRequest,
    BatchResponse,
    decode_batch_request,
    decode_batch_response,
)
from lionstate.wire.codec import Codec, canonical, codec_of, decode_call, encode
from lionstate.wire.problems import decode_problem, error_from_problem, problem

__all__ = [
    "BatchCall",
    "BatchReply",
    "BatchRequest",
    "BatchResponse",
    "Codec",
    "canonical",
    "codec_of",
    "decode_batch_request",
    "decode_batch_response",
    "decode_call",
    "decode_problem",
    "encode",
    "error_from_problem",
    "problem",
]
