"""The hashes of approval evidence and the verdict on a chain of them; pure.

SHA-256 over JSON with sorted keys and no spaces, each row bound to the one before.

Contract: reference §2.5 (approvals).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from lionstate.errors import InvalidInputError

__all__ = ["GENESIS", "hash_params", "sealed", "verify_links"]

GENESIS: Final = "0" * 64
_HASHED = (
    "id",
    "sequence",
    "event_type",
    "approval_id",
    "action_kind",
    "status_from",
    "status_to",
    "params_hash",
    "justification_class",
    "justification_reason",
    "created_at",
)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _hash_json(value: Mapping[str, Any]) -> str:
    return _sha256(json.dumps(value, sort_keys=True, separators=(",", ":")))


def hash_params(params: Mapping[str, Any]) -> str:
    """The hash that ties an approval to the parameters it was asked for.

    Raises:
        InvalidInputError: The parameters have no form in JSON, as NaN.
    """
    try:
        # As they arrive over HTTP: keys that are no text are told apart, and put in order, as text.
        return _hash_json(json.loads(json.dumps(params, allow_nan=False)))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"params cannot be hashed as JSON: {type(error).__name__}") from error


def _content_hash(row: Mapping[str, Any]) -> str:
    return _hash_json({name: row[name] for name in _HASHED})


def _signature(chain_hash: str, created_at: float, hmac_key: str) -> str:
    return hmac.new(hmac_key.encode(), (chain_hash + str(created_at)).encode(), hashlib.sha256).hexdigest()


def sealed(row: Mapping[str, Any], previous_hash: str, hmac_key: str | None) -> dict[str, Any]:
    """The evidence row with its hashes, bound to the row before it, signed when there is a key."""
    content_hash = _content_hash(row)
    chain_hash = _sha256(content_hash + previous_hash)
    signature = None if hmac_key is None else _signature(chain_hash, row["created_at"], hmac_key)
    hashes = {"content_hash": content_hash, "previous_hash": previous_hash, "chain_hash": chain_hash}
    return {**row, **hashes, "hmac_sig": signature}


def verify_links(
    rows: Iterable[Mapping[str, Any]], hmac_key: str | None, *, after_sequence: int = 0, before: str = GENESIS
) -> dict[str, Any]:
    """Follow a chain to the first link that is broken.

    Args:
        rows: From its first one, or from the one behind ``after_sequence``.
        hmac_key: Every row must be signed with it.
        after_sequence: The number of the row before them.
        before: The chain hash of that row.
    Returns:
        ``valid``, ``total_entries``, and ``broken``: None or the ``sequence``, ``id``, ``approval_id`` and ``problem``
        of the first broken link.
    """
    previous, total = before, 0
    broken: dict[str, Any] | None = None
    for row in rows:
        total += 1
        problem = None if broken else _problem(row, after_sequence + total, previous, hmac_key)
        if problem is not None:
            broken = {name: row[name] for name in ("sequence", "id", "approval_id")} | {"problem": problem}
        previous = row["chain_hash"]
    return {"valid": broken is None, "total_entries": total, "broken": broken}


def _problem(row: Mapping[str, Any], sequence: int, previous: object, hmac_key: str | None) -> str | None:
    if row["sequence"] != sequence:
        return f"sequence {sequence} is missing"
    try:
        content_hash = _content_hash(row)
    except TypeError:
        return "the content holds a value that was never hashed: it is neither text nor a number"
    if content_hash != row["content_hash"]:
        return "the content is not what was hashed"
    if row["previous_hash"] != previous:
        return "it does not follow the entry before it"
    if not isinstance(previous, str):
        return "the chain hash of the entry before it is not text"
    if _sha256(content_hash + previous) != row["chain_hash"]:
        return "the chain hash is not that of content and predecessor"
    if hmac_key is None:
        return None
    # A row without a signature would otherwise pass as one from before there was a key.
    if row["hmac_sig"] is None:
        return "the signature is missing"
    expected = _signature(row["chain_hash"], row["created_at"], hmac_key)
    # As bytes: what was put there need be neither ASCII nor text.
    found = str(row["hmac_sig"]).encode()
    return None if hmac.compare_digest(expected.encode(), found) else "the signature is not that of the key"
