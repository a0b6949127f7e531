"""``unblock --rebuild``: item rows of a frozen prefix written anew from its JSON (decisions 2, 4, 14)."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from lionstate.errors import BackendBusyError, InvalidInputError, NotFoundError, ParityError, PhaseConflictError
from lionstate.migration import Foreign, ProgressionMigrationService, Representation
from tests.migration.test_scrub import ALL, CHANGED, CORRUPTIONS, cut_over, rewrite, whole_pass
from tests.support.backends import Backend
from tests.support.migration import IDS, Staged, items_of, rows_of_everything, service_of, state_of


@pytest.mark.parametrize("name", ["row missing", "row altered", "record of the rows", "row missing, JSON appended to"])
async def test_rows_are_rebuilt_from_a_good_json(
    backend: Backend, state: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decisions 2, 4: the tail stays, everything is proved afterwards, and one that is cut short goes on."""
    monkeypatch.setattr("lionstate.migration.rebuild._CHUNK_ROWS", 3)
    await cut_over(backend, state)
    sql, text, *_ = CORRUPTIONS[name]
    assert sql is not None
    await backend.execute(sql)
    if text is not None:
        await rewrite(backend, text)
    if name == "row missing":
        await backend.execute("DELETE FROM progression_items WHERE progression_id = 'p' AND ordinal IN (0, 1, 6, 19)")
    staged = Staged(backend)
    service = ProgressionMigrationService(staged, actor="test")
    await service.scrub(progression_id="p")
    with pytest.raises(ParityError, match="rebuild"):
        await service.unblock("p", foreign=Foreign.ADOPT)
    before = (await state_of(backend))["generation"]

    async def after_the_first(stage: str) -> None:
        if stage == "rebuild" and [name for name, _ in staged.stages].count("rebuild") == 1:
            assert ALL == (await state.get_progression("p"))[: len(ALL)]
            await state.append_to_progression("p", "meanwhile")
            raise BackendBusyError

    staged.before = after_the_first
    with suppress(BackendBusyError):
        await service.unblock("p", foreign=Foreign.ADOPT, rebuild=True)
    staged.before = None
    if (await state_of(backend))["phase"] == "blocked":
        assert "items" == await service.unblock("p", foreign=Foreign.ADOPT, rebuild=True, reason="lost")
    theirs = ["theirs"] if "appended" in name else []
    appended = ["meanwhile"] if name == "row missing" else []
    expected = [*ALL, *appended, *theirs]
    assert expected == await state.get_progression("p")
    assert list(enumerate(expected)) == await items_of(backend)
    assert before != (await state_of(backend))["generation"]
    assert [{}] == [one.findings for one in await whole_pass(service)]
    audited = await backend.rows("SELECT actor FROM admin_events WHERE action = 'progression_migrate.rebuild'")
    assert len(audited) == (2 if name == "row missing" else 1)


async def test_what_cannot_be_rebuilt_is_refused(backend: Backend, state: Any) -> None:
    """Neither side is that of the cutover, the JSON is the authority, or nothing is blocked: nothing changes."""
    await cut_over(backend, state)
    service = service_of(backend)
    with pytest.raises(PhaseConflictError, match="not blocked"):
        await service.unblock("p", rebuild=True)
    with pytest.raises(NotFoundError):
        await service.unblock("nope", rebuild=True)
    await rewrite(backend, CHANGED)
    await service.scrub(progression_id="p")
    for authority, error, said in (
        ("items", ParityError, "not that of the cutover"),
        ("json", PhaseConflictError, "retry it"),
        ("none", PhaseConflictError, "say with use"),
    ):
        await backend.execute("UPDATE progression_storage_state SET authority = :one", one=authority)
        before = await rows_of_everything(backend)
        with pytest.raises(error, match=said):
            await service.unblock("p", rebuild=True)
        assert before == await rows_of_everything(backend)
    # Behind the cutover the JSON has nothing to give.
    await rewrite(backend, json.dumps(IDS))
    await backend.execute("UPDATE progression_storage_state SET authority = 'items'")
    await backend.execute("DELETE FROM progression_items WHERE progression_id = 'p' AND ordinal IN (3, 21)")
    before = await rows_of_everything(backend)
    with pytest.raises(ParityError, match="lack ordinal 21"):
        await service.unblock("p", rebuild=True)
    assert before == await rows_of_everything(backend)
    with pytest.raises(InvalidInputError):
        await service.unblock("p", use=Representation.ITEMS, rebuild=True)
