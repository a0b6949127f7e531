"""Runs LionAGI's processes of a test and lets them wait for each other."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.lionagi_environment import environment

__all__ = ["Store", "Talk"]

CHILDREN = Path(__file__).parent / "children"


@dataclass(frozen=True)
class Store:
    """A store and the LionAGI that works on it.

    Attributes:
        python: The interpreter of LionAGI's environment.
        url: File or URL.
        folder: Scratch; LionAGI's home and working folder are in it.
        mode: ``plain``, ``bridge`` or a daemon's address.
    """

    python: Path
    url: str
    folder: Path
    mode: str = "plain"

    @property
    def variables(self) -> dict[str, str]:
        """The environment of its processes."""
        return environment(self.folder / "home", self.url)

    @property
    def work(self) -> Path:
        """The folder that its processes work in, under git."""
        found = self.folder / "work"
        if not found.exists():
            (self.folder / "home").mkdir(parents=True)
            found.mkdir()
            identity = ("-c", "user.name=t", "-c", "user.email=t@localhost")
            for command in (("init", "-q"), (*identity, "commit", "-q", "--allow-empty", "-m", "begin")):
                subprocess.run(["git", *command], cwd=found, env=self.variables, check=True)
        return found

    def child(self, script: str, *arguments: object, variables: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a script of ``children``; isolated unless it is to look at other variables than the store's."""
        isolated = ["-I"] if variables is None else []
        command = [str(self.python), *isolated, str(CHILDREN / script), self.url, self.mode, *map(str, arguments)]
        return subprocess.Popen(
            command,
            cwd=self.work,
            env=variables or self.variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def li(self, *arguments: str, mode: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run LionAGI's command to its end."""
        mode = self.mode if mode is None else mode
        daemon = [] if mode in ("plain", "bridge") else ["--daemon", mode]
        bridged = ["lionstate.lionagi", *daemon, "--", "li"]
        module = ["lionagi.cli"] if mode == "plain" else bridged
        return subprocess.run(
            [str(self.python), "-m", *module, *arguments],
            cwd=self.work,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def look(self) -> dict[str, Any]:
        """What a new process of LionAGI finds, in the store and on Studio's pages."""
        return Talk(self, 0).end()

    def listed(self) -> list[list[str]]:
        """The rows of ``li state ls`` without ids and times: name, status, branches, messages."""
        done = self.li("state", "ls")
        assert 0 == done.returncode, done.stderr
        rows = [re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines()[2:] if line.strip()]
        # A name is followed by marks of the run.
        return sorted([row[1].split()[0], *row[2:5]] for row in rows)


class Talk:
    """One process of LionAGI that stops at checkpoints."""

    def __init__(
        self, store: Store, *arguments: object, script: str = "talk.py", variables: dict[str, str] | None = None
    ) -> None:
        """Start it."""
        self._process = store.child(script, *arguments, variables=variables)

    def wait_for(self, name: str) -> None:
        """Wait until it has come to a checkpoint."""
        assert {"at": name} == self._next()

    def go_on(self) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """What it found."""
        found = self._next()
        assert 0 == self._process.wait(timeout=60)
        self.stop()
        return found

    def _next(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the run ended with {self._process.wait()}:\n{self._process.communicate()[1]}")
        found: dict[str, Any] = json.loads(line)
        return found

    def stop(self) -> None:
        """Kill it if it still runs, and close its pipes."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
