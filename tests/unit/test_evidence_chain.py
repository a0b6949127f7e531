"""The hashes of approval evidence, against values made with hashlib alone."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from lionstate.errors import InvalidInputError
from lionstate.records.evidence_chain import GENESIS, hash_params, sealed, verify_links

_ROW = {
    "id": "e1",
    "sequence": 1,
    "event_type": "proposed",
    "approval_id": "a1",
    "action_kind": "deploy",
    "status_from": None,
    "status_to": "pending",
    "params_hash": "p",
    "justification_class": None,
    "justification_reason": None,
    "created_at": 1700000000.25,
}
_CONTENT = (
    '{"action_kind":"deploy","approval_id":"a1","created_at":1700000000.25,"event_type":"proposed","id":"e1",'
    '"justification_class":null,"justification_reason":null,"params_hash":"p","sequence":1,"status_from":null,'
    '"status_to":"pending"}'
)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_parameters_hash_as_sorted_compact_ascii_json() -> None:
    assert _sha256('{"a":"\\u00fc","b":[1,null]}') == hash_params({"b": [1, None], "a": "ü"})
    with pytest.raises(InvalidInputError):
        hash_params({"a": object()})


def test_a_row_is_bound_to_the_one_before_it() -> None:
    row = sealed(_ROW, GENESIS, "key")
    content = _sha256(_CONTENT)
    chain = _sha256(content + "0" * 64)
    signature = hmac.new(b"key", f"{chain}1700000000.25".encode(), hashlib.sha256).hexdigest()
    assert (content, GENESIS, chain, signature) == (
        row["content_hash"],
        row["previous_hash"],
        row["chain_hash"],
        row["hmac_sig"],
    )
    assert sealed(_ROW, GENESIS, None)["hmac_sig"] is None
    assert verify_links([row], "key")["valid"] is True
    assert verify_links([row], "other")["valid"] is False


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("hmac_sig", "é", "not that of the key"),
        ("hmac_sig", b"x", "not that of the key"),
        ("hmac_sig", 5, "not that of the key"),
        ("justification_reason", b"x", "neither text nor a number"),
        ("created_at", b"x", "neither text nor a number"),
        ("chain_hash", b"x", "the chain hash is not"),
    ],
)
def test_a_value_that_no_lionstate_wrote_is_a_broken_link(column: str, value: object, said: str) -> None:
    first = sealed(_ROW, GENESIS, "key")
    second = sealed({**_ROW, "id": "e2", "sequence": 2}, first["chain_hash"], "key")
    third = sealed({**_ROW, "id": "e3", "sequence": 3}, second["chain_hash"], "key")
    found = verify_links([first, {**second, column: value}, third], "key")
    assert (False, 3, 2, "e2") == (
        found["valid"],
        found["total_entries"],
        found["broken"]["sequence"],
        found["broken"]["id"],
    )
    assert said in found["broken"]["problem"]


def test_a_part_may_follow_a_hash_that_is_no_text() -> None:
    row = {**sealed({**_ROW, "sequence": 2}, GENESIS, None), "previous_hash": b"x"}
    found = verify_links([row], None, after_sequence=1, before=b"x")  # type: ignore[arg-type]
    assert "not text" in found["broken"]["problem"]
