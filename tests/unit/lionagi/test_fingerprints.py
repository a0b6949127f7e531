"""Which LionAGI the bridge takes: sources by hash, without importing them."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from lionstate.errors import UnverifiedLionagiError
from lionstate.lionagi import fingerprints, install, is_installed, uninstall
from lionstate.lionagi.fingerprints import differences, fingerprint
from lionstate.lionagi.handle import Options
from lionstate.lionagi.patches import patches
from lionstate.lionagi.pins import PINS, VERSION

SOURCE = '''
class Other:
    async def method(self):
        return 0


class Owner:
    @mark
    @other(
        1
    )
    async def method(self):
        """Text
at the edge.
        """
        return 1

    def method_of_a_longer_name(self): ...


def method():
    return 2
'''


def _of(source: str, name: str) -> str | None:
    return fingerprint(source.splitlines(keepends=True), name)


class TestFingerprint:
    def test_tells_functions_of_one_name_apart(self) -> None:
        found = {_of(SOURCE, name) for name in ("method", "Owner.method", "Other.method")}
        assert 3 == len(found)
        assert None not in found

    @pytest.mark.parametrize("name", ["missing", "Owner.missing", "Missing.method"])
    def test_is_none_for_what_is_not_there(self, name: str) -> None:
        assert _of(SOURCE, name) is None

    @pytest.mark.parametrize(("old", "new"), [("return 1", "return  1"), ("@mark", "@mask"), ("edge.", "edge")])
    def test_changes_with_body_and_decorators(self, old: str, new: str) -> None:
        assert _of(SOURCE, "Owner.method") != _of(SOURCE.replace(old, new), "Owner.method")

    def test_does_not_change_with_what_stands_around(self) -> None:
        other = "import this\n" + SOURCE.replace("return 2", "return 3").replace("return 1", "return 1   ")
        assert _of(SOURCE, "Owner.method") == _of(other, "Owner.method")


class TestDifferences:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        (tmp_path / "state").mkdir()
        (tmp_path / "state" / "db.py").write_text(SOURCE)
        monkeypatch.setattr(importlib.metadata, "version", lambda _: VERSION)
        return tmp_path

    def _pins(self) -> dict[str, dict[str, str]]:
        return {"lionagi.state.db": {name: _of(SOURCE, name) or "" for name in ("method", "Owner.method")}}

    def test_are_none_for_the_pinned_source(self, folder: Path) -> None:
        assert [] == differences(folder, self._pins())

    def test_name_every_function_and_the_version(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.37.0")
        (folder / "state" / "db.py").write_text(SOURCE.replace("return 1", "return 9"))
        pins = self._pins() | {"lionagi.cli.gone": {"function": "0"}}
        expected = [
            f"lionagi is 0.37.0, not {VERSION}",
            "lionagi.state.db.Owner.method is another",
            "lionagi.cli.gone.function is missing",
        ]
        assert expected == differences(folder, pins)


class TestInstall:
    def test_is_refused_without_lionagi(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fingerprints, "package_folder", lambda: None)
        with pytest.raises(UnverifiedLionagiError, match="lionagi is not installed"):
            install(allow_unverified=True)
        assert not is_installed()

    def test_is_refused_with_another_and_names_what_differs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fingerprints, "package_folder", lambda: tmp_path)
        with pytest.raises(UnverifiedLionagiError, match=r"lionagi\.state\.db\.StateDB\._tx is missing"):
            install()
        assert not is_installed()

    def test_takes_another_when_told_to(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fingerprints, "package_folder", lambda: tmp_path)
        try:
            install(allow_unverified=True)
            assert is_installed()
        finally:
            uninstall()
        assert not is_installed()


def test_everything_that_is_replaced_is_pinned() -> None:
    replaced = {(module, name) for module, functions in patches(Options()).items() for name in functions}
    pinned = {(module, name) for module, functions in PINS.items() for name in functions}
    # Both pages import this name; the function itself is pinned.
    imported = {(f"lionagi.studio.services.{page}", "_open_db") for page in ("admin", "sessions")}
    assert imported == replaced - pinned
    assert ("lionagi.studio.services._db", "open_db") in pinned
