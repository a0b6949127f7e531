"""Writes what is generated from the settings into a checkout: `config/lionstated.toml`, and the table of the README."""

from __future__ import annotations

import re
from pathlib import Path

from . import config_text, settings_table


def _main() -> None:
    Path("config/lionstated.toml").write_text(config_text(), encoding="utf-8")
    readme = Path("README.md")
    text = readme.read_text(encoding="utf-8")
    table = f"<!-- settings -->\n{settings_table()}<!-- /settings -->"
    readme.write_text(
        re.sub(r"<!-- settings -->.*<!-- /settings -->", lambda _: table, text, flags=re.DOTALL), encoding="utf-8"
    )


if __name__ == "__main__":
    _main()
