"""Takes the bridge along into the Python processes that LionAGI starts, without a ``.pth`` file."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

__all__ = ["bridge_children"]

_FOLDER: Final = Path(__file__).parent / "bootstrap"


def bridge_children(
    *, daemon: str | None, allow_unverified: bool, environment: MutableMapping[str, str] = os.environ
) -> None:
    """Set the environment so that a child which imports LionAGI installs the bridge first.

    The folder that goes to the front of ``PYTHONPATH`` holds one ``sitecustomize``, which does nothing until LionAGI's
    store is imported, and runs the ``sitecustomize`` that it hides. A child whose interpreter has no lionstate is not
    bridged, and is refused by the fence.
    """
    environment["LIONSTATE_LIONAGI"] = "unverified" if allow_unverified else "on"
    if daemon is not None:
        environment["LIONSTATE_DAEMON"] = daemon
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    if str(_FOLDER) not in paths:
        environment["PYTHONPATH"] = os.pathsep.join([str(_FOLDER), *filter(None, paths)])
