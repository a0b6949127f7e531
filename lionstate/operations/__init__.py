"""The table of operations: everything that a caller may ask of a store, by name; a module per family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lionstate.operations import (
    approvals,
    blueprints,
    control,
    conversation,
    definitions,
    dispatches,
    evidence,
    invocations,
    progression,
    retention,
    scheduling,
    sessions,
    shows,
    status,
    tasks,
    teams,
)
from lionstate.operations.table import FoldFunction, Operation

__all__ = ["OPERATIONS", "FoldFunction", "Operation", "operation_of"]

_ALL = (
    *progression.TABLE,
    *conversation.TABLE,
    *definitions.TABLE,
    *evidence.TABLE,
    *status.TABLE,
    *sessions.TABLE,
    *retention.TABLE,
    *invocations.TABLE,
    *shows.TABLE,
    *teams.TABLE,
    *control.TABLE,
    *blueprints.TABLE,
    *approvals.TABLE,
    *scheduling.TABLE,
    *tasks.TABLE,
    *dispatches.TABLE,
)

OPERATIONS: Mapping[str, Operation] = {entry.name: entry for entry in _ALL}
_BY_SCRIPT = {entry.script: entry for entry in _ALL}


def operation_of(script: Callable[..., Any]) -> Operation:
    """The operation of a script; KeyError when the script is none."""
    return _BY_SCRIPT[script]
