"""Store URLs: what users may write and what the engines take."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL, make_url

from lionstate.errors import InvalidInputError

__all__ = ["StoreURL", "normalize_state_db_url"]

_CREDENTIALS = re.compile(r"^[^/\s]+:[^/\s]*@[^/\s]+")
# Several servers after the user: libpq's spelling, which SQLAlchemy's parser does not know.
_HOST = re.compile(r"(?P<host>[A-Za-z0-9.\-]+)(?::(?P<port>\d+))?")
_HOSTS = re.compile(r"^(?P<user>[^/?#]*@)?(?P<hosts>[^@/?#]*,[^@/?#]*)(?P<rest>[/?].*)?$", re.DOTALL)
_ONE_SLASH = re.compile(r"(?:sqlite|postgres(?:ql)?)(?:\+\w+)?:(?!//)")
# How libpq's connection strings begin; as a path each would be a new file.
_WORDS = re.compile(r"\s*(?:host|hostaddr|port|dbname|user|password|passfile|service|sslmode|options)\s*=")
# What a PostgreSQL URL may set after `?`: words of libpq that are mapped, and those of asyncpg and SQLAlchemy that take
# a text. Anything else would fail in the driver, by a name that says nothing.
_PARAMETERS = frozenset(
    (
        *(
            "sslmode",
            "connect_timeout",
            "host",
            "port",
            "user",
            "password",
            "database",
            "passfile",
            "service",
            "servicefile",
        ),
        *("ssl", "direct_tls", "target_session_attrs", "krbsrvname", "gsslib"),
        *("command_timeout", "prepared_statement_cache_size"),
    )
)
_SQLITE = "sqlite+aiosqlite:///"
_POSTGRESQL = "postgresql+asyncpg://"
_PORT = 5432


def normalize_state_db_url(target: str | Path) -> str:
    """The URL of a store in SQLAlchemy's spelling.

    Args:
        target: A path, ``:memory:``, ``sqlite:///…`` or ``postgresql://…``, there also with several hosts
            (``h1:5432,h2:5432``), of which the one that takes writes is used.
    Raises:
        InvalidInputError: The text is empty, looks like credentials without a scheme, like a URL with a slash too few
            or like libpq's `host=…`, or one of several hosts cannot be read.

    Contract: reference §2.0, ADR-0055 D1.
    """
    if isinstance(target, Path):
        return _SQLITE + _resolved(target)
    if not target.strip():
        # As a path it would be the current folder.
        raise InvalidInputError("no store given: the path or URL is empty")
    if target == ":memory:":
        return _SQLITE + ":memory:"
    if "://" not in target:
        if _CREDENTIALS.match(target) and not target.startswith("./"):
            raise InvalidInputError("this looks like credentials without a scheme: write postgresql://… or ./path")
        if _ONE_SLASH.match(target):
            raise InvalidInputError(
                "this looks like a URL: write :// after its scheme, or ./path for a file of that name"
            )
        if _WORDS.match(target):
            raise InvalidInputError(
                "this looks like libpq's connection string (host=… password=***): write"
                " postgresql://user:password@host/database, or ./path for a file of that name"
            )
        return _SQLITE + _resolved(Path(target))
    scheme, rest = target.split("://", 1)
    if scheme == "sqlite":
        return f"sqlite+aiosqlite://{rest}"
    if scheme in ("postgres", "postgresql", "postgresql+asyncpg"):
        return _POSTGRESQL + _with_hosts(rest)
    return target


def _resolved(path: Path) -> str:
    try:
        return str(path.expanduser().resolve())
    except (OSError, RuntimeError, ValueError) as error:
        # A loop of links, the home of a user who is not there, a NUL character.
        raise InvalidInputError(f"the path of the store leads nowhere: {error}") from error


def _with_hosts(rest: str) -> str:
    """Move several hosts into parameters, one each, where SQLAlchemy takes them; one host stays where it is."""
    found = _HOSTS.match(rest)
    if found is None:
        return rest
    path, _, query = (found["rest"] or "").partition("?")
    parameters = [query] if query else []
    for named in reversed(found["hosts"].split(",")):
        host = _HOST.fullmatch(named)
        if host is None:
            raise InvalidInputError("one of several hosts of a store URL is a name or an IPv4 address, and a port")
        parameters.insert(0, f"host={host['host']}:{host['port'] or _PORT}")
    return f"{found['user'] or ''}{path or '/'}?{'&'.join(parameters)}"


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
    def of(cls, target: str | Path | StoreURL) -> StoreURL:
        """Parse and normalize.

        Raises:
            InvalidInputError: An empty text, a scheme that is neither SQLite nor PostgreSQL, another driver than
                asyncpg, parameters on a SQLite URL, which would be dropped silently, or ones that PostgreSQL's driver
                does not know.
        """
        if isinstance(target, StoreURL):
            return target
        text = normalize_state_db_url(target)
        if isinstance(target, Path) or ("://" not in target and target != ":memory:"):
            # A path may hold what would be a query or an escape in a URL.
            return cls(text, "sqlite", Path(text.removeprefix(_SQLITE)))
        try:
            url = make_url(text)
        except Exception as error:
            raise InvalidInputError("the store URL cannot be parsed") from error
        dialect = url.get_backend_name()
        if dialect == "sqlite":
            if url.query:
                raise InvalidInputError("a SQLite URL takes no parameters; settings say how the file is opened")
            memory = url.database in (None, "", ":memory:")
            return cls(text, dialect, None if memory else Path(str(url.database)))
        if dialect != "postgresql":
            raise InvalidInputError(f"stores are SQLite or PostgreSQL, not {dialect}")
        if not all(port.isdecimal() for port in url.normalized_query.get("port", ())):
            raise InvalidInputError("the port of a PostgreSQL URL is a number")
        if url.drivername != "postgresql+asyncpg":
            raise InvalidInputError("PostgreSQL is used through asyncpg: write postgresql://…")
        if unknown := sorted(set(url.query) - _PARAMETERS):
            known = ", ".join(sorted(_PARAMETERS))
            raise InvalidInputError(f"a PostgreSQL URL does not take the parameter {unknown[0][:40]}; it takes {known}")
        return cls(text, dialect, None)

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
        if self.dialect == "sqlite":
            return self.text
        return self.sqlalchemy.render_as_string(hide_password=True)
