"""What a cutover does under its lock when own appends came after the proof (decision 7)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lionstate.dialects import dialect_of
from lionstate.migration import ProgressionMigrationService
from lionstate.progression.collection import append_text
from lionstate.progression.known_text import MAX_TAIL_IDS, KnownText
from tests.support.backends import Backend
from tests.support.migration import WHOLE, Staged, assert_cut_over, make_ids

IDS = [*make_ids(300), "é", "\N{GRINNING FACE}"]
TEXT = json.dumps(IDS, ensure_ascii=False)


async def test_own_appends_cost_no_transfer_of_the_history(
    backend: Backend, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server compares its own bytes; SQLite, which is in this process, reads the value once."""
    await backend.put_progression("p", TEXT)
    staged = Staged(backend)
    stages: list[str] = []
    reads: list[str] = []
    kind = type(staged.dialect)
    read = kind.collection_of

    def counted(self: Any, conn: Any, progression_id: str) -> Any:
        reads.extend(name for name in stages if name == "cutover")
        return read(self, conn, progression_id)

    async def before(name: str) -> None:
        if name == "cutover":
            await state.append_to_progression("p", f"late-{len(staged.stages)}")
        stages.append(name)

    async def after(_name: str, _result: Any) -> None:
        stages.clear()

    staged.before, staged.after = before, after
    monkeypatch.setattr(kind, "collection_of", counted)
    step = await ProgressionMigrationService(staged).step(**WHOLE)
    assert 1 == step.cut_over
    # The first try finds no fence and looks at nothing.
    results = staged.results("cutover")
    assert [False, True] == [result.value_compared for result in results]
    assert ([] if backend.is_postgresql else ["cutover"]) == reads
    late = [f"late-{place}" for place, (name, _) in enumerate(staged.stages) if name == "cutover"]
    await assert_cut_over(backend, [*IDS, *late])


GROWN = append_text(append_text(TEXT, "x"), "y")
FOUND = {
    "the same": (TEXT, "]"),
    "own appends": (GROWN, ', "x", "y"]'),
    "other bytes in the prefix": (TEXT.replace(IDS[7], "0" * 32), None),
    "other bytes in the prefix and an append": (GROWN.replace(IDS[7], "0" * 32), None),
    "the last byte of the prefix": (TEXT.replace("\N{GRINNING FACE}", "\N{GRINNING FACE WITH SMILING EYES}"), None),
    "a character that is cut in two": (TEXT[:-2] + "\N{GRINNING FACE}" * 3, None),
    "shorter": (json.dumps(IDS[:-1], ensure_ascii=False), None),
    "empty": ("", None),
    "too long behind it": (TEXT[:-1] + " " * (MAX_TAIL_IDS * 8_000) + "]", None),
}


@pytest.mark.parametrize("case", FOUND)
async def test_what_follows_a_known_text(backend: Backend, case: str) -> None:
    """The comparison under the lock says the same on every database, byte for byte."""
    text, rest = FOUND[case]
    known = KnownText.of(TEXT)
    assert known is not None
    await backend.put_progression("p", text)
    await backend.put_progression("known", TEXT)

    def look(conn: Any) -> list[str | None]:
        dialect = dialect_of(conn)
        read = dialect.collection_of(conn, "known")
        assert read is not None
        common = (known.prefix, known.prefix_bytes, read.seal, known.most_rest_bytes)
        return [dialect.text_behind(conn, pid, *common) for pid in ("p", "missing")]

    assert [rest, None] == await backend.direct.store.read(look)
