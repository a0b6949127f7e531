"""The migration's verbs on somebody else's argparse command line (ADR-0117 D5, decision 31)."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

import pytest

from lionstate import StateDB
from lionstate.lionagi import mount


def _store(path: Path) -> str:
    async def create() -> None:
        async with StateDB(path, normalized=False) as state:
            await state.create_progression("p", ["a", "b"])

    asyncio.run(create())
    return str(path)


def _run(args: argparse.Namespace) -> int:
    code: int = args.run(args)
    return code


def _parse(*arguments: str, url: str | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tool")
    mount(parser.add_subparsers(), url=url)
    return parser.parse_args(["progression-migrate", *arguments])


class TestMount:
    def test_runs_each_verb_of_the_record_on_the_given_store(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        url = _store(tmp_path / "state.db")
        codes = []
        for arguments in (
            ("status", "--json"),
            ("step", "--progression", "p", "--json"),
            ("verify", "p"),
            ("compat-read", "p", "--enable"),
            ("compat-read", "p", "--disable"),
        ):
            args = _parse(*arguments, url=url)
            codes.append(_run(args))
        assert [0] * 5 == codes
        said = capsys.readouterr()
        assert '"json": 1' in said.out.replace('"json":1', '"json": 1')
        assert "" == said.err

    def test_gives_the_exit_code_of_the_command(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert 4 == _run(_parse("status", url=str(tmp_path / "missing.db")))
        assert "there is no store" in capsys.readouterr().err

    def test_lets_the_call_name_another_store(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        url = _store(tmp_path / "state.db")
        args = _parse("status", f"--url={url}", "--json", url=str(tmp_path / "missing.db"))
        assert 0 == _run(args)
        assert json.loads(capsys.readouterr().out)

    def test_lists_the_verbs(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            _parse("--help")
        assert 0 == ended.value.code
        said = capsys.readouterr().out
        assert all(verb in said for verb in ("status", "step", "verify", "compat-read"))

    def test_refuses_another_verb(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            _parse("explode")
        assert 2 == ended.value.code
        assert "invalid choice" in capsys.readouterr().err
