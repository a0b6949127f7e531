"""A LionAGI run without a network, migrated in its middle, against the same run without lionstate."""

from __future__ import annotations

import pytest

from tests.bridge.conftest import Daemons, Stores
from tests.bridge.runs import check, migrated, plain

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

MESSAGES = 120


def test_is_what_it_would_have_been_without_lionstate(stores: Stores, daemons: Daemons) -> None:
    expected = plain(stores("plain", "plain"), MESSAGES)
    actual = migrated(stores("bridged", "bridge"), MESSAGES, daemons)
    check(expected, actual, MESSAGES)
