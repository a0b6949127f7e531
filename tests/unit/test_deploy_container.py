"""The files of deploy/container and deploy/kubernetes: what can be said without an engine."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from lionstated.settings import Settings, load_settings
from tests.support.deployment import DEPLOY

CONTAINER, KUBERNETES = DEPLOY / "container", DEPLOY / "kubernetes"
PODS = ("sidecar.yaml", "native-sidecar.yaml")
USER = 10001


def containers(name: str) -> dict[str, dict[str, Any]]:
    pod = yaml.safe_load((KUBERNETES / name).read_text())["spec"]["template"]["spec"]
    return {one["name"]: one for one in (*pod.get("initContainers", ()), *pod["containers"])}


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
    return found


def test_the_final_stage_only_copies() -> None:
    """So its build needs no network, no shell and no root."""
    final = (CONTAINER / "Dockerfile").read_text().split("\nFROM ")[-1]
    assert "RUN" not in re.findall(r"^[A-Z]+", final, re.MULTILINE)
    assert f"\nUSER {USER}:{USER}\n" in final
    assert "HEALTHCHECK" in final


def test_the_programs_that_are_named_are_shipped() -> None:
    """The wheel brings deploy/ as share/lionstate/deploy of the environment."""
    texts = [path.read_text() for path in (*CONTAINER.iterdir(), *KUBERNETES.iterdir()) if path.is_file()]
    named = set(re.findall(r"/share/lionstate/deploy/([\w/]+\.py)", "\n".join(texts)))
    assert {"container/example_app.py"} == named
    assert all((DEPLOY / name).exists() for name in named)


@pytest.mark.parametrize("place", ["compose.yaml", *PODS])
def test_the_environment_names_settings(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if place == "compose.yaml":
        names = list(compose()["services"]["lionstate"]["environment"])
    else:
        names = [entry["name"] for entry in containers(place)["lionstate"]["env"]]
    assert "LIONSTATE_LISTEN__OPS" in names
    for name in names:
        monkeypatch.setenv(name, "127.0.0.1:1" if name.endswith("OPS") else "x")
    assert "127.0.0.1:1" == load_settings().listen.ops


@pytest.mark.parametrize("name", PODS)
def test_the_pod_is_closed_and_shares_its_socket(name: str) -> None:
    pod = yaml.safe_load((KUBERNETES / name).read_text())["spec"]["template"]["spec"]
    assert (True, USER) == (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"])
    assert pod["terminationGracePeriodSeconds"] > Settings().shutdown.drain_seconds + 5
    for one in containers(name).values():
        assert {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        } == one["securityContext"]
        assert {"name": "socket", "mountPath": "/run/lionstate"} in one["volumeMounts"]
    daemon = containers(name)["lionstate"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        command = daemon[probe]["exec"]["command"]
        assert ["/opt/lionstate/bin/lionstate", "health"] == command[:2]
        assert (probe == "livenessProbe") == ("--live" in command)
    assert ("native" in name) == (daemon.get("restartPolicy") == "Always")


def test_compose_is_closed_too() -> None:
    services = compose()["services"]
    for name in ("lionstate", "app", "prometheus"):
        one = services[name]
        assert (True, ["ALL"]) == (one["read_only"], one["cap_drop"])
    assert {"postgresql", "prometheus"} == {name for name, one in services.items() if "profiles" in one}
    assert f"{USER}:{USER}" == services["lionstate"]["user"] == services["app"]["user"]


def test_prometheus_finds_the_port() -> None:
    monitor = yaml.safe_load((KUBERNETES / "podmonitor.yaml").read_text())["spec"]
    service = yaml.safe_load((KUBERNETES / "service.yaml").read_text())["spec"]
    pod = yaml.safe_load((KUBERNETES / "sidecar.yaml").read_text())["spec"]["template"]
    assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    [endpoint] = monitor["podMetricsEndpoints"]
    assert [endpoint["port"]] == [port["name"] for port in containers("sidecar.yaml")["lionstate"]["ports"]]
    assert ("https", True) == (endpoint["scheme"], "authorization" in endpoint)
