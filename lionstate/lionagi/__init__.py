"""The bridge: LionAGI 0.36.0 on normalized progressions.

LionAGI knows a progression as a JSON column only: after a cutover it would read a frozen prefix, and its appends are
refused. ``install()`` puts lionstate's scripts under its ``StateDB``, in its own transactions; a store without
lionstate's tables is served as before. This room is imported by no other, and imports LionAGI only when asked to.
"""

from __future__ import annotations

from lionstate.errors import UnverifiedLionagiError
from lionstate.lionagi.verbs import mount

__all__ = ["UnverifiedLionagiError", "install", "is_installed", "mount", "uninstall"]

_installed: object = None


def install(*, daemon: str | None = None, token: str | None = None, allow_unverified: bool = False) -> None:
    """Let this process's LionAGI read and write progressions where their authority is.

    To be called before or after LionAGI is imported, once; a second call replaces the first. What LionAGI opened
    before is served too.

    Args:
        daemon: ``unix:/path`` or ``http://host:port`` of the daemon that serves LionAGI's store. Appends, replacements
            and reads of progressions then go through it, so that many processes share its writer. None writes in
            LionAGI's own transactions.
        token: The daemon's bearer token.
        allow_unverified: Also take another LionAGI than the one that the bridge was made for.
    Raises:
        UnverifiedLionagiError: LionAGI is missing, or not the one that the bridge knows; names every difference.
            Nothing was changed.

    Cost: about 100 ms; one statement more in each transaction on a store without lionstate's tables.
    Contract: ADR-0117 D2, D4; design decisions 21, 31, 37.
    """
    from lionstate.lionagi.fingerprints import differences, package_folder
    from lionstate.lionagi.handle import Options
    from lionstate.lionagi.modules import Patched
    from lionstate.lionagi.patches import patches

    global _installed
    folder = package_folder()
    found = ["lionagi is not installed"] if folder is None else differences(folder)
    if folder is None or (found and not allow_unverified):
        raise UnverifiedLionagiError("this is not the LionAGI that the bridge was made for: " + "; ".join(found))
    uninstall()
    _installed = Patched(patches(Options(daemon, token)))


def uninstall() -> None:
    """Put LionAGI's own functions back; nothing if the bridge is not installed.

    After a cutover LionAGI's appends are refused again.
    """
    global _installed
    from lionstate.lionagi.modules import Patched

    patched, _installed = _installed, None
    if isinstance(patched, Patched):
        patched.remove()


def is_installed() -> bool:
    """Whether LionAGI is bridged in this process."""
    return _installed is not None
