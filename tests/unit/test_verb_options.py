"""Every option of every migration verb reaches the service, in process and through a daemon (design decision 31)."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import typer

import lionstate.cli
from lionstate.cli.migrate import app
from lionstate.client.migration import RemoteMigration
from lionstate.errors import InvalidInputError
from lionstate.migration import ProgressionMigrationService

# Command lines that differ in what they call: an option is put behind each.
LINES = (
    "status",
    "step",
    "verify p",
    "scrub",
    "scrub p",
    "preflight",
    "plan",
    "rehearse --daemon d",
    "explain p",
    "audit",
    "rollback p",
    "compat-read p --enable",
    "compat-read --all --enable",
    "pause",
    "stop",
    "resume",
    "enable",
    "disable",
    "hold p",
    "hold --all",
    "release p",
    "release --all",
    "cutover p",
    "cutover --all-ready",
    "prioritize p",
    "exclude p",
    "fence status",
    "fence install",
    "fence remove --reason other",
    "knobs get",
    "knobs set nice_ratio 0.5",
    "blocked list",
    "blocked show p",
    "blocked retry p",
    "blocked unblock p --reason other",
)
# Where the verb works, how it prints, which call it is (as its lines have it), and how often it is made.
NOT_PASSED = {"url", "daemon", "token", "as_json", "watch", "interval", "until_done", "keep"}
WHICH_CALL = {"everything", "everywhere", "all_ready", "enable", "disable"}
# The verbs that call no service: one prints a table, the other works where no daemon runs.
WITHOUT_SERVICE = {"codes", "detach"}
VALUES = {"until": "2h", "use": "json", "progression": "other", "target": "postgresql://other/db"}


class _CalledError(Exception):
    pass


class _Recorder:
    """A service whose calls are kept; all but the first step of a pair end the command."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., Awaitable[None]]:
        async def call(*args: Any, **kwargs: Any) -> None:
            self.calls.append((name, args, kwargs))
            if name != "set_accept_foreign_writers":
                raise _CalledError

        return call


@pytest.fixture
def calls_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], list[Any]]:
    """Run a command line of the verbs and tell what it called."""
    recorders: list[_Recorder] = []

    def run(where: Any, work: Callable[[Any], Awaitable[Any]], *, reads: bool = False) -> Any:
        recorders.append(_Recorder())
        return asyncio.run(work(recorders[-1]))  # type: ignore[arg-type]

    for module in pkgutil.iter_modules(lionstate.cli.__path__, "lionstate.cli."):
        found = importlib.import_module(module.name)
        if hasattr(found, "run_on_migration"):
            monkeypatch.setattr(found, "run_on_migration", run)
    command = typer.main.get_command(app)

    def calls(line: list[str]) -> list[Any]:
        try:
            command.main(line, standalone_mode=False)
        except _CalledError:
            return recorders.pop().calls
        except InvalidInputError as refused:
            return [str(refused)]
        raise AssertionError(f"{' '.join(line)} calls nothing")

    return calls


def _commands(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, *path, name)
        else:
            yield (*path, name), command


def test_each_given_option_changes_the_call(calls_of: Callable[[list[str]], list[Any]]) -> None:
    """`--reason` of `compat-read PROGRESSION` once went nowhere."""
    lost, tried = [], set()
    for path, command in _commands(typer.main.get_command(app)):
        lines = [line.split() for line in LINES if line.split()[: len(path)] == list(path)]
        assert bool(lines) == (path[0] not in WITHOUT_SERVICE), f"give {' '.join(path)} a line"
        options = [one for one in command.params if one.param_type_name == "option" and one.name not in NOT_PASSED]
        for line in lines:
            plain = calls_of(line)
            for option in options:
                if option.name in WHICH_CALL or (option.opts[0] in line and not line.index(option.opts[0])):
                    continue
                value = [] if option.is_flag else [VALUES.get(option.name, "7")]
                tried.add(option.name)
                if plain == calls_of([*line, option.opts[0], *value]):
                    lost.append(f"{' '.join(line)} {option.opts[0]}")
    assert [] == lost
    assert {"reason", "until", "max_seconds", "accept_foreign_writers", "clear", "use", "rebuild"} <= tried


def _of_service(name: str) -> Any:
    return inspect.signature(getattr(ProgressionMigrationService, name)).parameters


def test_a_client_takes_what_the_service_takes() -> None:
    named = [name for name in vars(RemoteMigration) if not name.startswith("_")]
    named += [name for base in RemoteMigration.__bases__ for name in vars(base) if not name.startswith("_")]
    own = {"rehearse", "rehearsal"}
    differ = [
        name
        for name in named
        if name not in own
        and {one.name: one.default for one in _of_service(name).values()}
        != {one.name: one.default for one in inspect.signature(getattr(RemoteMigration, name)).parameters.values()}
    ]
    assert [] == differ


def test_every_change_takes_a_reason() -> None:
    """Design decision 26: who, why and when. Work (`step`, `scrub`, `cutover`) and looks need none."""
    changes = ["pause", "stop", "resume", "retry", "unblock", "rollback", "install_fence", "remove_fence"]
    changes += ["hold", "hold_all", "release", "release_all", "prioritize", "exclude"]
    changes += [name for name in dir(ProgressionMigrationService) if name.startswith("set_")]
    assert [] == [name for name in changes if "reason" not in _of_service(name)]
