"""The environment of LionAGI 0.36.0 and lionstate together, made once and kept; not ours, whose tools it lacks.

python -m tests.support.lionagi_environment     makes it and prints its interpreter
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

__all__ = ["bridge_python", "environment"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-bridge"
REQUIREMENTS = ("lionagi[studio]==0.36.0", "-e", str(ROOT))


def bridge_python() -> Path:
    """Its interpreter; the first call of a checkout takes a minute or two and the package index."""
    python = FOLDER / "bin" / "python"
    stamp = FOLDER / ".installed"
    wanted = hashlib.sha256(repr(REQUIREMENTS).encode() + (ROOT / "pyproject.toml").read_bytes()).hexdigest()
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / ".lock").open("w") as lock:
        # Several workers of a test run want it at once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True)
            install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS]
            subprocess.run(install, check=True, stdout=sys.stderr)
            stamp.write_text(wanted)
    return python


def environment(home: Path, url: str, **more: str) -> dict[str, str]:
    """Variables of a process there: nothing of the user's own LionAGI is touched.

    Args:
        home: An empty folder.
        url: The store that LionAGI is configured for.
        more: Others.
    """
    path = os.environ.get("PATH", os.defpath)
    fixed = {"PATH": path, "HOME": str(home), "LIONAGI_HOME": str(home), "LIONAGI_STATE_DB_URL": url}
    return fixed | more


if __name__ == "__main__":
    print(bridge_python())
