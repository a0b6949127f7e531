"""Codecs, problem documents and the wire form of batches."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypedDict, TypeVar, Unpack

import pytest

from lionstate import errors, wire
from lionstate.engine import Refused
from lionstate.errors import InvalidInputError, StateError, WireError
from lionstate.wire import Codec

if TYPE_CHECKING:
    from nowhere import Connection  # type: ignore[import-not-found]

T = TypeVar("T")


class Deferred(Generic[T]):
    __deferred__: ClassVar[bool] = True


class Node(TypedDict, total=False):
    name: str
    weight: float


@dataclass
class Page:
    items: list[tuple[int, str]]
    next: int | None = None


def script(
    conn: Connection, /, progression_id: str, *, limit: int = 500, data: bytes = b"", node: Node | None = None
) -> Deferred[Page]:
    raise AssertionError("only the signature is used")


def update(conn: Connection, /, branch_id: str, **fields: int) -> None:
    raise AssertionError("only the signature is used")


def change(conn: Connection, /, branch_id: str, **changes: Unpack[Node]) -> bool | Refused:
    raise AssertionError("only the signature is used")


def test_parameters_round_trip_and_defaults_stay_absent() -> None:
    codec = Codec.of(script)
    params = codec.bind(("p",), {"data": b"\x00\xff", "node": {"name": "n", "weight": 1.5}})
    body = codec.encode(params)
    assert b'"data":"AP8="' in body
    assert codec.decode_params(body) == params
    assert codec.decode_params(b'{"progression_id":"p"}') == {"progression_id": "p"}
    assert codec.decode_query({"progression_id": "p", "limit": "3"}) == {"progression_id": "p", "limit": 3}


def test_the_result_type_of_a_deferred_is_inside_it() -> None:
    codec = Codec.of(script)
    page = Page([(1, "a"), (3, "b")])
    assert codec.decode_result(codec.encode(page)) == page
    with pytest.raises(WireError):
        codec.decode_result(b'{"items": 5}')
    assert Codec.of(update).decode_result(b"null") is None


def test_keyword_fields_are_checked_too() -> None:
    codec = Codec.of(update)
    params = codec.bind(("b",), {"x": 1})
    assert params == {"branch_id": "b", "x": 1}
    assert codec.decode_params(codec.encode(params)) == params
    for body in (b'{"branch_id":"b","x":"secret"}', b'{"x":1}', b'{"branch_id":1}'):
        with pytest.raises(InvalidInputError) as caught:
            codec.decode_params(body)
        assert "secret" not in str(caught.value)


def test_declared_keyword_fields_are_checked_one_by_one() -> None:
    codec = Codec.of(change)
    assert codec.decode_params(b'{"branch_id":"b","weight":1}') == {"branch_id": "b", "weight": 1.0}
    assert codec.bind(("b",), {"name": "n"}) == {"branch_id": "b", "name": "n"}
    for body in (b'{"branch_id":"b","weight":"x"}', b'{"branch_id":"b","other":1}'):
        with pytest.raises(InvalidInputError):
            codec.decode_params(body)


def test_a_refusal_is_no_part_of_the_answer() -> None:
    codec = Codec.of(change)
    assert codec.decode_result(b"true") is True
    with pytest.raises(WireError):
        codec.decode_result(b'{"error":"x"}')


def test_a_call_with_wrong_arguments_fails_like_a_direct_one() -> None:
    with pytest.raises(TypeError):
        Codec.of(script).bind((), {})

    def positional(conn: object, a: str) -> None:
        raise AssertionError("only the signature is used")

    def variable(conn: object, /, *ids: str) -> None:
        raise AssertionError("only the signature is used")

    for function in (positional, variable):
        with pytest.raises(TypeError):
            Codec.of(function)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{}", "parameter progression_id is missing"),
        (b'{"progression_id":"p","nope":"secret"}', "there is no parameter 'nope'"),
        (b'{"progression_id":"p","limit":"secret"}', "parameter limit must be int, not str"),
        (b'{"progression_id":"p","node":{"name":1}}', "parameter node must be str, not int"),
        (b'{"progression_id":"p","data":"se!cret"}', "parameter data has a value that is not allowed"),
        (b'["secret"]', "the parameters must be object, not array"),
        (b'{"progression_id":"secret', "the body is not valid JSON"),
        (b'{"progression_id":NaN}', "the body is not valid JSON"),
        (b'{"progression_id":"\\ud800"}', "the body is not valid JSON"),
        (b'{"progression_id":"\xff"}', "the body is not valid JSON"),
        (b"", "the body is not valid JSON"),
        (b'{"progression_id":"secret","progression_id":"p"}', "'progression_id' is given twice"),
        (b'{"progression_id":"p","progression\\u005fid" : "p:q"}', "'progression_id' is given twice"),
        (b'{"progression_id":"p","node":{"weight":1,"name":"a","weight":2}}', "an object inside of the parameters"),
    ],
)
def test_bad_parameters_are_named_and_never_quoted(body: bytes, said: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Codec.of(script).decode_params(body)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "value",
    [
        b'[1, [{"a":1}, {"secret":[], "b":{"secret":1}, "secret":null}]]',
        b'{"a":{"a":{"a":1, "\\u0061":-1.5e3}}}',
        b'{"a":"a:", ":":1, ":":2}',
        b'{"":1,"":1}',
        b'{"a":{"b":1' + b"0" * 4_000 + b',"b":1}}',
    ],
)
def test_a_key_stands_twice_at_any_depth(value: bytes) -> None:
    """In what is only stored too: databases and readers would not agree on which of the two counts."""

    def store(conn: object, /, value: Any, **changes: Any) -> None:
        raise AssertionError("only the signature is used")

    for body in (b'{"value":' + value + b"}", b'{"value":1,"x":' + value + b"}"):
        with pytest.raises(InvalidInputError, match="an object inside of the parameters has a key twice") as caught:
            Codec.of(store).decode_params(body)
        assert "secret" not in str(caught.value)
        call = b'{"operations":[{"operation":"store","params":' + body + b"}]}"
        with pytest.raises(InvalidInputError, match="batch: an object inside"):
            wire.decode_batch_request(call)
    # A number that is too long for Python is only looked at in passing.
    call = b'{"operations":[{"operation":"store","params":{"value":' + b"1" * 6_000 + b',"x":1,"x":1}}]}'
    with pytest.raises(InvalidInputError, match="batch: an object inside"):
        wire.decode_batch_request(call)
    with pytest.raises(InvalidInputError, match="batch: 'operations' is given twice"):
        wire.decode_batch_request(b'{"operations":[],"operations":[]}')


def test_the_same_key_in_different_objects_is_none_that_stands_twice() -> None:
    body = b'{"progression_id":"a\\":b, \\\\", "node":{"name":"progression_id: {}", "weight":1}, "limit":5}'
    assert {"progression_id", "node", "limit"} == Codec.of(script).decode_params(body).keys()
    call = b'{"operations":[{"operation":"a"},{"operation":"a","params":{"operation":[{"a":1},{"a":1}]}}]}'
    assert 2 == len(wire.decode_batch_request(call).operations)


def test_deep_nesting_is_refused_both_ways() -> None:
    def free(conn: object, /, value: dict[str, Any]) -> None:
        raise AssertionError("only the signature is used")

    codec = Codec.of(free)
    with pytest.raises(InvalidInputError, match="too deeply"):
        codec.decode_params(b'{"value":{"a":' + b"[" * 100_000)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidInputError, match="too deeply"):
        codec.encode({"value": deep})


@pytest.mark.parametrize(
    "value",
    [
        math.nan, [math.inf], {"a": [{"b": -math.inf}]}, (1.0, math.nan), {"a": None, 1: math.nan}, {"a": 10**5_000},
        "\ud800", {"\udfff": 1}, {"\udfff": 1, 2: 1}, object(), {"a": 1, (): 1},
    ],
)  # fmt: skip
def test_what_json_cannot_carry_is_refused(value: object) -> None:
    with pytest.raises(InvalidInputError):
        wire.encode(value)


def test_keys_that_are_no_text_are_written_as_json_does() -> None:
    value = {2: "a", "b": {None: 1, True: [None, b"x"], 2.5: "\u00e9"}, 10: ()}
    expected = {"2": "a", "b": {"null": 1, "true": [None, "eA=="], "2.5": "\u00e9"}, "10": []}
    for encoder in (wire.encode, wire.canonical, wire.encode_result):
        assert expected == json.loads(encoder(value))
    assert b'{"10":1,"2":{"a":1,"b":2}}' == wire.canonical({2: {"b": 2, "a": 1}, 10: 1})


@pytest.mark.parametrize(
    "value",
    [
        "half \ud83d, whole \U0001f600", {"\ud800": ["\udfff", None, 5, -0.5, True, 2**70]},
        [math.inf, {"a": -math.inf}], {}, [[], {}, ["\ud800"]], {"a\n\"\\": 1e300, "b": "\ud83d"},
    ],
    ids=ascii,
)  # fmt: skip
def test_what_is_stored_is_answered(value: object) -> None:
    """Alone and within a batch, as an answer in JSON's grammar that other readers take too."""

    def read(conn: object, /) -> Any:
        raise AssertionError("only the signature is used")

    codec = Codec.of(read)
    body = codec.encode_result(value)
    assert value == codec.decode_result(body) == json.loads(body)
    batch = b'{"results":[{"outcome":"written","result":' + body + b'},{"outcome":"unknown","error":{"code":"x"}}]}'
    one, other = wire.decode_batch_response(batch, expected=2)
    assert value == codec.decode_result(one.result)
    assert {"code": "x"} == other.error
    with pytest.raises(WireError):
        wire.decode_batch_response(batch, expected=1)


