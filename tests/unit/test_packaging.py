"""What the layout of the repository promises."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import lionstate

ROOT = Path(__file__).parents[2]


def test_daemon_is_a_folder_not_a_package() -> None:
    # As a package it would hide python-daemon from whoever starts Python in the repository.
    assert not (ROOT / "daemon" / "__init__.py").exists()


@pytest.mark.parametrize("name", ["lionstate", "lionstate.errors", "lionstated"])
def test_imports_from_the_repository(name: str) -> None:
    module = importlib.import_module(name)

    assert module.__doc__


@pytest.mark.parametrize("package", ["lionstate", "daemon/lionstated"])
def test_packages_are_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()


def test_changelog_has_a_place_for_the_next_change() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()

    assert "## [Unreleased]" in text


def test_version_is_a_plain_release_number() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", lionstate.__version__)
