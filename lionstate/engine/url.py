"""Store URLs: what users may write and what the engines take."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL, make_url

from lionstate.errors import InvalidInputError

__all__ = ["StoreURL", "normalize_state_db_url"]

_CREDENTIALS = re.compile(r"^[^/\s]+:[^/\s]*@[^/\s]+")
_SQLITE = "sqlite+aiosqlite:///"
_POSTGRESQL = "postgresql+asyncpg://"


def normalize_state_db_url(target: str | Path) -> str:
    """The URL of a store in SQLAlchemy's spelling.

    Args:
        target: A path, ``:memory:``, ``sqlite:///…`` or ``postgresql://…``; a URL with a driver stays as it is.
    Raises:
        InvalidInputError: The text looks like credentials without a scheme.

    Contract: reference §2.0, ADR-0055 D1.
    """
    if isinstance(target, Path):
        return _SQLITE + str(target.expanduser().resolve())
    if target == ":memory:":
        return _SQLITE + ":memory:"
    if "://" not in target:
        if _CREDENTIALS.match(target) and not target.startswith("./"):
            raise InvalidInputError("this looks like credentials without a scheme: write postgresql://… or ./path")
        return _SQLITE + str(Path(target).expanduser().resolve())
    scheme, rest = target.split("://", 1)
    if scheme == "sqlite":
        return f"sqlite+aiosqlite://{rest}"
    if scheme in ("postgres", "postgresql"):
        return _POSTGRESQL + rest
    return target


@dataclass(frozen=True, slots=True)
class StoreURL:
    """A normalized store URL.

    Attributes:
        text: The URL with its password.
        dialect: ``sqlite`` or ``postgresql``; any other prefix is refused by ``of``.
        path: The store file; None for PostgreSQL and for ``:memory:``.
    """

    text: str
    dialect: str
    path: Path | None

    @classmethod
    def of(cls, target: str | Path) -> StoreURL:
        """Parse and normalize; InvalidInputError for a scheme that is neither SQLite nor PostgreSQL."""
        text = normalize_state_db_url(target)
        try:
            url = make_url(text)
        except Exception as error:
            raise InvalidInputError("the store URL cannot be parsed") from error
        dialect = url.get_backend_name()
        if dialect not in ("sqlite", "postgresql"):
            raise InvalidInputError(f"stores are SQLite or PostgreSQL, not {dialect}")
        path = None
        if dialect == "sqlite" and url.database not in (None, "", ":memory:"):
            path = Path(str(url.database))
        return cls(text, dialect, path)

    @property
    def is_memory(self) -> bool:
        """Whether the store lives in this process only."""
        return self.dialect == "sqlite" and self.path is None

    @property
    def sqlalchemy(self) -> URL:
        """The URL as SQLAlchemy's object."""
        return make_url(self.text)

    @property
    def masked(self) -> str:
        """The URL with its password hidden, for logs and errors."""
        return self.sqlalchemy.render_as_string(hide_password=True)
