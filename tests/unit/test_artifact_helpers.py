"""The expected-artifact verifier (ADR-0055 D5), the helpers around it."""

import os
from pathlib import Path
from typing import Any

import pytest

from lionstate.artifacts import (
    missing_artifact_evidence,
    missing_artifact_summary,
    stale_artifact_markers,
    verify_artifact_contract,
    warn_unknown_artifact_keys,
)


def entry(path: Any = "a.md", **more: Any) -> dict[str, Any]:
    return {"id": "a", "path": path, **more}


def contract(*entries: Any) -> dict[str, Any]:
    return {"expected": list(entries)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def verify(root: Path | str | None, *entries: dict[str, Any]) -> dict[str, Any]:
    result = verify_artifact_contract(contract(*entries), artifacts_root=None if root is None else str(root))
    assert result is not None
    return dict(result)


class TestHelpers:
    def test_summary(self) -> None:
        assert "0 expected artifacts missing" == missing_artifact_summary([])
        assert "expected artifact missing: a (a.md)" == missing_artifact_summary([entry()])
        assert "2 expected artifacts missing" == missing_artifact_summary([entry(), entry()])

    def test_evidence(self) -> None:
        assert [
            {"kind": "expected_artifact", "id": "a", "label": "a.md"},
            {"kind": "expected_artifact", "id": "b", "label": ""},
        ] == missing_artifact_evidence([entry(), {"id": "b"}])

    def test_warning_takes_emit(self) -> None:
        seen: list[str] = []
        messages = warn_unknown_artifact_keys(
            contract(entry(z=1, b=2), entry(), None, "x", entry(id="c", k=1)), source="plan", emit=seen.append
        )

        assert (
            [
                "plan: artifact 'a' has unknown keys: b, z",
                "plan: artifact 'c' has unknown keys: k",
            ]
            == messages
            == seen
        )

    @pytest.mark.parametrize("value", [None, [], "x", {}, {"expected": None}, contract(None, 1, [])])
    def test_warning_tolerates_any_shape(self, value: Any) -> None:
        assert [] == warn_unknown_artifact_keys(value, source="plan")


class TestStaleness:
    @pytest.fixture
    def verdict(self, root: Path) -> dict[str, Any]:
        for name in ("a", "b", "c"):
            (root / name).write_bytes(b"x")
            os.utime(root / name, (1_000, 1_000))
        return verify(root, *[entry(name, id=name) for name in ("a", "b", "c")])

    def markers(self, verdict: Any, root: Path | None) -> Any:
        return stale_artifact_markers(verdict, artifacts_root=None if root is None else str(root))

    def test_fresh(self, root: Path, verdict: dict[str, Any]) -> None:
        assert {
            "staleness_check": "checked",
            "changed_since_check": [],
            "absent_since_check": [],
        } == self.markers(verdict, root)

    def test_changed_and_absent(self, root: Path, verdict: dict[str, Any]) -> None:
        """A kept modification time with another size counts, and so does a later one with the same size."""
        (root / "a").write_bytes(b"xx")
        os.utime(root / "a", (1_000, 1_000))
        os.utime(root / "b", (verdict["checked_at"] + 5, verdict["checked_at"] + 5))
        (root / "c").unlink()
        (root / "c").mkdir()

        assert {
            "staleness_check": "checked",
            "changed_since_check": ["a", "b"],
            "absent_since_check": ["c"],
        } == self.markers(verdict, root)
        assert "passed" == verdict["status"]

    def test_root_is_gone(self, root: Path, verdict: dict[str, Any]) -> None:
        assert ["a", "b", "c"] == self.markers(verdict, root / "gone")["absent_since_check"]

    def test_no_root(self, verdict: dict[str, Any]) -> None:
        assert self.markers(verdict, None) is None
        assert stale_artifact_markers(verdict, artifacts_root="") is None

    @pytest.mark.parametrize(
        "value",
        [
            None,
            [],
            {},
            {"produced": []},
            {"checked_at": "1", "produced": []},
            {"checked_at": True, "produced": []},
            {"checked_at": 1.0},
            {"checked_at": 1.0, "produced": {}},
        ],
    )
    def test_malformed_verdict(self, root: Path, value: Any) -> None:
        assert self.markers(value, root) is None

    def test_malformed_entries(self, root: Path) -> None:
        (root.parent / "outside").write_bytes(b"x")
        produced = [None, {}, {"id": 5}, {"id": "a"}, {"id": "b", "path": "../outside", "size": 1}]
        produced += [{"id": "c", "path": str(root.parent / "outside"), "size": 1}, {"id": "d", "path": "\0"}]

        assert [
            "a",
            "b",
            "c",
            "d",
        ] == self.markers({"checked_at": 1, "produced": produced}, root)["absent_since_check"]

    def test_names_of_symlink_targets(self, root: Path) -> None:
        (root / "t[1]").write_bytes(b"x")
        (root / "link").symlink_to("t[1]")
        os.utime(root / "t[1]", (1_000, 1_000))

        assert [] == self.markers(verify(root, entry("link")), root)["absent_since_check"]
