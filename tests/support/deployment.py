"""The files of ``deploy/``, and the tools that check them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.missing import missing

__all__ = ["DEPLOY", "REPOSITORY", "hidden_from_units", "install_systemd", "readme_anchors", "run", "tool"]

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"


def tool(name: str) -> str:
    """A program of the system; the test is skipped without it, and fails where CI asks for it."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        missing(f"{name} is not installed")
    return found


def run(*command: str | Path) -> tuple[int, str]:
    """Exit code, and stdout and stderr together."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def install_systemd(folder: Path, *drop_ins: str, environment: Path = Path("/opt/lionstate")) -> Path:
    """``make install-systemd`` into a folder, for a package in ``environment``; where the units are."""
    code, text = run(
        "make",
        "--no-print-directory",
        "--directory",
        REPOSITORY,
        "install-systemd",
        f"DESTDIR={folder}",
        f"LIONSTATE_VENV={environment}",
        f"DROP_INS={' '.join(drop_ins)}",
    )
    assert 0 == code, text
    return folder / "usr/lib/systemd/system"


def hidden_from_units(path: Path) -> str | None:
    """Why a unit of ``deploy/systemd`` cannot see a path: it lies below a folder that its sandbox replaces."""
    for setting, folders in (("PrivateTmp", ("/tmp", "/var/tmp")), ("ProtectHome", ("/home", "/root", "/run/user"))):
        for folder in folders:
            if path.resolve().is_relative_to(folder):
                return f"{path} is below {folder}, which {setting}= hides from the unit: use a checkout elsewhere"
    return None


def readme_anchors() -> set[str]:
    """The anchors that the headings of the README have on the pages that show it."""
    lines = (REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()
    titles = [line.lstrip("#").strip().lower() for line in lines if line.startswith("#")]
    return {"".join(c for c in title if c.isalnum() or c in " -_").replace(" ", "-") for title in titles}