def test_nan_is_answered_as_null_and_depth_has_no_bound() -> None:
    assert b'{"a":[null,1.5,null]}' == wire.encode_result({"a": [math.nan, 1.5, None]})
    assert b'{"items":[[1,"\\ud800"]],"next":null}' == wire.encode_result(Page([(1, "\ud800")]))
    assert Page([(1, "\ud800")]) == Codec.of(script).decode_result(wire.encode_result(Page([(1, "\ud800")])))
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    assert b"[" * 5_001 + b"]" * 5_001 == wire.encode_result(deep)
    for bad in (
        b'"\\ud800"',
        b'{"items":[[1,"\\ud800"]],"next":"x"}',
        b'{"items":[[NaN,"\\ud800"]]}',
        b"\xff",
        b"1e999",
    ):
        with pytest.raises(WireError):
            Codec.of(script).decode_result(bad)


def test_big_integers_survive() -> None:
    def number(conn: object, /, n: int) -> int:
        raise AssertionError("only the signature is used")

    codec = Codec.of(number)
    assert codec.decode_params(codec.encode({"n": 2**70})) == {"n": 2**70}


def every_error() -> list[StateError]:
    classes = [getattr(errors, name) for name in errors.__all__]
    return [c("said") for c in classes if isinstance(c, type) and issubclass(c, StateError)]


