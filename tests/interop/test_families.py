"""Rows that LionAGI 0.36.0 wrote, lionstate reads equal, and the other way round.

Contract: ADR-0055 D1; reference §2.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from lionstate import StateDB
from tests.interop.conftest import LionAGI
from tests.interop.families import FAMILIES, Call

pytestmark = [
    pytest.mark.anyio,
    # The first one may have to make LionAGI's environment.
    pytest.mark.timeout(600),
    # Both packages say so of a status without a reason.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

_TRANSITIONS = "SELECT * FROM status_transitions WHERE entity_id LIKE :prefix ORDER BY created_at, id"
# LionAGI hands the text out on SQLite, where this is not decoded (reference §2.0).
_UNDECODED = ("details", "evidence_refs", "metadata")


def _plain(value: Any) -> Any:
    """A value as JSON carries it, so that both sides can be compared."""
    return json.loads(json.dumps(value))


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(one) for one in value]
    if isinstance(value, dict):
        texts = {name: json.loads(value[name]) for name in _UNDECODED if isinstance(value.get(name), str)}
        return {**{name: _decoded(one) for name, one in value.items()}, **texts}
    return value


def _assert_same(theirs: Any, ours: Any, where: str) -> None:
    """Equal, but for columns of ours that LionAGI leaves out of a list."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        assert theirs.keys() <= ours.keys(), where
        for name, value in theirs.items():
            _assert_same(value, ours[name], f"{where}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list):
        assert len(theirs) == len(ours), where
        for place, pair in enumerate(zip(theirs, ours, strict=True)):
            _assert_same(*pair, f"{where}[{place}]")
    else:
        assert theirs == ours, where


async def _run(state: StateDB, calls: Sequence[Call]) -> list[Any]:
    return [await getattr(state, method)(*args, **kwargs) for method, args, kwargs in calls]


def _run_there(lionagi: LionAGI, calls: Sequence[Call]) -> list[Any]:
    return [lionagi.call(method, *args, **kwargs) for method, args, kwargs in calls]


@pytest.mark.parametrize("writer", ["lionagi", "lionstate"])
@pytest.mark.parametrize("family", list(FAMILIES))
async def test_rows_of_either_are_read_equal_by_the_other(lionagi: LionAGI, url: str, family: str, writer: str) -> None:
    prefix = f"{family}-{writer}-"
    writes = FAMILIES[family].writes(prefix)
    async with StateDB(url=url) as state:
        results = await _run(state, writes) if writer == "lionstate" else _run_there(lionagi, writes)
        reads = FAMILIES[family].reads(prefix, results)
        theirs, ours = _run_there(lionagi, reads), await _run(state, reads)
        for (method, *_), there, here in zip(reads, theirs, ours, strict=True):
            assert here not in (None, []) or "missing" in str(reads), method
            _assert_same(_decoded(there), _plain(here), method)


@pytest.mark.parametrize("writer", ["lionagi", "lionstate"])
async def test_histories_are_read_equal(lionagi: LionAGI, url: str, writer: str) -> None:
    """LionAGI has no method for them: its query surface reads the rows."""
    prefix = f"history-{writer}-"
    writes = FAMILIES["status transitions"].writes(prefix)
    async with StateDB(url=url) as state:
        await (_run(state, writes) if writer == "lionstate" else _dump(lionagi, writes))
        theirs = _decoded(lionagi.call("fetch_all", _TRANSITIONS, {"prefix": f"{prefix}%"}))
        assert 3 <= len(theirs)
        ours = _plain(await state.list_status_transitions("session", f"{prefix}s"))
        _assert_same(sorted(theirs, key=_key), sorted(ours, key=_key), "transitions")


def _key(row: dict[str, Any]) -> str:
    return str(row["id"])


async def _dump(lionagi: LionAGI, writes: Sequence[Call]) -> None:
    _run_there(lionagi, writes)


async def test_one_goes_on_where_the_other_stopped(lionagi: LionAGI, url: str) -> None:
    """Numbers, versions, natural keys, claims and positions are of the store, not of the package."""
    p = "together-"
    signal = {"session_id": f"{p}s", "kind": "k", "ts": 1.0, "payload": {}}
    definition = {"kind": "agent", "name": p, "path": "", "content": ""}
    artifact = {"kind": "k", "name": p, "content": {}}
    control = {"session_id": f"{p}s", "verb": "stop"}
    _run_there(lionagi, FAMILIES["branches"].writes(p))
    async with StateDB(url=url) as state:
        sides = [lionagi.call, lambda method, **kwargs: getattr(state, method)(**kwargs)]
        numbers, versions, ids = [], [], set()
        for turn in range(4):
            side = sides[turn % 2]
            found = [
                side("insert_session_signal", **signal),
                side("save_definition", **definition),
                side("insert_artifact", **artifact),
            ]
            number, version, artifact_id = [one if turn % 2 == 0 else await one for one in found]
            numbers.append(number)
            versions.append(version)
            ids.add(artifact_id)
            await state.append_to_progression(f"{p}bp", f"ours-{turn}")
            lionagi.call("append_to_progression", f"{p}bp", f"theirs-{turn}")
            lionagi.call("append_to_progression", f"{p}bp", f"ours-{turn}")
        assert [1, 2, 3, 4] == numbers == versions
        assert 1 == len(ids)
        order = [f"{who}-{turn}" for turn in range(4) for who in ("ours", "theirs")]
        assert order == await state.get_progression(f"{p}bp") == lionagi.call("get_progression", f"{p}bp")
        asked = lionagi.call("insert_session_control", **control)
        claim = await state.mark_session_control_applying(asked, owner="us")
        assert lionagi.call("mark_session_control_applying", asked) is None
        assert lionagi.call("finalize_session_control", asked, result="done", expect_claim=claim) is True
        assert (await state.get_session_control(asked))["result"] == "done"
