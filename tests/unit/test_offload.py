"""Where pure work runs."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lionstate.engine import offload


def _doubled(text: str) -> str:
    return text * 2


@pytest.mark.parametrize("size", [10, 100_000, 20_000_000])
async def test_it_runs_whatever_the_size(size: int) -> None:
    assert "xx" == await offload.run_pure(_doubled, "x", size)


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


async def test_long_lists_go_to_a_child_and_back_in_pieces() -> None:
    values = {"a": list(range(25_000)), "b": (("x",) * 10_001, [1, None]), "c": {"d": 1.5}, "e": []}
    packed = offload._pack(values)
    assert [3, 2] == [len(packed["a"].pieces), len(packed["b"][0].pieces)]
    assert values == offload._unpack(packed)
    assert values == await offload.run_pure(_as_they_are, values, 20_000_000)
