"""What a long command says of itself on stderr when that is a pipe or a file: lines, and seldom."""

from __future__ import annotations

import pytest

from lionstate.cli import render


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


def test_machines_are_told_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(render, "_clock", lambda: now)
    with render.stages(show=False) as advance:
        now = 60.0
        advance("copy", 1, 2)
    assert [] == told(capsys)
