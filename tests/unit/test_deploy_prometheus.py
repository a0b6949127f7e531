"""Rules and dashboard: valid, tested alert by alert, about metrics that exist, with runbooks that exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lionstate.operations import OPERATIONS
from lionstated.metrics import Metrics
from tests.support.deployment import DEPLOY, readme_anchors, run, tool

RULES = DEPLOY / "prometheus" / "lionstate.rules.yml"
TESTS = DEPLOY / "prometheus" / "lionstate.test.yml"
DASHBOARD = DEPLOY / "grafana" / "lionstate.json"


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def expressions() -> Iterator[str]:
    """Of the dashboard, with its variables filled in."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"].replace("$__rate_interval", "1m").replace("$job", ".*").replace("$instance", ".*")


def test_promtool_has_nothing_to_say() -> None:
    assert 0 == run(tool("promtool"), "check", "rules", RULES)[0]
    code, text = run(tool("promtool"), "test", "rules", TESTS)
    assert 0 == code, text


@pytest.mark.parametrize("name", ["prometheus.yml", "prometheus-tls.yml"])
def test_the_configurations_are_valid(name: str) -> None:
    """Syntax alone: the files of secrets are not here."""
    code, text = run(tool("promtool"), "check", "config", "--syntax-only", DEPLOY / "prometheus" / name)
    assert 0 == code, text


def test_every_alert_is_seen_to_fire_and_to_be_silent() -> None:
    seen = {
        (case["alertname"], bool(case["exp_alerts"]))
        for test in yaml.safe_load(TESTS.read_text())["tests"]
        for case in test["alert_rule_test"]
    }
    assert {(rule["alert"], fires) for rule in alerts() for fires in (True, False)} == seen


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: str(rule["alert"]))
def test_every_alert_has_a_runbook(rule: dict[str, Any]) -> None:
    file, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert ("README.md", rule["alert"].lower()) == (file, anchor)
    assert anchor in readme_anchors()
    assert rule["labels"]["severity"] in ("warning", "critical")


def test_they_are_about_metrics_that_exist() -> None:
    metrics = Metrics(OPERATIONS)
    metrics.set_sqlite("3.53.4", affected=False)
    known = {sample.name for family in metrics.registry.collect() for sample in family.samples}
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    texts = [*(rule["expr"] for rule in rules()), *expressions()]
    named = {name for text in texts for name in re.findall(r"(?:\w+:)?lionstate_\w+(?::\w+)?", text)}
    assert {name for name in named if ":" in name} <= recorded
    assert set() == {name for name in named if ":" not in name} - known
    for text in texts:
        for label, value in re.findall(r'(outcome|state|phase|code)="(\w+)"', text):
            assert any(
                sample.labels.get(label) == value for family in metrics.registry.collect() for sample in family.samples
            ), (label, value)


def test_the_dashboard_is_what_its_program_writes() -> None:
    program = DEPLOY / "grafana" / "dashboard.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert done.stdout == DASHBOARD.read_text(encoding="utf-8"), f"run: python {program.name} > {DASHBOARD.name}"


def test_every_expression_of_the_dashboard_is_one(tmp_path: Path) -> None:
    records = [{"record": f"panel:number_{place}", "expr": text} for place, text in enumerate(expressions())]
    assert len(records) > 30
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": records}]}))
    code, text = run(tool("promtool"), "check", "rules", file)
    assert 0 == code, text


def test_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert taken.isdisjoint(cells), panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
