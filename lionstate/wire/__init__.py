"""JSON for parameters, results, problem documents and batches: what client and daemon agree on; knows no transport."""

from __future__ import annotations

from lionstate.wire.batches import (
    BatchCall,
    BatchReply,
    BatchRequest,
    BatchResponse,
    decode_batch_request,
    decode_batch_response,
    raw_result,
)
from lionstate.wire.codec import Codec, canonical, codec_of, decode_answer, decode_call, encode, encode_result
from lionstate.wire.problems import decode_problem, error_from_problem, problem
from lionstate.wire.stored import written_from

__all__ = [
    "BatchCall",
    "BatchReply",
    "BatchRequest",
    "BatchResponse",
    "Codec",
    "canonical",
    "codec_of",
    "decode_answer",
    "decode_batch_request",
    "decode_batch_response",
    "decode_call",
    "decode_problem",
    "encode",
    "encode_result",
    "error_from_problem",
    "problem",
    "raw_result",
    "written_from",
]
