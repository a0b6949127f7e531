"""The built wheel, installed: `make check-wheel` runs this outside the repository."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from lionstated.api.status_page import status_page

PREFIX = Path(sys.prefix)


@pytest.mark.parametrize("name", ["lionstate", "lionstated"])
def test_package_comes_from_the_wheel(name: str) -> None:
    module = __import__(name)

    assert module.__file__ is not None
    folder = Path(module.__file__).parent
    assert folder.is_relative_to(PREFIX)
    assert "site-packages" == folder.parent.name
    assert (folder / "py.typed").exists()


@pytest.mark.parametrize("name", ["lionstate", "lionstated"])
def test_command_is_installed(name: str) -> None:
    assert (PREFIX / "bin" / name).exists()


@pytest.mark.parametrize("folder", ["config", "deploy"])
def test_shared_files_are_installed(folder: str) -> None:
    assert any((PREFIX / "share" / "lionstate" / folder).iterdir())


def test_the_status_page_is_installed() -> None:
    text, _ = status_page()

    assert text.startswith(b"<!doctype html>")
    assert b"/* script */" not in text


def test_nothing_else_is_at_the_top() -> None:
    files = importlib.metadata.files("lionstate") or []
    tops = {file.parts[0] for file in files if file.parts[0] != ".." and not file.parts[0].endswith(".dist-info")}

    assert {"lionstate", "lionstated"} == tops


def test_license_travels_along() -> None:
    metadata = importlib.metadata.metadata("lionstate")

    assert "Apache-2.0" == metadata["License-Expression"]
    assert ["LICENSE"] == metadata.get_all("License-File")
