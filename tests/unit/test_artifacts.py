"""The expected-artifact verifier (ADR-0055 D5), row by row of its contract."""

import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest

from lionstate.artifacts import (
    resolve_artifact_contract,
    resolve_artifact_path,
    validate_artifact_contract,
    verify_artifact_contract,
)
from lionstate.errors import ArtifactPathError


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


class TestPaths:
    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("/a.md", "absolute path not allowed"),
            ("//a.md", "absolute path not allowed"),
            ("a\0b", "absolute path not allowed"),
            *[(f"x{mark}y", "glob characters not allowed") for mark in "*?[]{}~"],
            ("~/a", "glob characters not allowed"),
            ("../*", "glob characters not allowed"),
            ("..", "segments not allowed"),
            ("a/..", "segments not allowed"),
            ("a/../b", "segments not allowed"),
            ("./..", "segments not allowed"),
            (".", "segments not allowed"),
            ("./", "segments not allowed"),
        ],
    )
    def test_refused(self, root: Path, path: str, message: str) -> None:
        with pytest.raises(ArtifactPathError, match=message):
            validate_artifact_contract(contract(entry(path)))
        with pytest.raises(ArtifactPathError, match=message):
            resolve_artifact_path(path, artifacts_root=str(root))

    @pytest.mark.parametrize("path", [None, 5, "", b"a"])
    def test_not_text_or_empty(self, root: Path, path: Any) -> None:
        with pytest.raises(ArtifactPathError, match="absolute path not allowed"):
            resolve_artifact_path(path, artifacts_root=str(root))

    @pytest.mark.parametrize(
        ("path", "normalised"),
        [("./a.md", "a.md"), ("a//b", "a/b"), ("a/./b", "a/b"), ("dir/", "dir")]
        + [(name, name) for name in ("..a", "a..b", "...", "a b", "a\nb", "a\\b", "C:\\x", "é.md", "-")],
    )
    def test_accepted(self, root: Path, path: str, normalised: str) -> None:
        validate_artifact_contract(contract(entry(path)))
        found = root / normalised
        found.parent.mkdir(exist_ok=True)
        found.write_bytes(b"x")

        assert str(found) == resolve_artifact_path(path, artifacts_root=str(root))
        assert [{"id": "a", "path": normalised, "size": 1, "present": True}] == verify(root, entry(path))["produced"]

    def test_escape_through_a_symlink(self, root: Path) -> None:
        (root.parent / "root-twin").mkdir()
        (root.parent / "root-twin" / "a.md").write_text("x")
        (root / "out").symlink_to(root.parent / "root-twin")
        (root / "out.md").symlink_to("../root-twin/a.md")

        for path in ("out/a.md", "out.md"):
            with pytest.raises(ArtifactPathError, match="escapes"):
                resolve_artifact_path(path, artifacts_root=str(root))
            assert ("failed", []) == (
                verify(root, entry(path))["status"],
                verify(root, entry(path))["produced"],
            )

    def test_root_of_the_file_system(self) -> None:
        assert "/etc" == resolve_artifact_path("etc", artifacts_root="/")


