"""Messages: insert, read, classes, what is refused (ADR-0055 D1)."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lionstate.errors import InvalidInputError, MalformedCollectionError
from lionstate.schema.types import RawJson
from tests.support.backends import Backend
from tests.support.conversations import INSTRUCTION, conversation, message, stored_message

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
contents = st.dictionaries(texts, json_values, max_size=4)
embeddings = st.none() | st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=5)


async def test_a_message_reads_as_it_was_written(state: Any) -> None:
    written = message(
        node_metadata={"lion_class": INSTRUCTION, "k": [1, None]},
        content={"text": "naïve ✓", "nested": {"a": [1.5, True]}},
        embedding=[0.5, -2.0],
        sender="u",
        recipient="b",
        channel="c",
    )
    await state.insert_message(written)
    expected = {**written, "lion_class": 2, "lion_class_str": INSTRUCTION}
    assert expected == await state.get_message("m")


async def test_what_is_absent_reads_as_none(state: Any) -> None:
    await state.insert_message(message())
    assert stored_message() == await state.get_message("m")
    assert await state.get_message("missing") is None
    assert await state.get_message("no\0such") is None


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(contents, embeddings, st.none() | contents), min_size=1, max_size=4))
async def test_any_mapping_and_any_embedding_come_back(state: Any, rows: Any) -> None:
    written = [
        message(f"m{position}", content=content, embedding=embedding, node_metadata=metadata)
        for position, (content, embedding, metadata) in enumerate(rows)
    ]
    await state.insert_messages(written)
    found = await state.get_messages([row["id"] for row in written])
    for row in written:
        stored = found[row["id"]]
        assert (row["content"], row["embedding"]) == (stored["content"], stored["embedding"])
        assert row["node_metadata"] == stored["node_metadata"]


async def test_content_may_be_any_json_value(state: Any) -> None:
    for content in ([], [1, "a"], "text", '{"a": 1}', True, 7, 1.5, {}):
        await state.insert_message(message(content=content))
        found = await state.get_message("m")
        assert (type(content), content) == (type(found["content"]), found["content"])


async def test_stored_forms_are_those_of_the_field(backend: Backend, state: Any) -> None:
    await state.insert_message(message(content={"t": "é"}, embedding=[1.0, 2.5], node_metadata=None))
    (row,) = await backend.rows(
        "SELECT CAST(content AS TEXT) AS content, CAST(node_metadata AS TEXT) AS node_metadata, embedding FROM messages"
    )
    assert {"content": '{"t": "\\u00e9"}', "node_metadata": "null"} == {k: row[k] for k in ("content", "node_metadata")}
    assert struct.pack("<2f", 1.0, 2.5) == bytes(row["embedding"])


async def test_encoded_json_is_stored_as_given(backend: Backend, state: Any) -> None:
    text = '{"b":1,  "a":[1.50]}'
    await state.insert_message(message(content=RawJson(text)))
    (row,) = await backend.rows("SELECT CAST(content AS TEXT) AS content FROM messages")
    # Through the daemon the value arrives, not its spelling.
    assert row["content"] == text if state is backend.direct else json.loads(row["content"]) == json.loads(text)
    assert {"a": [1.5], "b": 1} == (await state.get_message("m"))["content"]


async def test_packed_embeddings_and_uuids_are_accepted(state: Any) -> None:
    unique = UUID("12345678123456781234567812345678")
    await state.insert_message(message(content={"id": unique}, embedding=struct.pack("<2f", 0.25, 8.0)))
    found = await state.get_message("m")
    assert ({"id": str(unique)}, [0.25, 8.0]) == (found["content"], found["embedding"])


async def test_the_same_id_overwrites_all_but_the_creation_time(state: Any) -> None:
    await state.insert_message(message(sender="u", embedding=[1.0], node_metadata={"lion_class": INSTRUCTION}))
    await state.insert_message(message(created_at=9.0, role="assistant", content=[1]))
    assert stored_message(role="assistant", content=[1]) == await state.get_message("m")


_BAD = {
    "no id": {k: v for k, v in message().items() if k != "id"},
    "no content": {k: v for k, v in message().items() if k != "content"},
    "no role": {k: v for k, v in message().items() if k != "role"},
    "no created_at": {k: v for k, v in message().items() if k != "created_at"},
    "content None": message(content=None),
    "content encoded null": message(content=RawJson(" null")),
    "content no JSON": message(content=RawJson("{")),
    "content nan": message(content={"x": float("nan")}),
    "content inf": message(content={"x": [float("inf")]}),
    "content object": message(content={"x": object()}),
    "metadata inf": message(node_metadata={"x": float("-inf")}),
    "role blank": message(role=" \t"),
    "role None": message(role=None),
    "role number": message(role=3),
    "id number": message(3),  # type: ignore[arg-type]
    "id NUL": message("a\0b"),
    "sender surrogate": message(sender="\ud800"),
    "time text": message(created_at="now"),
    "time nan": message(created_at=float("nan")),
    "time bool": message(created_at=True),
    "embedding inf": message(embedding=[float("inf")]),
    "embedding beyond float32": message(embedding=[1e39]),
    "embedding text inside": message(embedding=[1.0, "x"]),
    "embedding of three bytes": message(embedding=b"abc"),
    "embedding packed nan": message(embedding=struct.pack("<f", float("nan"))),
    "embedding mapping": message(embedding={"a": 1.0}),
    "embedding no base64": message(embedding="!"),
    "no mapping": [("id", "m")],
}


async def test_what_has_no_stored_form_is_refused_before_anything_is_written(backend: Backend, state: Any) -> None:
    await conversation(backend)
    for name, bad in _BAD.items():
        calls = [
            state.insert_message(bad),
            state.insert_messages([message("good"), bad], progression_ids=["bp"], session_id="s"),
            state.record_message(bad, "s", "bp", "sp"),
        ]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [(name, True)] * 3 == [(name, isinstance(found, InvalidInputError)) for found in outcomes]
        assert isinstance(outcomes[0], ValueError)
    assert [] == await backend.rows("SELECT id FROM messages")
    assert [] == await state.get_progression("bp")
    assert 10.0 == (await state.get_session("s"))["updated_at"]


async def test_get_messages_collapses_duplicates_and_leaves_absent_ids_out(state: Any) -> None:
    ids = [f"m{number:04d}" for number in range(1203)]
    await state.insert_messages([message(found) for found in ids])
    assert {} == await state.get_messages([])
    assert {"m0001", "m0002"} == (await state.get_messages(["m0001", "m0002", "m0001", "missing"])).keys()
    everything = await state.get_messages(ids)
    assert {found: stored_message(found) for found in ids} == everything
    with pytest.raises(InvalidInputError):
        await state.get_messages("m0001")


async def test_an_unseen_class_gets_an_id_once(backend: Backend, state: Any) -> None:
    rows = [message(f"m{number}", node_metadata={"lion_class": f"pkg.New{number % 3}"}) for number in range(12)]
    await asyncio.gather(*(state.insert_message(row) for row in rows))
    for number, row in enumerate(rows):
        assert f"pkg.New{number % 3}" == (await state.get_message(row["id"]))["lion_class_str"]
    found = await backend.rows("SELECT lion_class FROM message_types WHERE type_id > 5 ORDER BY lion_class")
    assert ["pkg.New0", "pkg.New1", "pkg.New2"] == [row["lion_class"] for row in found]


async def test_two_handles_agree_on_a_class(backend: Backend, state: Any) -> None:
    """Two processes' worth of writers meet the same unseen classes at once."""
    async with type(backend.direct)(url=backend.direct.url) as other:
        calls = [
            handle.insert_message(message(f"{name}{number}", node_metadata={"lion_class": f"pkg.Race{number % 4}"}))
            for number in range(16)
            for name, handle in (("a", state), ("b", other))
        ]
        await asyncio.gather(*calls)
    found = await backend.rows("SELECT lion_class FROM message_types WHERE type_id > 5 ORDER BY lion_class")
    assert [f"pkg.Race{number}" for number in range(4)] == [row["lion_class"] for row in found]


