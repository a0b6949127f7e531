"""The units of deploy/systemd as ``make install-systemd`` puts them in place."""

from __future__ import annotations

import configparser
import re
import sys
import tomllib
from pathlib import Path

import pytest

from lionstated.settings import Settings, load_settings
from tests.support.deployment import DEPLOY, hidden_from_units, install_systemd, run, tool

UNITS = DEPLOY / "systemd"
DROP_INS = sorted(path.stem for path in (UNITS / "drop-ins").iterdir())


class _Unit(configparser.RawConfigParser):
    """A unit file: keys keep their case, and may come twice (the last counts here)."""

    def __init__(self, path: Path) -> None:
        super().__init__(strict=False, delimiters=("=",), comment_prefixes=("#",))
        self.optionxform = str
        self.read_string(path.read_text(encoding="utf-8"))


def service() -> configparser.SectionProxy:
    return _Unit(UNITS / "lionstated.service")["Service"]


@pytest.mark.parametrize(
    "drop_ins", [(), *((name,) for name in DROP_INS)], ids=lambda names: "+".join(names) or "plain"
)
def test_systemd_has_nothing_to_say(tmp_path: Path, drop_ins: tuple[str, ...]) -> None:
    """Unknown keys and bad values are a line on stderr, with exit code 0."""
    # Systemd looks whether the program is there.
    units = install_systemd(tmp_path, *drop_ins, environment=Path(sys.executable).parents[1])
    verify = (tool("systemd-analyze"), "verify", "--man=no", units / "lionstated.service", units / "lionstated.socket")
    assert (0, "") == run(*verify)


@pytest.mark.parametrize(("drop_ins", "limit"), [((), 10), (("uds-only",), 5)], ids=["plain", "uds-only"])
def test_exposure(tmp_path: Path, drop_ins: tuple[str, ...], limit: int) -> None:
    units = install_systemd(tmp_path, *drop_ins)
    command = (tool("systemd-analyze"), "security", "--offline=true", "--no-pager", f"--threshold={limit}")
    code, text = run(*command, units / "lionstated.service")
    print(text.splitlines()[-1])
    assert 0 == code, text


def test_a_checkout_that_the_sandbox_hides_is_told_at_once() -> None:
    """`make deploy-check` there would fail in every check, each for a reason that says nothing."""
    assert ("yes", "yes") == (service()["PrivateTmp"], service()["ProtectHome"])
    for folder in ("/tmp", "/var/tmp/x", "/home/me/lionstate", "/root"):
        assert f"{folder} is below" in (hidden_from_units(Path(folder)) or "")
    assert None is hidden_from_units(Path("/opt/tmp/lionstate"))


def test_what_is_installed(tmp_path: Path) -> None:
    install_systemd(tmp_path)
    installed = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {
        "etc/lionstate/lionstated.toml",
        "usr/lib/systemd/system/lionstated.service",
        "usr/lib/systemd/system/lionstated.socket",
        "usr/lib/sysusers.d/lionstate.conf",
        "usr/lib/tmpfiles.d/lionstate.conf",
        *(f"usr/share/lionstate/systemd/{name}.conf" for name in DROP_INS),
    } == installed
    settings = tmp_path / "etc/lionstate/lionstated.toml"
    assert {"database": {"url": "/var/lib/lionstate/state.db"}} == {
        key: value for key, value in tomllib.loads(settings.read_text()).items() if value
    }
    settings.write_text("[log]\nlevel = 'debug'\n")
    install_systemd(tmp_path)
    assert "[log]\nlevel = 'debug'\n" == settings.read_text(), "settings that are there stay"


def test_the_environment_names_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, str] = {}
    for path in (UNITS / "lionstated.service", *(UNITS / "drop-ins").iterdir()):
        for line in re.findall(r"^Environment=(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            found |= dict(part.split("=", 1) for part in line.split())
    assert "" == found["LIONSTATE_LISTEN__OPS"]
    for name, value in found.items():
        if name.startswith("LIONSTATE_"):
            monkeypatch.setenv(name, value)
    assert "lionstate" == load_settings().listen.socket_group


def test_the_daemon_may_drain_within_the_time_that_it_has() -> None:
    """It asks for its budget and what closing takes when the stop begins; the unit's time is for one that cannot."""
    assert float(service()["TimeoutStopSec"]) > Settings().shutdown.drain_seconds + 5


def test_the_socket_is_where_the_service_would_bind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", f"/run/{service()['RuntimeDirectory']}")
    socket = _Unit(UNITS / "lionstated.socket")["Socket"]
    assert socket["ListenStream"] == Settings().socket_path()
    assert ("lionstate", "lionstate", "0660") == (socket["SocketUser"], socket["SocketGroup"], socket["SocketMode"])