class TestValidation:
    @pytest.mark.parametrize("value", [None, {"expected": []}, contract(entry())])
    def test_valid(self, value: Any) -> None:
        validate_artifact_contract(value)

    def test_is_a_value_error(self) -> None:
        with pytest.raises(ValueError, match="not a dict"):
            validate_artifact_contract([])  # type: ignore[arg-type]

    @pytest.mark.parametrize("value", [[], "x", 5, [entry()]])
    def test_not_a_dict(self, value: Any) -> None:
        with pytest.raises(ArtifactPathError, match="not a dict"):
            validate_artifact_contract(value)

    @pytest.mark.parametrize("value", [{}, {"expected": None}, {"expected": ()}, {"expected": "x"}])
    def test_expected_is_a_list(self, value: Any) -> None:
        with pytest.raises(ArtifactPathError, match="expected: list"):
            validate_artifact_contract(value)

    @pytest.mark.parametrize("value", [None, "x", [], 1])
    def test_entry_is_a_dict(self, value: Any) -> None:
        with pytest.raises(ArtifactPathError, match="entry 1 is not a dict"):
            validate_artifact_contract(contract(entry(), value))

    @pytest.mark.parametrize("value", ["", " ", "a b", "a.b", "é", "a\n", 1, None, ["a"]])
    def test_id(self, value: Any) -> None:
        with pytest.raises(ArtifactPathError, match="needs an id"):
            validate_artifact_contract(contract(entry(id=value)))

    def test_id_is_needed(self) -> None:
        with pytest.raises(ArtifactPathError, match="needs an id"):
            validate_artifact_contract(contract({"path": "a"}))

    def test_ids_are_unique_and_paths_need_not_be(self) -> None:
        validate_artifact_contract(contract(entry(), entry(id="A_-9")))
        with pytest.raises(ArtifactPathError, match="duplicate id a"):
            validate_artifact_contract(contract(entry("x"), entry("y")))

    @pytest.mark.parametrize("value", ["", None, 1, ["a"]])
    def test_path_is_text(self, value: Any) -> None:
        with pytest.raises(ArtifactPathError, match="non-empty path"):
            validate_artifact_contract(contract(entry(value)))

    @pytest.mark.parametrize(
        "more",
        [{"required": 1}, {"required": None}, {"required": "true"}]
        + [{key: value} for key in ("description", "source") for value in (None, 1, ["x"])],
    )
    def test_types_of_the_rest(self, more: dict[str, Any]) -> None:
        with pytest.raises(ArtifactPathError, match=next(iter(more))):
            validate_artifact_contract(contract(entry(**more)))

    def test_order_of_checks(self) -> None:
        with pytest.raises(ArtifactPathError, match="entry 1 is not a dict"):
            validate_artifact_contract(contract(entry(id="."), None))
        with pytest.raises(ArtifactPathError, match="required"):
            validate_artifact_contract(contract(entry("/a", required=1)))

    def test_unknown_keys_are_kept_and_warned_about(self, caplog: pytest.LogCaptureFixture) -> None:
        value = contract(entry(sha256="x"))
        validate_artifact_contract(value)

        assert "x" == value["expected"][0]["sha256"]
        assert 1 == len(caplog.records)


class TestResolution:
    def test_none(self) -> None:
        assert resolve_artifact_contract(playbook_artifacts=None, agent_defaults=None) is None

    def test_order_and_replacement_as_a_whole(self) -> None:
        agent = contract(entry("1", description="d", required=False, extra=1), entry("2", id="b"))
        playbook = contract(entry("3", id="c", source="given"), entry("4"))

        assert {
            "expected": [
                {"id": "a", "path": "4", "required": True, "description": "", "source": "playbook"},
                {"id": "b", "path": "2", "required": True, "description": "", "source": "agent_profile"},
                {"id": "c", "path": "3", "required": True, "description": "", "source": "playbook"},
            ]
        } == resolve_artifact_contract(playbook_artifacts=playbook, agent_defaults=agent)
        assert {"id", "path", "description", "required", "extra"} == set(agent["expected"][0])

    def test_keeps_what_is_given(self, caplog: pytest.LogCaptureFixture) -> None:
        given = contract(entry(description="d", required=False, extra=1, source="x"))
        resolved = resolve_artifact_contract(playbook_artifacts=None, agent_defaults=given)

        assert resolved == contract(
            entry(description="d", required=False, extra=1, source="agent_profile"),
        )
        assert ["artifact contract: artifact 'a' has unknown keys: extra"] == [
            record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
        ]

    @pytest.mark.parametrize("value", [[], "x", {}, {"expected": None}, {"expected": ()}, contract(None)])
    def test_malformed(self, value: Any) -> None:
        with pytest.raises(ArtifactPathError):
            resolve_artifact_contract(playbook_artifacts=value, agent_defaults=None)
        with pytest.raises(ArtifactPathError):
            resolve_artifact_contract(playbook_artifacts=contract(), agent_defaults=value)

    def test_entry_without_id(self) -> None:
        with pytest.raises(KeyError):
            resolve_artifact_contract(playbook_artifacts=contract({"path": "a"}), agent_defaults=None)

    @pytest.mark.parametrize("bad", [entry("../a"), entry(id=["a"]), entry(required=None)])
    def test_result_is_validated(self, bad: dict[str, Any]) -> None:
        with pytest.raises(ArtifactPathError):
            resolve_artifact_contract(playbook_artifacts=contract(bad), agent_defaults=None)

    def test_duplicates_inside_one_input(self) -> None:
        resolved = resolve_artifact_contract(
            playbook_artifacts=contract(entry("1"), entry("2", id="b"), entry("3")), agent_defaults=None
        )
        assert resolved is not None
        assert [("a", "3"), ("b", "2")] == [(found["id"], found["path"]) for found in resolved["expected"]]

    def test_empty_list_is_an_empty_contract(self) -> None:
        assert contract() == resolve_artifact_contract(playbook_artifacts=contract(), agent_defaults=None)