async def test_a_message_without_a_class_has_the_unknown_one(state: Any) -> None:
    for metadata in (None, {}, [], "text", {"lion_class": None}, {"lion_class": 3}):
        await state.insert_message(message(node_metadata=metadata))
        found = await state.get_message("m")
        assert (0, "__unknown__", metadata) == (found["lion_class"], found["lion_class_str"], found["node_metadata"])


async def test_a_sequence_behind_the_ids_in_use_is_passed(backend: Backend, state: Any) -> None:
    """LionAGI seeds ids 0 to 5 without moving PostgreSQL's sequence (reference 1.2)."""
    if backend.is_postgresql:
        await backend.execute("ALTER SEQUENCE message_types_type_id_seq RESTART WITH 1")
    await state.insert_message(message(node_metadata={"lion_class": "pkg.AfterSeeds"}))
    found = await state.get_message("m")
    assert "pkg.AfterSeeds" == found["lion_class_str"]
    assert found["lion_class"] > 5


async def test_insert_messages_extends_in_batch_order(backend: Backend, state: Any) -> None:
    await conversation(backend)
    await backend.put_progression("old", json.dumps(["m3", "x"]))
    batch = [message("m1"), message("m2"), message("m1", content={"text": "last"}, created_at=6.0), message("m3")]
    await state.insert_messages(batch, progression_ids=["bp", "missing", "old", "bp"], session_id="s", activity_at=20.0)
    assert ["m1", "m2", "m3"] == await state.get_progression("bp")
    assert ["m3", "x", "m1", "m2"] == await state.get_progression("old")
    assert stored_message("m1", content={"text": "last"}) == await state.get_message("m1")
    session = await state.get_session("s")
    assert (20.0, 20.0) == (session["last_message_at"], session["updated_at"])


