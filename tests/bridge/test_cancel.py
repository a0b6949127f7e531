"""A caller that goes away takes its whole message along, or leaves it whole: in JSON, dual and items."""

from __future__ import annotations

import pytest

from tests.bridge.conftest import Stores
from tests.bridge.talks import Store, Talk
from tests.e2e.conftest import lionstate

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

ROUNDS = 150


def _step(store: Store, *more: str) -> None:
    done = lionstate("progression-migrate", "step", "--accept-foreign-writers", "--url", store.url, *more)
    assert 0 == done.returncode, done.stderr


def test_leaves_no_message_half_written(stores: Stores) -> None:
    store = stores("a", "bridge")
    for migrate in ((), ("--max-items", "5"), ("--until-done",)):
        if migrate:
            _step(store, *migrate)
        found = Talk(store, ROUNDS, script="cancel.py").end()
        assert found["stored"] == found["part"] == found["whole"]
        assert set(found["acknowledged"]) <= set(found["part"])
        assert 0 < len(found["acknowledged"]) < ROUNDS
    verified = lionstate("progression-migrate", "verify", "part", "--url", store.url)
    assert 0 == verified.returncode, verified.stdout