@pytest.mark.parametrize("error", every_error(), ids=lambda error: error.code)
def test_every_error_survives_the_wire(error: StateError) -> None:
    document = wire.problem(error)
    assert {"type", "title", "status", "detail", "code"} <= document.keys()
    back = wire.decode_problem(wire.encode(document))
    assert (type(back), str(back)) == (type(error), "said")


def test_problem_members() -> None:
    busy = wire.problem(errors.BackendBusyError(retry_after_seconds=2.5), request_id="r")
    assert (busy["outcome"], busy["retry_after_seconds"], busy["request_id"]) == ("not_written", 2.5, "r")
    assert wire.error_from_problem(busy).retry_after_seconds == 2.5
    blocked = wire.problem(errors.ProgressionBlockedError(reason="nul_in_id"))
    assert blocked["reason"] == "nul_in_id"
    back = wire.error_from_problem(blocked)
    assert isinstance(back, errors.ProgressionBlockedError)
    assert back.reason == "nul_in_id"
    assert wire.problem(errors.OutcomeUnknownError())["outcome"] == "unknown"
    assert "outcome" not in wire.problem(StateError())
    for bad in (b"<html>", b"[]", b"{}", b'{"code":5}', b"[" * 100_000):
        assert isinstance(wire.decode_problem(bad), WireError)


def test_batches_keep_results_as_json() -> None:
    request = wire.decode_batch_request(
        b'{"operations":[{"operation":"f","params":{"a": 1},"idempotency_key":null},{"operation":"g"}]}'
    )
    assert [bytes(call.params) for call in request.operations] == [b'{"a": 1}', b"{}"]
    assert not request.atomic
    for bad in (b"{}", b'{"operations":[],"x":1}', b'{"operations":5}', b"{"):
        with pytest.raises(InvalidInputError):
            wire.decode_batch_request(bad)
    replies = wire.decode_batch_response(b'{"results":[{"outcome":"written","result":[1]}]}', expected=1)
    assert bytes(replies[0].result) == b"[1]"
    for body in (b'{"results":[]}', b"x", b'{"results":[{"outcome":"maybe"}]}'):
        with pytest.raises(WireError):
            wire.decode_batch_response(body, expected=1)
