"""Where pure work runs."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import anyio.to_process
import pytest

from lionstate.engine import Continued, offload


def _doubled(text: str) -> str:
    return text * 2


@pytest.mark.parametrize("size", [10, 100_000, 20_000_000])
async def test_it_runs_whatever_the_size(size: int) -> None:
    assert "xx" == await offload.run_pure(_doubled, "x", size)


def _texts(text: str) -> list[str]:
    return [text] * 20_001


async def test_a_long_text_goes_through_memory_and_not_through_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces, taken in a thread; where there is no such memory it goes through the pipe as before."""
    monkeypatch.setattr(offload, "_PIECE_CHARS", 3)
    monkeypatch.setattr(offload, "_PROCESS_BYTES", 0)
    monkeypatch.setattr(offload, "_INLINE_BYTES", 0)
    sent, taken, here = [], [], threading.get_ident()
    run_sync, take = anyio.to_process.run_sync, offload._taken

    async def noted(*arguments: Any) -> Any:
        sent.append(arguments)
        return await run_sync(*arguments)

    def taking(memory: Any) -> Any:
        taken.append(threading.get_ident() != here)
        return take(memory)

    monkeypatch.setattr(anyio.to_process, "run_sync", noted)
    monkeypatch.setattr(offload, "_taken", taking)
    text = "m\u00e9ssage \U0001f600 \ud800 of a text"
    assert [text] * 20_001 == await offload.run_pure(_texts, text, len(text))
    assert ([True], 1) == (taken, len(sent))
    assert text not in sent[0]
    monkeypatch.delattr(os, "memfd_create")
    assert "xx" == await offload.run_pure(_doubled, "x", 1)
    assert (2, "x") == (len(sent), sent[1][-1])


def test_a_script_without_a_guard_is_served_too(tmp_path: Path) -> None:
    """A child process imports the main module again, which such a script would run again."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import asyncio
            from lionstate.engine.offload import run_pure
            print(asyncio.run(run_pure(len, "abc", 20_000_000)))
            """
        )
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=50, check=True)
    assert "3" == done.stdout.splitlines()[-1]


def _as_they_are(values: dict[str, object]) -> dict[str, object]:
    return values


def _to_read(text: str) -> Continued[object]:
    return Continued(functools.partial(_as_they_are, values=[text] * 20_001, first=1))


async def test_what_is_to_be_read_next_comes_back_in_pieces_too() -> None:
    packed = offload._pack(_to_read("x")).script.keywords
    assert (3, 1) == (len(packed["values"].pieces), packed["first"])
    found: Any = (await offload.run_pure(_to_read, "x", 20_000_000)).script
    assert (_as_they_are, {"values": ["x"] * 20_001, "first": 1}) == (found.func, found.keywords)


async def test_long_lists_go_to_a_child_and_back_in_pieces() -> None:
    values = {"a": list(range(25_000)), "b": (("x",) * 10_001, [1, None]), "c": {"d": 1.5}, "e": []}
    packed = offload._pack(values)
    assert [3, 2] == [len(packed["a"].pieces), len(packed["b"][0].pieces)]
    assert values == offload._unpack(packed)
    assert values == await offload.run_pure(_as_they_are, values, 20_000_000)
