"""5,000 requests made from the published document."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.conftest import Daemons, daemons, folder
from tests.support.fuzz import fuzz

__all__ = ["daemons", "folder"]


def test_every_answer_is_one_that_the_document_names(daemons: Daemons, folder: Path) -> None:
    print(fuzz(daemons, folder, cases=5_000, seed=5))
