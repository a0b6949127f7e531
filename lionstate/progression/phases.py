"""Which representation a read uses and an append goes to, by the storage state of a progression.

Pure: the state row, both compat switches and the data are read by the caller, from one snapshot.
"""

from __future__ import annotations

import functools
import secrets
from enum import StrEnum

from lionstate.errors import BlockedCode

__all__ = [
    "AppendTarget",
    "Authority",
    "Phase",
    "ReadSource",
    "append_target",
    "new_generation",
    "read_source",
]


class Phase(StrEnum):
    """Where a progression stands in its migration; no state row means ``json`` (ADR-0117 D2, D3)."""

    JSON = "json"
    DUAL = "dual"
    ITEMS = "items"
    BLOCKED = "blocked"


class Authority(StrEnum):
    """The representation that is complete and trusted; ``none`` when neither is."""

    JSON = "json"
    ITEMS = "items"
    NONE = "none"


class ReadSource(StrEnum):
    """What a read is answered from.

    ``compat`` is JSON[0:frozen_count] and the items from there on; ``closed`` raises ProgressionBlockedError;
    ``missing`` answers as if the progression did not exist.
    """

    JSON = "json"
    ITEMS = "items"
    COMPAT = "compat"
    CLOSED = "closed"
    MISSING = "missing"


class AppendTarget(StrEnum):
    """What an append writes.

    ``dual`` adds the item only if the JSON was appended to; ``refused`` raises ProgressionBlockedError;
    ``noop`` succeeds without a write, as for a missing progression.
    """

    JSON = "json"
    DUAL = "dual"
    ITEMS = "items"
    REFUSED = "refused"
    NOOP = "noop"


_IMPLIED = {Phase.JSON: Authority.JSON, Phase.DUAL: Authority.JSON, Phase.ITEMS: Authority.ITEMS}


def _trusted(phase: Phase, authority: Authority | None) -> Authority:
    """Say which representation counts; a row whose authority contradicts its phase is trusted for nothing."""
    if phase is Phase.BLOCKED:
        return authority or Authority.NONE
    implied = _IMPLIED[phase]
    return implied if authority in (None, implied) else Authority.NONE


def read_source(
    phase: Phase | None,
    authority: Authority | None,
    *,
    compat: bool,
    reason: BlockedCode | str | None,
) -> ReadSource:
    """Choose what a full or bounded read is answered from.

    Args:
        phase: Phase of the state row; None when there is none (and no item rows: those fail closed before).
        authority: Authority of the state row; None means the one that the phase implies, ``none`` if blocked.
        compat: The progression's own switch or the global one. Only heeded when the items are the authority,
            and not turned off by a block.
        reason: The recorded blocked code, only heeded while blocked.

    Contract: ADR-0117 D4.
    """
    if phase is None:
        return ReadSource.JSON
    if phase is Phase.BLOCKED and reason == BlockedCode.DELETING:
        return ReadSource.MISSING
    match _trusted(phase, authority):
        case Authority.JSON:
            return ReadSource.JSON
        case Authority.ITEMS:
            return ReadSource.COMPAT if compat else ReadSource.ITEMS
        case Authority.NONE:
            return ReadSource.CLOSED


@functools.cache
def append_target(phase: Phase | None, authority: Authority | None, reason: BlockedCode | str | None) -> AppendTarget:
    """Choose what an append writes; arguments as for `read_source`.

    The compat switch does not move an append. While a block forces it, though, the caller also tests membership in
    the frozen JSON prefix, because the item rows of the prefix are the ones in doubt.

    Contract: ADR-0117 D2, D4.
    """
    if phase is None:
        return AppendTarget.JSON
    if phase is Phase.BLOCKED and reason == BlockedCode.DELETING:
        return AppendTarget.NOOP
    match _trusted(phase, authority):
        case Authority.JSON:
            # A blocked progression writes its authoritative representation only.
            return AppendTarget.DUAL if phase is Phase.DUAL else AppendTarget.JSON
        case Authority.ITEMS:
            return AppendTarget.ITEMS
        case Authority.NONE:
            return AppendTarget.REFUSED


def new_generation() -> int:
    """Draw a generation: a random number of 63 bits, above 0.

    Never a counter: one that a restored or deleted row resets would repeat, and a stale cursor would fit.
    """
    return secrets.randbelow(2**63 - 1) + 1
