"""What the bridge does while its daemon is away."""

from __future__ import annotations

import pytest

from lionstate.errors import DaemonUnreachableError, InvalidInputError, OutcomeUnknownError, StateError
from lionstate.lionagi.outage import through_outages


class Daemon:
    """Fails with the given errors, one a call, then answers."""

    def __init__(self, *errors: StateError) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        """One call."""
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


async def test_a_call_waits_for_the_daemon_to_come_back() -> None:
    daemon = Daemon(DaemonUnreachableError(), DaemonUnreachableError())
    assert "done" == await through_outages(daemon, repeatable=False)
    assert 3 == daemon.calls


async def test_what_is_there_once_by_its_id_is_sent_again() -> None:
    daemon = Daemon(OutcomeUnknownError(), DaemonUnreachableError())
    assert "done" == await through_outages(daemon, repeatable=True)


async def test_anything_else_is_not() -> None:
    daemon = Daemon(DaemonUnreachableError(), OutcomeUnknownError())
    with pytest.raises(OutcomeUnknownError):
        await through_outages(daemon, repeatable=False)
    assert 2 == daemon.calls


async def test_a_doubt_is_not_forgotten() -> None:
    daemon = Daemon(OutcomeUnknownError(), *[DaemonUnreachableError()] * 50)
    with pytest.raises(OutcomeUnknownError):
        await through_outages(daemon, repeatable=True, wait=0.3)
    daemon = Daemon(*[DaemonUnreachableError()] * 50)
    with pytest.raises(DaemonUnreachableError):
        await through_outages(daemon, repeatable=True, wait=0.3)


async def test_a_refusal_is_final() -> None:
    daemon = Daemon(InvalidInputError("no"))
    with pytest.raises(InvalidInputError):
        await through_outages(daemon, repeatable=True)
    assert 1 == daemon.calls
