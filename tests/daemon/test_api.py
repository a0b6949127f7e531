"""The API against a fake store on a Unix socket: answers, problem documents, bounds."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from yarl import URL

from lionstated.api import Verb
from tests.daemon.conftest import Serving
from tests.daemon.fakes import FakeStore

pytestmark = pytest.mark.anyio
APPEND = "/v1/ops/append_to_progression"


async def problem_of(response: aiohttp.ClientResponse, status: int, code: str) -> dict[str, Any]:
    assert status == response.status, await response.text()
    assert response.content_type == "application/problem+json"
    document: dict[str, Any] = await response.json(content_type=None)
    assert (status, code) == (document["status"], document["code"])
    return document


async def test_an_operation_runs_and_answers_json(serving: Serving, http: aiohttp.ClientSession) -> None:
    async with serving():
        response = await http.post(APPEND, json={"progression_id": "p", "message_id": "m"})
        assert (response.status, await response.read()) == (200, b"null")
        response = await http.post("/v1/ops/get_progression", json={"progression_id": "p"})
        assert await response.json() == ["m"]


@pytest.mark.parametrize(
    ("progression_id", "status", "code", "outcome"),
    [
        ("blocked", 409, "progression_blocked", "not_written"),
        ("busy", 503, "backend_busy", "not_written"),
        ("unknown", 500, "outcome_unknown", "unknown"),
        ("bug", 500, "outcome_unknown", "unknown"),
    ],
)
async def test_errors_are_problem_documents(
    serving: Serving, http: aiohttp.ClientSession, progression_id: str, status: int, code: str, outcome: str
) -> None:
    async with serving():
        response = await http.post(APPEND, json={"progression_id": progression_id, "message_id": "m"})
        document = await problem_of(response, status, code)
    assert outcome == document["outcome"]
    assert "secret" not in str(document)
    if progression_id == "blocked":
        assert document["reason"] == "malformed_json"
    if progression_id == "busy":
        assert (document["retry_after_seconds"], response.headers["retry-after"]) == (1.5, "2")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "not valid JSON"),
        (b'{"progression_id": 5, "message_id": "m"}', "progression_id must be str"),
        (b'{"progression_id": "p"}', "message_id is missing"),
        (b'{"progression_id": "p", "message_id": "m", "x": 1}', "no parameter 'x'"),
        (b'{"progression_id": "\\ud800", "message_id": "m"}', "not valid JSON"),
        (b"[" * 100_000, "must be object"),
        (b'{"progression_id": "p", "message_id": "m", "message_id": "m"}', "'message_id' is given twice"),
    ],
)
async def test_bad_input_stops_at_the_door(
    serving: Serving, http: aiohttp.ClientSession, store: FakeStore, body: bytes, said: str
) -> None:
    async with serving():
        response = await http.post(APPEND, data=body, headers={"Content-Type": "application/json"})
        document = await problem_of(response, 400, "invalid_input")
    assert said in document["detail"]
    assert store.runs == []


async def test_other_refusals(serving: Serving, http: aiohttp.ClientSession) -> None:
    body = {"progression_id": "p", "message_id": "m"}
    async with serving():
        await problem_of(await http.post("/v1/ops/nope", json={}), 404, "not_found")
        await problem_of(await http.get("/nope"), 404, "not_found")
        await problem_of(await http.get("/v1/batch/"), 404, "not_found")
        response = await http.get(APPEND)
        await problem_of(response, 405, "invalid_input")
        assert response.headers["allow"] == "POST"
        await problem_of(await http.post(APPEND, data=b"{}"), 400, "invalid_input")
        for name, value in (
            ("Lionstate-Deadline-Ms", "soon"),
            ("Idempotency-Key", "k k"),
            ("Idempotency-Key", "k" * 256),
        ):
            response = await http.post(APPEND, json=body, headers={name: value})
            await problem_of(response, 400, "invalid_input")
        twice = [("Idempotency-Key", "k"), ("Idempotency-Key", "k")]
        await problem_of(await http.post(APPEND, json=body, headers=twice), 400, "invalid_input")


async def test_size_cap_with_and_without_a_length(serving: Serving, http: aiohttp.ClientSession) -> None:
    async def chunks() -> Any:
        for _ in range(5):
            yield b" " * 1000

    async with serving(listen__max_request_bytes="2048"):
        headers = {"Content-Type": "application/json"}
        await problem_of(await http.post(APPEND, data=b" " * 4096, headers=headers), 413, "invalid_input")
        await problem_of(await http.post(APPEND, data=chunks(), headers=headers), 413, "invalid_input")
        response = await http.post(APPEND, json={"progression_id": "p", "message_id": "m"})
        assert response.status == 200


async def test_deadline_header_is_capped_by_the_setting(
    serving: Serving, http: aiohttp.ClientSession, store: FakeStore
) -> None:
    now = asyncio.get_running_loop().time
    async with serving(queue__deadline_ms="2000"):
        for asked, least, most in (("500", 0.0, 0.5), ("9999999", 1.0, 2.0)):
            before = now()
            await http.post(
                "/v1/ops/get_progression",
                json={"progression_id": "p"},
                headers={"Lionstate-Deadline-Ms": asked},
            )
            deadline = store.deadlines[-1]
            assert deadline is not None
            assert before + least < deadline < now() + most


async def test_batch_keeps_order_and_gives_each_its_outcome(
    serving: Serving, http: aiohttp.ClientSession, store: FakeStore
) -> None:
    def call(progression_id: object, operation: str = "append_to_progression") -> dict[str, Any]:
        return {"operation": operation, "params": {"progression_id": progression_id, "message_id": "m"}}

    calls = [call("a"), call(5), call("blocked"), call("x", "nope"), call("unknown"), call("b")]
    async with serving():
        response = await http.post("/v1/batch", json={"operations": calls, "atomic": False})
        results = (await response.json())["results"]
        outcomes = ["written", "not_written", "not_written", "not_written", "unknown", "written"]
        assert outcomes == [result["outcome"] for result in results]
        codes = [result["error"]["code"] for result in results if "error" in result]
        assert codes == ["invalid_input", "progression_blocked", "not_found", "outcome_unknown"]
        assert results[0] == {"outcome": "written", "result": None}
        assert store.batches == [4]
        response = await http.post("/v1/batch", json={"operations": [call("a"), call(5)], "atomic": True})
        await problem_of(response, 400, "invalid_input")
        assert store.batches == [4]


async def test_a_batch_of_reads_takes_no_turn_of_the_writer(
    serving: Serving, http: aiohttp.ClientSession, store: FakeStore
) -> None:
    reads = [{"operation": "get_progression", "params": {"progression_id": p}} for p in ("a", "blocked")]
    async with serving():
        results = (await (await http.post("/v1/batch", json={"operations": reads})).json())["results"]
    assert [result["outcome"] for result in results] == ["written", "not_written"]
    assert (store.batches, len(store.runs)) == ([], 2)


async def test_a_written_result_without_json_form_is_unknown(serving: Serving, http: aiohttp.ClientSession) -> None:
    async with serving():
        response = await http.post("/v1/ops/put_number", json={"key": "odd", "number": 1})
        await problem_of(response, 500, "outcome_unknown")
        response = await http.post("/v1/ops/put_number", json={"key": "nan", "number": 1})
        assert (200, None) == (response.status, await response.json())


async def test_the_two_reads_for_curl(serving: Serving, http: aiohttp.ClientSession, store: FakeStore) -> None:
    store.rows["a/b"] = ["m0", "m1", "m2"]
    async with serving():
        response = await http.get("/v1/progressions/a%2Fb")
        assert await response.json() == ["m0", "m1", "m2"]
        response = await http.get("/v1/progressions/a%2Fb/items?after=0&limit=1")
        assert (await response.json(), response.headers["lionstate-generation"]) == ([[1, "m1"]], "7")
        for text in ("nl\nid", "end\n", "\nbegin", "x/items\n"):
            store.rows[text] = ["m"]
            address = f"/v1/progressions/{quote(text, safe='')}"
            assert ["m"] == await (await http.get(URL(address, encoded=True))).json()
            assert [[0, "m"]] == await (await http.get(URL(f"{address}/items", encoded=True))).json()
        for address in ("%ff", "%ff/items", "a%C3"):
            answer = await http.get(URL(f"/v1/progressions/{address}", encoded=True))
            await problem_of(answer, 400, "invalid_input")
        await problem_of(await http.get("/v1/progressions/p/items?limit=x"), 400, "invalid_input")
        await problem_of(await http.get("/v1/progressions/p/items?what=1"), 400, "invalid_input")
        answer = await http.get("/v1/progressions/p/items?limit=1&limit=2")
        assert "twice in the query" in (await problem_of(answer, 400, "invalid_input"))["detail"]


async def test_a_key_stands_twice_in_a_batch(serving: Serving, http: aiohttp.ClientSession, store: FakeStore) -> None:
    call = b'{"operation": "append_to_progression", "params": {"progression_id": "p", "message_id": "m"}}'
    body = (
        b'{"operations": [' + call + b", " + call.replace(b'"message_id"', b'"message_id": "a", "message_id"') + b"]}"
    )
    async with serving():
        answer = await http.post("/v1/batch", data=body, headers={"Content-Type": "application/json"})
        assert "has a key twice" in (await problem_of(answer, 400, "invalid_input"))["detail"]
    assert store.runs == []


async def test_an_unknown_field_of_a_batch_is_named(serving: Serving, http: aiohttp.ClientSession) -> None:
    async with serving():
        answer = await http.post("/v1/batch", json={"operations": [{"operation": "x", "parms": {}}]})
        assert "field 'parms'" in (await problem_of(answer, 400, "invalid_input"))["detail"]


async def test_migration_verbs_come_from_a_table(serving: Serving, http: aiohttp.ClientSession) -> None:
    async def status(*, verbose: bool = False) -> dict[str, Any]:
        return {"verbose": verbose}

    async def remove(*, reason: str) -> str:
        return reason

    verbs = {"status": Verb("GET", status), "fence/remove": Verb("POST", remove)}
    async with serving({"verbs": verbs}):
        response = await http.get("/v1/migration/status?verbose=true")
        assert await response.json() == {"verbose": True}
        response = await http.post("/v1/migration/fence/remove", json={"reason": "r"})
        assert await response.json() == "r"
        await problem_of(await http.post("/v1/migration/status", json={}), 405, "invalid_input")
        await problem_of(await http.get("/v1/migration/nope"), 404, "not_found")


async def test_openapi_is_generated_from_the_table(serving: Serving, http: aiohttp.ClientSession) -> None:
    async with serving():
        document = await (await http.get("/openapi.json")).json()
    assert document["paths"][APPEND]["post"]["summary"] == "Append one id."
    params = document["components"]["schemas"]["append_to_progression_params"]
    assert params["required"] == ["progression_id", "message_id"]
    assert "/v1/batch" in document["paths"]


async def test_openapi_has_every_route(serving: Serving, http: aiohttp.ClientSession) -> None:
    """Design §5: the two reads, the verbs of migration, and the probes of the other listener."""

    async def status(*, limit: int = 100) -> dict[str, Any]:
        """Tell how far it is."""
        raise AssertionError("only the signature is used")

    async def pause(*, reason: str | None = None) -> None:
        raise AssertionError("only the signature is used")

    async with serving({"verbs": {"status": Verb("GET", status), "pause": Verb("POST", pause)}}):
        document = await (await http.get("/openapi.json")).json()
    paths = document["paths"]
    page = paths["/v1/progressions/{id}/items"]["get"]
    optional = [(name, "query", False) for name in ("after", "limit", "wait_seconds")]
    assert [("id", "path", True), *optional] == [
        (one["name"], one["in"], one["required"]) for one in page["parameters"]
    ]
    assert "lionstate-generation" in page["responses"]["200"]["headers"]
    assert ["id"] == [one["name"] for one in paths["/v1/progressions/{id}"]["get"]["parameters"]]
    assert "Tell how far it is." == paths["/v1/migration/status"]["get"]["summary"]
    assert ["limit"] == [one["name"] for one in paths["/v1/migration/status"]["get"]["parameters"]]
    assert "requestBody" in paths["/v1/migration/pause"]["post"]
    for probe in ("/", "/status.json", "/metrics", "/livez", "/readyz"):
        assert "listen.ops" == paths[probe]["servers"][0]["description"]
    names = [method["operationId"] for path in paths.values() for key, method in path.items() if key in ("get", "post")]
    assert len(names) == len(set(names))


async def test_a_caller_that_goes_away_drops_its_operation(
    serving: Serving, http: aiohttp.ClientSession, store: FakeStore
) -> None:
    async with serving():
        store.gate = type(store.gate)()
        body = {"progression_id": "p", "message_id": "m"}
        task = asyncio.create_task(http.post(APPEND, json=body))
        await store.entered.wait()
        task.cancel()
        await store.cancelled.wait()
        assert store.rows == {}


async def test_monitoring_answers_from_memory(serving: Serving, store: FakeStore) -> None:
    async with serving() as daemon, aiohttp.ClientSession(daemon.addresses["ops"]) as http:
        response = await http.get("/metrics", allow_redirects=False)
        assert (response.status, response.content_type) == (200, "text/plain")
        assert "lionstate_up 1.0\n" in await response.text()
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        response = await http.get("/metrics", headers=accept)
        assert response.content_type == "application/openmetrics-text"
        assert (await response.text()).endswith("# EOF\n")
        assert await (await http.get("/readyz")).json() == {"state": "ready"}
        assert (await http.get("/livez")).status == 200
        assert (await http.get("/v1/ops/get_progression")).status == 404
    assert store.runs == []
