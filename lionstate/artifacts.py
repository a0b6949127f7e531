"""The expected-artifact verifier: observes declared files under a root, never reads or stores their bytes.

Contract: ADR-0055 D5. Paths follow POSIX. Only the entry's own relative path is looked at (decision 34): a
file of that name in a subdirectory is not found.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypedDict, cast

from lionstate.errors import ArtifactPathError

__all__ = [
    "ExpectedArtifact",
    "MissingEvidence",
    "ProducedArtifact",
    "StaleMarkers",
    "VerificationResult",
    "missing_artifact_evidence",
    "missing_artifact_summary",
    "resolve_artifact_contract",
    "resolve_artifact_path",
    "stale_artifact_markers",
    "validate_artifact_contract",
    "verify_artifact_contract",
    "warn_unknown_artifact_keys",
]

_log = logging.getLogger(__name__)

_ID = re.compile(r"[A-Za-z0-9_-]+")
_GLOB = frozenset("*?[]{}~")
_KEYS = frozenset({"id", "path", "required", "description", "source"})


class ExpectedArtifact(TypedDict, total=False):
    """One entry of a contract; ``required`` is true when absent."""

    id: str
    path: str
    required: bool
    description: str
    source: str


class ProducedArtifact(TypedDict):
    """One file found: its path relative to the real root (a symlink's target) and its size in bytes."""

    id: str
    path: str
    size: int
    present: bool


class VerificationResult(TypedDict):
    """What one check observed; ``checked_at`` in epoch seconds. This verifier never returns ``skipped``."""

    status: Literal["passed", "failed", "warning", "skipped"]
    checked_at: float
    missing_required: list[ExpectedArtifact]
    missing_optional: list[ExpectedArtifact]
    produced: list[ProducedArtifact]


class MissingEvidence(TypedDict):
    """One missing entry as an evidence reference of a status transition."""

    kind: Literal["expected_artifact"]
    id: str
    label: str


class StaleMarkers(TypedDict):
    """Ids whose file changed, or is no longer there, since the verdict was recorded."""

    staleness_check: Literal["checked"]
    changed_since_check: list[str]
    absent_since_check: list[str]


def _components(path: object) -> list[str]:
    if not isinstance(path, str) or not path or path.startswith("/") or "\0" in path:
        raise ArtifactPathError(
            "artifact path: absolute path not allowed, nor an empty one, one with NUL or a non-text"
        )
    if not _GLOB.isdisjoint(path):
        raise ArtifactPathError("artifact path: glob characters not allowed")
    components = [part for part in path.split("/") if part not in ("", ".")]
    if not components or ".." in components:
        raise ArtifactPathError("artifact path: '..' or no segments not allowed")
    return components


def _inside(root: str, path: str) -> str:
    """Resolve symlinks of a path under a real root."""
    found = os.path.realpath(os.path.join(root, path))
    if found != root and not found.startswith(root.rstrip("/") + "/"):
        raise ArtifactPathError("artifact path: escapes the artifact root")
    return found


def resolve_artifact_path(path: str, *, artifacts_root: str) -> str:
    """Give the real path of an entry, which need not exist.

    Raises:
        ArtifactPathError: Not a safe relative path, or one that leaves the real root through a symlink.
    """
    return _inside(os.path.realpath(artifacts_root), "/".join(_components(path)))


def _entries(contract: object) -> list[dict[str, Any]]:
    """Take the entries of a contract, or say which part of the shape is wrong."""
    if not isinstance(contract, dict):
        raise ArtifactPathError("artifact contract: not a dict")
    expected = contract.get("expected")
    if not isinstance(expected, list):
        raise ArtifactPathError("artifact contract: needs 'expected: list'")
    for position, entry in enumerate(expected):
        if not isinstance(entry, dict):
            raise ArtifactPathError(f"artifact contract: entry {position} is not a dict")
    return expected


def _check_entry(position: int, entry: dict[str, Any], known_ids: set[str]) -> None:
    artifact_id, path = entry.get("id"), entry.get("path")
    if not isinstance(artifact_id, str) or _ID.fullmatch(artifact_id) is None:
        raise ArtifactPathError(f"artifact contract: entry {position} needs an id of letters, digits, '_' and '-'")
    if artifact_id in known_ids:
        raise ArtifactPathError(f"artifact contract: duplicate id {artifact_id}")
    known_ids.add(artifact_id)
    if not isinstance(path, str) or not path:
        raise ArtifactPathError(f"artifact contract: entry {artifact_id} needs a non-empty path")
    if not isinstance(entry.get("required", True), bool):
        raise ArtifactPathError(f"artifact contract: entry {artifact_id}: 'required' is not a bool")
    for key in ("description", "source"):
        if not isinstance(entry.get(key, ""), str):
            raise ArtifactPathError(f"artifact contract: entry {artifact_id}: {key!r} is not text")
    # There is no root yet; without '..' a path can only leave one through a symlink, which the check looks
    # at.
    _components(path)


def _validated(contract: object) -> list[dict[str, Any]]:
    entries = _entries(contract)
    known_ids: set[str] = set()
    for position, entry in enumerate(entries):
        _check_entry(position, entry, known_ids)
    return entries


def validate_artifact_contract(contract: dict[str, Any] | None) -> None:
    """Check the shape and the paths of a contract; None is valid. Touches no file.

    Unknown keys are kept, and warned about once for this call.

    Raises:
        ArtifactPathError: The first thing found wrong.

    Contract: ADR-0055 D5.
    """
    if contract is None:
        return
    _validated(contract)
    warn_unknown_artifact_keys(contract, source="artifact contract")


def resolve_artifact_contract(
    *, playbook_artifacts: dict[str, Any] | None, agent_defaults: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Merge the contract of an agent profile with that of a playbook; the inputs are not changed.

    Returns:
        None when both are None; else ``{"expected": [...]}``, validated, agent defaults first. A playbook
        entry replaces the one of the same id as a whole, in its place. ``required``, ``description`` and
        ``source`` are filled in; ``source`` always says where the entry came from.
    Raises:
        ArtifactPathError: An input or the result is malformed.
        KeyError: An entry has no id.

    Contract: ADR-0055 D5.
    """
    if playbook_artifacts is None and agent_defaults is None:
        return None
    merged: dict[str, dict[str, Any]] = {}
    for source, contract in (("agent_profile", agent_defaults), ("playbook", playbook_artifacts)):
        if contract is None:
            continue
        for entry in _entries(contract):
            if not isinstance(entry["id"], str):
                raise ArtifactPathError("artifact contract: an id is not text")
            merged[entry["id"]] = {"required": True, "description": "", **entry, "source": source}
    resolved = {"expected": list(merged.values())}
    validate_artifact_contract(resolved)
    return resolved


def _real_root(artifacts_root: str | None) -> str | None:
    if not artifacts_root or not os.path.isdir(artifacts_root):
        return None
    return os.path.realpath(artifacts_root)


def _observe(root: str, path: str) -> tuple[str, os.stat_result] | None:
    """Find a regular file under a real root; None for anything else and for a symlink that leaves it."""
    try:
        found = _inside(root, path)
        status = os.stat(found)
    except (OSError, ValueError):
        # ArtifactPathError is a ValueError; so is a name that the file system cannot encode.
        return None
    return (found, status) if stat.S_ISREG(status.st_mode) else None


def verify_artifact_contract(
    contract: dict[str, Any] | None, *, artifacts_root: str | None
) -> VerificationResult | None:
    """Look for every expected file: present is a regular file of more than zero bytes.

    Args:
        contract: None gives None, without touching a file.
        artifacts_root: When None, empty, missing or not a directory, every entry is missing.
    Returns:
        ``failed`` with a required miss, ``warning`` with optional misses only, else ``passed``; the missing
        entries as they stand in the contract, and what was produced in its order.
    Raises:
        ArtifactPathError: The contract is malformed, whatever the root.

    Cost: blocking file system calls, a few for each entry.
    Contract: ADR-0055 D5; decision 34.
    """
    if contract is None:
        return None
    entries = _validated(contract)
    root = _real_root(artifacts_root)
    result: VerificationResult = {
        "status": "passed",
        "checked_at": time.time(),
        "missing_required": [],
        "missing_optional": [],
        "produced": [],
    }
    for entry in entries:
        observed = None if root is None else _observe(root, "/".join(_components(entry["path"])))
        if root is not None and observed is not None and observed[1].st_size > 0:
            path, size = os.path.relpath(observed[0], root), observed[1].st_size
            result["produced"].append({"id": entry["id"], "path": path, "size": size, "present": True})
        elif entry.get("required", True):
            result["missing_required"].append(cast(ExpectedArtifact, entry))
        else:
            result["missing_optional"].append(cast(ExpectedArtifact, entry))
    if result["missing_required"]:
        result["status"] = "failed"
    elif result["missing_optional"]:
        result["status"] = "warning"
    return result


def warn_unknown_artifact_keys(
    contract: object, *, source: str, emit: Callable[[str], object] | None = None
) -> list[str]:
    """Warn of entry keys that the contract does not know, one message an entry; tolerates any shape.

    Args:
        source: Where the contract came from, for the message.
        emit: Takes each message; None logs a warning.
    Returns:
        The messages.
    """
    expected = contract.get("expected") if isinstance(contract, Mapping) else None
    messages: list[str] = []
    for entry in expected if isinstance(expected, list) else []:
        unknown = sorted(map(str, set(entry) - _KEYS)) if isinstance(entry, Mapping) else []
        if unknown:
            messages.append(f"{source}: artifact {entry.get('id')!r} has unknown keys: {', '.join(unknown)}")
    for message in messages:
        (emit or _log.warning)(message)
    return messages


def missing_artifact_summary(missing: Iterable[Mapping[str, Any]]) -> str:
    """Say in one line what is missing: a single entry by id and path, else a count."""
    entries = list(missing)
    if len(entries) == 1:
        return f"expected artifact missing: {entries[0].get('id')} ({entries[0].get('path')})"
    return f"{len(entries)} expected artifacts missing"


def missing_artifact_evidence(missing: Iterable[Mapping[str, Any]]) -> list[MissingEvidence]:
    """Give the missing entries as evidence references; the label is the path, ``""`` when there is none."""
    return [
        {"kind": "expected_artifact", "id": entry.get("id", ""), "label": entry.get("path") or ""} for entry in missing
    ]


def _recorded(produced: list[Any]) -> Iterator[tuple[str, object, object]]:
    for entry in produced:
        if isinstance(entry, Mapping) and isinstance(entry.get("id"), str):
            yield entry["id"], entry.get("path"), entry.get("size")


def stale_artifact_markers(
    verification: Mapping[str, Any] | None, *, artifacts_root: str | None
) -> StaleMarkers | None:
    """Compare a recorded verdict with the files as they are now; never judges again.

    Returns:
        None when there is no root, or the verdict lacks a numeric ``checked_at`` or a list ``produced``. A
        file has changed when it was modified after the check or its size differs, and is absent when it is
        no longer a regular file under the root.

    Cost: blocking file system calls, a few for each produced file.
    """
    if not artifacts_root or not isinstance(verification, Mapping):
        return None
    checked_at, produced = verification.get("checked_at"), verification.get("produced")
    if isinstance(checked_at, bool) or not isinstance(checked_at, (int, float)) or not isinstance(produced, list):
        return None
    root = _real_root(artifacts_root)
    changed: list[str] = []
    absent: list[str] = []
    for artifact_id, path, size in _recorded(produced):
        # Not the path rule of a contract: the recorded path of a symlink's target may hold any character.
        observed = _observe(root, path) if root is not None and isinstance(path, str) and path else None
        if observed is None:
            absent.append(artifact_id)
        elif observed[1].st_mtime > checked_at or observed[1].st_size != size:
            changed.append(artifact_id)
    return {"staleness_check": "checked", "changed_since_check": changed, "absent_since_check": absent}
