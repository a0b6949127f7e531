"""With the bridge, without it, and back: what LionAGI does in each case, and what it says."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from lionstate.lionagi.children import bridge_children
from tests.bridge.conftest import Daemons, Stores
from tests.bridge.talks import Store, Talk
from tests.bridge.test_rest import cut_over

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

REFUSAL = "progression is normalized; use lionstate (or the bridge lionstate.lionagi)"


def _talk(store: Store, mode: str, name: str = "s") -> dict[str, Any]:
    return Talk(dataclasses.replace(store, mode=mode), name, script="switch.py").end()


def _ids(count: int) -> list[str]:
    return [f"s-{number}" for number in range(count)]


def test_a_store_that_lionstate_never_saw_is_served_as_before(stores: Stores) -> None:
    store = stores("a", "plain")
    for known, mode in enumerate(("bridge", "plain", "bridge")):
        found = _talk(store, mode)
        assert (5 * known, [], 5) == (found["known"], found["errors"], found["stored"])
        assert _ids(5 * (known + 1)) == found["ids"]
        assert found["own code again"]


def test_without_the_bridge_it_is_refused_loudly_and_told_what_is_missing(stores: Stores) -> None:
    store = stores("a", "plain")
    _talk(store, "plain")
    cut_over(store)
    found = _talk(store, "plain")
    assert 5 == len(found["errors"])
    assert all(error.startswith("IntegrityError: ") and REFUSAL in error for error in found["errors"])
    assert (_ids(5), 0) == (found["ids"], found["stored"])
    found = _talk(store, "bridge")
    assert ([], _ids(10)) == (found["errors"], found["ids"])


def test_a_store_that_never_cut_over_goes_back_to_lionagi_alone(stores: Stores, daemons: Daemons) -> None:
    """Admitted and partly copied; then lionstate is gone from the machine."""
    store = stores("a", "plain")
    _talk(store, "plain")
    _verb(store, "step", "--max-items", "7")
    assert _ids(10) == _talk(store, "bridge")["ids"]
    daemon = daemons(store.url)
    assert _ids(15) == _talk(store, daemon.target)["ids"]
    assert 0 == daemon.stop()
    phases = _verb(store, "status")["phases"]
    assert (2, 0) == (phases["dual"], phases["items"])
    found = _talk(store, "plain")
    assert ([], _ids(20)) == (found["errors"], found["ids"])


def _verb(store: Store, *arguments: str) -> dict[str, Any]:
    done = store.li("state", "progression-migrate", *arguments, "--json", mode="bridge")
    assert done.returncode in (0, 7), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_only_a_process_without_the_bridge_holds_the_cutover(stores: Stores) -> None:
    """Decision 37: by the times of sessions, and on PostgreSQL by the versions of dual rows."""
    store = stores("a", "plain")
    _talk(store, "plain")
    assert {"foreign_writer": 2} == _verb(store, "step", "--until-done")["held"]
    assert 2 == _verb(store, "status")["phases"]["dual"]
    assert _ids(10) == _talk(store, "bridge")["ids"]
    assert {} == _verb(store, "step", "--until-done")["held"]
    assert 2 == _verb(store, "status")["phases"]["items"]
    assert _ids(15) == _talk(store, "bridge")["ids"]


def test_li_has_the_verbs_of_the_record(stores: Stores) -> None:
    """ADR-0117 D5: `li state progression-migrate status|step|verify|compat-read`, on the store LionAGI is set to."""
    store = stores("a", "plain")
    _talk(store, "plain")
    assert 2 == _verb(store, "status")["phases"]["json"]
    _verb(store, "step", "--progression", "s-part", "--accept-foreign-writers")
    assert 1 == _verb(store, "status")["phases"]["items"]
    assert "s-part" == _verb(store, "verify", "s-part")["progression_id"]
    assert _verb(store, "compat-read", "s-part", "--enable")["compat_read"]
    assert _ids(10) == _talk(store, "bridge")["ids"]
    assert not _verb(store, "compat-read", "s-part", "--disable")["compat_read"]


def test_a_daemon_of_another_store_is_refused(stores: Stores, daemons: Daemons) -> None:
    """Its appends to progressions that it does not have would be silent no-ops."""
    store, other = stores("a", "plain"), stores("b", "plain")
    _talk(store, "plain")
    cut_over(store)
    daemon = daemons(other.url, storage__lionagi_compatible="true")
    found = _talk(store, daemon.target)
    assert "serves another store" in found["failed"]
    assert _ids(10) == _talk(store, "bridge")["ids"]


def test_a_process_that_lionagi_starts_is_bridged_too(stores: Stores) -> None:
    store = stores("a", "plain")
    _talk(store, "plain")
    cut_over(store)
    variables = dict(store.variables)
    bridge_children(daemon=None, allow_unverified=False, environment=variables)
    talk = Talk(store, "s", script="switch.py", variables=variables)
    found = talk.end()
    assert ([], _ids(10)) == (found["errors"], found["ids"])
