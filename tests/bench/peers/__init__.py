"""Other stores, each in an environment and a process of its own; none of them is a dependency of lionstate."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.bench.context import ROOT, NotAvailableError

__all__ = ["PEERS", "Process", "start_peer"]

_HERE = Path(__file__).parent
_ENVIRONMENTS = ROOT / ".venv-peers"

# Name shown: (environment, argument of its runner, databases).
PEERS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "openai-agents SQLiteSession": ("openai_agents", "sqlite", ("sqlite",)),
    "openai-agents SQLAlchemySession": ("openai_agents", "sqlalchemy", ("sqlite", "postgresql")),
    "langgraph-checkpoint-sqlite": ("langgraph", "sqlite", ("sqlite",)),
    "langgraph-checkpoint-postgres": ("langgraph", "postgres", ("postgresql",)),
    "google-adk DatabaseSessionService": ("google_adk", "", ("sqlite", "postgresql")),
    "llama-index SQLAlchemyChatStore": ("llama_index", "", ("sqlite", "postgresql")),
    "lionagi 0.36.0": ("lionagi", "", ("sqlite", "postgresql")),
}


def environment_of(name: str) -> Path:
    """The Python of a peer's environment, made or renewed when its requirements changed."""
    requirements = _HERE / f"{name}.txt"
    folder = _ENVIRONMENTS / name
    python = folder / "bin" / "python"
    stamp = folder / ".requirements"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        try:
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*install, "-r", str(requirements)], check=True, stderr=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotAvailableError(f"the environment of {name} cannot be made: {error}") from error
        stamp.write_text(wanted)
    return python


class Process:
    """A process that speaks the protocol of ``protocol.py``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Take a running process."""
        self._process = process
        self.pid = process.pid

    @classmethod
    async def start(cls, *command: str) -> Process:
        """Start it."""
        return cls(
            await asyncio.create_subprocess_exec(
                *command,
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=1 << 28,
                env={**os.environ, "PYTHONPATH": str(ROOT) if "tests.bench" in " ".join(command) else ""},
            )
        )

    async def call(self, do: str, **params: Any) -> Any:
        """Send one command and wait for its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **params}).encode() + b"\n")
        await self._process.stdin.drain()
        while line := await self._process.stdout.readline():
            if line.startswith(b"@"):
                answer = json.loads(line[1:])
                if "error" in answer:
                    raise NotAvailableError(f"{do}: {answer['error']}")
                return answer["ok"]
        raise NotAvailableError(f"{do}: the process ended with {await self._process.wait()}")

    async def __aenter__(self) -> Process:
        """Already started."""
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """End it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 10)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


async def start_peer(name: str) -> Process:
    """Start the runner of a peer by its shown name; its environment is made when needed."""
    environment, argument, _ = PEERS[name]
    python = await asyncio.to_thread(environment_of, environment)
    return await Process.start(str(python), str(_HERE / f"run_{environment}.py"), argument)
