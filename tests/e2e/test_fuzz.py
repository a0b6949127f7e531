"""The published document against the real daemon; the long run is soak/test_fuzz.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Daemons
from tests.support.fuzz import fuzz


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_answer_is_one_that_the_document_names(daemons: Daemons, folder: Path) -> None:
    fuzz(daemons, folder, cases=300, seed=1)
