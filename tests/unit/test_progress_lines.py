"""What a long command says of itself on stderr when that is a pipe or a file: lines, and seldom."""

from __future__ import annotations

import asyncio

import pytest

from lionstate.cli import rehearse, render
from lionstate.errors import NotFoundError
from lionstate.migration import RehearsalStage


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    said = capsys.readouterr()
    assert "" == said.out
    return said.err.splitlines()


def test_each_stage_tells_how_far_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Minutes of `rehearse` on PostgreSQL had nothing to say without a terminal."""
    now = 0.0
    monkeypatch.setattr(render, "_clock", lambda: now)
    with render.stages(show=True) as advance:
        advance("copy", 500, 6_000)
        assert [] == told(capsys), "a short command stays silent"
        now = 10.0
        advance("copy", 1_500, 6_000)
        assert ["copy: 1,500 of 6,000"] == told(capsys)
        now = 19.0
        advance("copy", 6_000, 6_000)
        assert [] == told(capsys)
        now = 20.0
        advance("migrate", 3, 40)
        assert ["migrate: 3 of 40"] == told(capsys)


def test_a_count_without_an_end(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(render, "_clock", lambda: now)
    with render.counter("rows compared", show=True) as advance:
        now = 11.0
        advance(70_000)
    assert ["rows compared: 70,000"] == told(capsys)


@pytest.mark.parametrize("knows", [True, False])
def test_a_rehearsal_in_a_daemon_is_asked_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, knows: bool
) -> None:
    """A daemon of an earlier version does not know the question, and rehearses all the same."""
    now, asked = 0.0, asyncio.Event()

    class Service:
        async def rehearse(self, *, target: str | None) -> str | None:
            await asked.wait()
            return target

        async def rehearsal(self) -> RehearsalStage:
            nonlocal now
            asked.set()
            if not knows:
                raise NotFoundError
            now += 10.0
            return RehearsalStage("migrate", 3, 40)

    monkeypatch.setattr(render, "_clock", lambda: now)
    monkeypatch.setattr(rehearse, "_ASK_SECONDS", 0.0)
    monkeypatch.setattr(rehearse, "run_on_migration", lambda _, work: asyncio.run(work(Service())))
    assert "target" == rehearse._there((None, "d", None), "target", show=True)
    assert (["migrate: 3 of 40"] if knows else []) == told(capsys)[:1]


def test_machines_are_told_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(render, "_clock", lambda: now)
    with render.stages(show=False) as advance:
        now = 60.0
        advance("copy", 1, 2)
    assert [] == told(capsys)