async def test_insert_messages_of_nothing_changes_nothing(backend: Backend, state: Any) -> None:
    await conversation(backend)
    await state.insert_messages([], progression_ids=["bp"], session_id="s", activity_at=99.0)
    await state.insert_messages([message()], session_id="missing")
    assert 10.0 == (await state.get_session("s"))["updated_at"]
    for bad in ("m", {"id": "m"}, 3):
        with pytest.raises(InvalidInputError):
            await state.insert_messages(bad)


async def test_a_batch_on_an_unreadable_progression_writes_no_message(backend: Backend, state: Any) -> None:
    await conversation(backend)
    await backend.put_progression("bad", '{"a": 1}')
    with pytest.raises(MalformedCollectionError):
        await state.insert_messages([message("m1"), message("m2")], progression_ids=["bp", "bad"], session_id="s")
    assert {} == await state.get_messages(["m1", "m2"])
    assert [] == await state.get_progression("bp")


EXACT = [0.1 + 0.2, 1.7976931348623157e308, 5e-324, -1.055793262614264e-300, 2**53 + 1, 2**63 - 1, -(2**63), 5, 1e18]


async def test_a_bare_number_keeps_its_digits(state: Any) -> None:
    """A number as the whole of a JSON value is read as it was written, or refused before anything is written."""
    for place, number in enumerate(EXACT):
        mid = f"n{place}"
        row = {"id": mid, "created_at": 1.0, "role": "user", "content": number, "node_metadata": number}
        await state.insert_message(row)
        found = await state.get_message(mid)
        assert (repr(float(number)), number) == (repr(float(found["content"])), found["content"])
        assert number == found["node_metadata"]
        event_id = await state.insert_admin_event(action="a", details={"n": 2**100}, target_id=mid)
        (event,) = await state.list_admin_events(target_id=mid)
        assert (event_id, 2**100) == (event["id"], event["details"]["n"])
    for number in (2**63, -(2**63) - 1, 2**64 + 1, 2**100):
        with pytest.raises(InvalidInputError, match="64 bits"):
            await state.insert_message({"id": "no", "created_at": 1.0, "role": "user", "content": number})
        await state.insert_message({"id": "in", "created_at": 1.0, "role": "user", "content": [number]})
        assert [number] == (await state.get_message("in"))["content"]
    assert await state.get_message("no") is None
