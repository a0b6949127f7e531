"""What every section of the settings is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, field_validator

__all__ = ["Section"]


class Section(BaseModel):
    """A table of the file: unknown names are refused, and numbers that are infinite or none."""

    model_config = ConfigDict(extra="forbid", validate_default=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _absent(cls, value: object) -> object:
        # TOML and environment have no null: empty text stands for "not given".
        return None if value == "" else value
