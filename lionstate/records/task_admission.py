"""The rules of the task queue: what a task declares, what a worker can serve, how long its key may be waited for; pure.

Contract: ADR-0055 D1; reference §2.3 (ADR-0071 as LionAGI 0.36.0 has it).
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = [
    "ACTION_KINDS",
    "CAP_EXCEEDED",
    "EXECUTION_TARGETS",
    "HEARTBEAT_SECONDS",
    "LEASE_SECONDS",
    "MOST_ATTEMPTS",
    "MOST_WAITERS",
    "NOTICE_KIND",
    "TOO_LONG",
    "admits_parking",
    "concurrency_key_of",
    "notice_asked_by",
    "outlasts",
    "servable",
]

LEASE_SECONDS: Final = 300.0
HEARTBEAT_SECONDS: Final = 90.0
MOST_ATTEMPTS: Final = 3
MOST_WAITERS: Final = 2
ACTION_KINDS: Final = ("agent", "flow", "fanout", "play", "flow_yaml", "engine", "command", "workflow")
EXECUTION_TARGETS: Final = ("host", "local_worktree", "daytona", "remote_agent", "process")
NOTICE_KIND: Final = "terminal_notify"
_NOTICE: Final = ("deliver_to", "kind", "dedup_key")
TOO_LONG: Final = "run.skipped.duration_exceeds_lease"
CAP_EXCEEDED: Final = "run.skipped.waiter_cap_exceeded"

# Capabilities that are not plain conditions: one at a time on a host, and a mere preference.
_EXCLUSIVE: Final = frozenset(("gpu-exclusive",))
_PREFERENCES: Final = ("warmed-cache",)


def servable(advertised: Iterable[str]) -> list[str]:
    """What a task may require of a worker that advertises these."""
    return list(dict.fromkeys((*advertised, *_PREFERENCES)))


def concurrency_key_of(required: Iterable[str]) -> str | None:
    """The key under which tasks that need something exclusive run one at a time on this host."""
    exclusive = sorted(_EXCLUSIVE.intersection(required))
    return f"{socket.gethostname()}:{'+'.join(exclusive)}" if exclusive else None


def _declared(args: Any) -> Mapping[str, Any]:
    declared = args.get("admission") if isinstance(args, Mapping) else None
    return declared if isinstance(declared, Mapping) else {}


def outlasts(args: Any, lease_seconds: float) -> str | None:
    """Why a task does not fit into a lease, in words; None when it declares nothing that says so."""
    seconds = _declared(args).get("max_duration_seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds < lease_seconds:
        return None
    return f"a declared duration of {seconds:g} s does not fit into a lease of {lease_seconds:g} s"


def notice_asked_by(args: Any) -> dict[str, str] | None:
    """The dispatch that a task asks for should it be skipped: ``deliver_to``, ``kind`` and, if given, ``dedup_key``.

    None when it asks for none, or for one that is not made of texts.
    """
    asked = _declared(args).get("notify")
    if not isinstance(asked, Mapping):
        return None
    given = {"kind": NOTICE_KIND, **{name: asked[name] for name in _NOTICE if name in asked}}
    if "deliver_to" not in given or not all(isinstance(value, str) and value for value in given.values()):
        return None
    return given


def admits_parking(args: Any) -> bool:
    """Whether a task waits, however many wait before it."""
    return bool(_declared(args).get("allow_deferred_over_cap"))
