"""The command `lionstated`: reads flags and settings, runs the daemon, answers with an exit code."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import anyio

from lionstate import __version__
from lionstate.engine import StoreURL
from lionstate.errors import StateError

from . import logs
from .api import check_listeners
from .assembly import Assembly, assemble
from .process import serve
from .settings import (
    Settings,
    description_of,
    effective_json,
    effective_text,
    flag_names,
    is_switch,
    load_settings,
)

__all__ = ["leave", "main", "run_and_leave"]

_EXIT_INTERNAL = 1
_EXIT_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line instead of a usage of thirty."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    # Not abbreviated: what must not stay in the process list is known by its whole name.
    parser = _Parser(prog="lionstated", description="The daemon that owns a lionstate store.", allow_abbrev=False)
    parser.add_argument("--config", metavar="FILE", help="settings in TOML")
    parser.add_argument("--check-config", action="store_true", help="print the settings in force and exit")
    parser.add_argument("--only-changed", action="store_true", help="with --check-config: leave out the defaults")
    parser.add_argument("--as-json", action="store_true", help="with --check-config: as JSON, not TOML")
    parser.add_argument("--version", action="version", version=f"lionstated {__version__}")
    for flag, key in flag_names().items():
        # A switch may stand alone; a store named "true" must not come of a value that was forgotten.
        alone: dict[str, Any] = {"nargs": "?", "const": "true"} if is_switch(key) else {}
        parser.add_argument(
            f"--{flag}", dest=key, metavar="VALUE", help=description_of(key).replace("%", "%%"), **alone
        )
    return parser


def _reader(arguments: argparse.Namespace) -> Callable[[], Settings]:
    given = vars(arguments)
    flags = {key: given[key] for key in flag_names().values() if given[key] is not None}
    return lambda: load_settings(arguments.config, flags=flags)


def main(argv: Sequence[str] | None = None, *, assemble: Callable[[], Assembly] = assemble) -> int:
    """Run the command; returns the exit code of design §8.

    Args:
        argv: Arguments without the program's name.
        assemble: Brings the rooms below together; called after the settings were found good.
    """
    read = _reader(arguments := _parser().parse_args(argv))
    try:
        settings = read()
        if arguments.check_config:
            _check_urls(settings)
            check_listeners(settings)
            shown = effective_json if arguments.as_json else effective_text
            sys.stdout.write(shown(settings, only_changed=arguments.only_changed))
            return 0
        settings.store_url()
        _check_urls(settings)
        logs.configure(settings.log.level, settings.log.format)
        return _run(settings, assemble(), read)
    except StateError as exc:
        sys.stderr.write(f"lionstated: {exc}\n")
        return exc.exit_code
    except Exception:
        if not logs.is_configured():
            # What structlog does of itself is a traceback with the values of every variable.
            logs.configure()
        logs.get_logger().critical("internal_error", exc_info=True)
        return _EXIT_INTERNAL


def _check_urls(settings: Settings) -> None:
    for url in (settings.database.url, *settings.database.replica_url):
        if url is not None:
            StoreURL.of(url.get_secret_value())


class _Settled:
    """Is told when the daemon is ready, and what it is made of stays."""

    def started(self, value: object = None) -> None:
        """Have the collector pass over all that is there: to look through it took 60 to 90 ms, time and again."""
        gc.collect()
        gc.freeze()


def _run(settings: Settings, assembly: Assembly, read: Callable[[], Settings]) -> int:
    async def life() -> bool:
        return await serve(
            settings,
            operations=assembly.operations,
            store_factory=assembly.store_factory,
            read_settings=read,
            overdue=lambda forced: _leave(_EXIT_INTERRUPTED if forced else _EXIT_INTERNAL),
            task_status=_Settled(),
        )

    if anyio.run(life, backend_options={"use_uvloop": _has_uvloop()}):
        return 0
    return _EXIT_INTERRUPTED


def _has_uvloop() -> bool:
    try:
        import uvloop
    except ImportError:
        return False
    return bool(uvloop)


def run_and_leave() -> int:
    """Run the command of the process's own arguments; `leave` is called for it."""
    leave(main())
    return 0


def leave(code: int) -> None:
    """End the process; a forced end waits neither for a thread in the database nor for modules to be torn down."""
    stuck = [t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
    if code == _EXIT_INTERRUPTED or (code != 0 and stuck):
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
