"""Mirrors, absorption, retention and Studio's coordination behind a cutover, against LionAGI alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.bridge.conftest import Daemons, Stores
from tests.bridge.talks import Store, Talk
from tests.e2e.conftest import lionstate

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]


def cut_over(store: Store) -> None:
    """All progressions of a store, from the command line."""
    done = lionstate("progression-migrate", "step", "--until-done", "--accept-foreign-writers", "--url", store.url)
    assert 0 == done.returncode, done.stderr


def _rest(store: Store, *, migrate: bool) -> dict[str, Any]:
    run = Talk(store, script="rest.py")
    try:
        run.wait_for("json")
        if migrate:
            cut_over(store)
        run.go_on()
        return run.end()
    finally:
        run.stop()


def test_deletes_and_spares_what_it_would_have_without_lionstate(stores: Stores) -> None:
    expected = _rest(stores("plain", "plain"), migrate=False)
    store = stores("bridged", "bridge")
    actual = _rest(store, migrate=True)
    assert expected == actual
    deleted = actual["deleted"]
    assert deleted["absorbed"]
    # Taken along by the keeper: one of the frozen prefix, one of the tail.
    spared = {"mirrored-002", "mirrored-021"}
    assert spared == {name for name in deleted["after absorbing"] if name.startswith("mirrored")}
    assert 1 == actual["overlap"]["count"]
    if isinstance(deleted["pruned"], dict):
        assert {"old-002", "old-021"} == {name for name in deleted["after pruning"] if name.startswith("old")}
        assert [23, 23] == [len(ids) for ids in deleted["archived"]]


def test_the_same_through_a_daemon(stores: Stores, daemons: Daemons) -> None:
    expected = _rest(stores("plain", "plain"), migrate=False)
    store = stores("bridged", "plain")
    daemon = daemons(store.url, storage__lionagi_compatible="true", storage__normalized="true")
    assert expected == _rest(dataclasses.replace(store, mode=daemon.target), migrate=False)