class TestVerification:
    def test_no_contract_touches_no_file(self) -> None:
        class Untouchable(str):
            def __bool__(self) -> bool:
                raise AssertionError

        assert verify_artifact_contract(None, artifacts_root=Untouchable("/")) is None

    @pytest.mark.parametrize("root", [None, "", "/nonexistent/root"])
    def test_malformed_contract_raises_without_a_root(self, root: str | None) -> None:
        with pytest.raises(ArtifactPathError):
            verify_artifact_contract(contract(entry("..")), artifacts_root=root)

    def test_no_usable_root(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        optional = entry(id="o", required=False)
        for root in (None, "", "\0", tmp_path / "absent", tmp_path / "file"):
            assert ("failed", [entry()], [optional], []) == tuple(
                verify(root, entry(), optional)[key]
                for key in ("status", "missing_required", "missing_optional", "produced")
            )
            assert "warning" == verify(root, optional)["status"]
            assert "passed" == verify(root)["status"]

    def test_produced_in_order_of_the_contract(self, root: Path) -> None:
        (root / "dir").mkdir()
        (root / "b.md").write_bytes(b"123")
        (root / "dir" / "a.md").write_bytes(b"12345")
        before = time.time()
        result = verify(root, entry("b.md", id="b"), entry("./dir//a.md"), entry("x", id="x", required=False))

        assert ["status", "checked_at", "missing_required", "missing_optional", "produced"] == list(result)
        assert before <= result["checked_at"] <= time.time()
        assert [
            {"id": "b", "path": "b.md", "size": 3, "present": True},
            {"id": "a", "path": "dir/a.md", "size": 5, "present": True},
        ] == result["produced"]
        assert "warning" == result["status"]
        assert [entry("x", id="x", required=False)] == result["missing_optional"]

    def test_symlinks_inside_the_root(self, root: Path) -> None:
        (root / "dir").mkdir()
        (root / "dir" / "target[1].md").write_bytes(b"x")
        (root / "link").symlink_to("dir/target[1].md")
        (root.parent / "way").symlink_to(root)

        expected = [{"id": "a", "path": "dir/target[1].md", "size": 1, "present": True}]
        assert expected == verify(root, entry("link"))["produced"]
        assert expected == verify(root.parent / "way", entry("link"))["produced"]

    def test_missing_kinds(self, root: Path) -> None:
        (root / "dir").mkdir()
        (root / "empty").touch()
        (root / "dangling").symlink_to("nowhere")
        (root / "loop").symlink_to("loop")
        (root / "self").symlink_to(".")
        os.mkfifo(root / "fifo")
        names = ["dir", "empty", "dangling", "loop", "self", "fifo", "absent", "empty/x", "x" * 300, "\ud800"]
        entries = [entry(name, id=str(position)) for position, name in enumerate(names)]

        assert entries == verify(root, *entries)["missing_required"]

    def test_no_search_in_subdirectories(self, root: Path) -> None:
        (root / "worker").mkdir()
        (root / "worker" / "a.md").write_text("x")

        assert "failed" == verify(root, entry("a.md"))["status"]
        assert "passed" == verify(root, entry("worker/a.md"))["status"]

    def test_empty_file_at_the_root_wins(self, root: Path) -> None:
        (root / "worker").mkdir()
        (root / "worker" / "a.md").write_text("x")
        (root / "a.md").touch()

        assert "failed" == verify(root, entry("a.md"))["status"]

    def test_required_miss_beats_optional_miss(self, root: Path) -> None:
        result = verify(root, entry("x", required=False), entry("y", id="y", required=True))

        assert "failed" == result["status"]
        assert (1, 1) == (len(result["missing_required"]), len(result["missing_optional"]))

    def test_stays_silent_about_unknown_keys(self, root: Path, caplog: pytest.LogCaptureFixture) -> None:
        assert [entry(extra=1)] == verify(root, entry(extra=1))["missing_required"]
        assert [] == caplog.records
