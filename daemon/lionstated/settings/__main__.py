"""Writes what is generated from the settings into a checkout: `config/lionstated.toml`, and the table of the README."""

from __future__ import annotations

from pathlib import Path

from . import config_text, put_table, settings_table

if __name__ == "__main__":
    Path("config/lionstated.toml").write_text(config_text(), encoding="utf-8")
    put_table("settings", settings_table())
