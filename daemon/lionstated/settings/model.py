"""Every setting of the daemon: names, types, bounds and defaults."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from lionstate.errors import InvalidInputError

from .maintenance import Maintenance
from .section import Section
from .tokens import Token, read_tokens

__all__ = ["DELIVER_TO", "ENV_PREFIX", "PAYLOAD", "Settings", "is_loopback", "split_address"]

ENV_PREFIX = "LIONSTATE_"
# What an argument of `delivery.command` stands for.
DELIVER_TO, PAYLOAD = "{deliver_to}", "{payload}"


def split_address(text: str) -> tuple[str, int]:
    """Split `host:port`; an IPv6 host stands in brackets.

    Raises:
        ValueError: It is not such an address.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError("must be host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether a listener on `host` is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listed(value: object) -> object:
    """A list, which a flag gives as text: a JSON array."""
    if isinstance(value, str):
        try:
            value = json.loads(value or "[]")
        except (ValueError, RecursionError):
            value = ...
    if value is not None and not isinstance(value, list):
        raise ValueError('must be a JSON array, as ["one", "two"] or [1, 2]')
    return value or []


class _Environment(EnvSettingsSource):
    """The environment; what should be JSON and is not is left to the setting's own check, which names it."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except (ValueError, RecursionError):
            return value


class Database(Section):
    """The store."""

    url: SecretStr | None = Field(default=None, description="Path or URL of the store; there is no default.")
    synchronous: Literal["FULL", "NORMAL"] = Field(
        default="FULL", description="SQLite: NORMAL may lose the last moments in a power cut, FULL does not."
    )
    busy_timeout_ms: int = Field(default=5000, ge=0, description="How long a write waits for the database lock.")
    pooler: Literal["none", "transaction"] = Field(
        default="none", description="PostgreSQL: transaction, if the URL leads to a transaction pooler."
    )
    replica_url: list[SecretStr] = Field(
        default=[],
        description="PostgreSQL: URLs of replicas, one server each, for reads marked with Lionstate-Stale-Ok; a flag or"
        " the environment may give a single one as it is.",
    )
    sqlite_module: Literal["auto", "stdlib", "pysqlite3"] = Field(
        default="auto", description="The SQLite library; auto takes pysqlite3 where it is installed."
    )
    affected_sqlite: Literal["warn", "refuse"] = Field(
        default="warn", description="What to do on an SQLite with the WAL-reset corruption race."
    )
    when_unavailable: Literal["wait", "exit"] = Field(
        default="wait",
        description="PostgreSQL cannot be reached at the start: keep trying, or exit with 4.",
    )
    exclusive: bool = Field(default=False, description="true: no other process writes this SQLite file.")

    @field_validator("replica_url", mode="before")
    @classmethod
    def _urls(cls, value: object) -> object:
        is_one_url = isinstance(value, str) and "://" in value and not value.lstrip().startswith("[")
        return [value] if is_one_url else _listed(value)


class Storage(Section):
    """What new progressions and new stores look like."""

    normalized: bool | None = Field(
        default=None, description="Create progressions as rows; empty decides by the kind of store."
    )
    lionagi_compatible: bool = Field(default=False, description="Create a new store so that LionAGI 0.36.0 opens it.")


class Listen(Section):
    """Where clients and monitoring connect."""

    socket: str | None = Field(
        default=None,
        description="Unix socket; empty: $RUNTIME_DIRECTORY/lionstated.sock, else <store file>.sock.",
    )
    socket_group: str | None = Field(default=None, description="Group that may use the socket besides its owner.")
    tls_cert: str | None = Field(default=None, description="PEM certificate chain for the TCP listeners.")
    tls_key: str | None = Field(default=None, description="PEM private key of the certificate.")
    http: str | None = Field(default=None, description="host:port of the API over TCP; empty: off. Needs a token.")
    ops: str | None = Field(
        default="127.0.0.1:9464", description="host:port of the status page, /metrics /livez /readyz; empty: off."
    )
    max_request_bytes: int = Field(
        default=64 * 1024 * 1024, ge=1024, description="Larger request bodies are refused with 413."
    )
    max_connections: int = Field(
        default=4000, ge=1, description="Connections of one listener; further ones are answered 503 and closed."
    )
    header_seconds: float = Field(
        default=10.0, gt=0, description="Longest time for the head of a request to arrive, then 408."
    )
    transfer_seconds: float = Field(
        default=30.0,
        gt=0,
        description="Longest time for a body to arrive, and for an answer of which the client takes nothing.",
    )
    idle_seconds: float = Field(
        default=75.0, gt=0, description="An open connection without a request is closed after this time."
    )

    @field_validator("http", "ops")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None:
            split_address(value)
        return value


class Auth(Section):
    """Who may use the TCP listeners."""

    token_file: str | None = Field(
        default=None,
        description="File of bearer tokens, lines `[name] scope token`; scope: read, write, admin.",
    )


class Queue(Section):
    """The write queue and its batches."""

    max_operations: int = Field(default=10000, ge=1, description="Waiting operations before `overloaded`.")
    max_bytes: int = Field(default=64 * 1024 * 1024, ge=1, description="Waiting bytes before `overloaded`.")
    deadline_ms: int = Field(default=30000, ge=1, description="Longest wait of a request; a client may ask for less.")
    max_batch_operations: int = Field(default=256, ge=1, description="Operations of one transaction.")
    max_hold_ms: int = Field(default=25, ge=1, description="Estimated lock hold of one transaction.")


class Receipts(Section):
    """What is kept of writes with an idempotency key, so that a repeat gets the first answer."""

    keep_seconds: float = Field(default=86400.0, ge=900, description="How long a repeat is recognised.")
    max_count: int = Field(
        default=100_000, ge=1000, description="Above so many the oldest go, but none younger than 900 s."
    )


class Delivery(Section):
    """The outbox: a command of yours delivers each dispatch, at least once."""

    enabled: bool = Field(default=False, description="Run it; needs a command.")
    command: list[str] = Field(
        default=[],
        description="Program and arguments, no shell. The payload comes on stdin, deliver_to in it; an argument that is"
        " {deliver_to} or {payload} as a whole is replaced.",
    )
    permanent_exit_codes: list[Annotated[int, Field(ge=1, le=255)]] = Field(
        default=[], description="Exit codes after which there is no other attempt; 0 is success, others are retried."
    )
    timeout_seconds: float = Field(
        default=10.0, gt=0, le=86_400, description="Longest run of the command, then SIGTERM."
    )
    kill_seconds: float = Field(default=2.0, ge=0, le=3600, description="From SIGTERM to SIGKILL.")
    concurrency: int = Field(default=4, ge=1, le=256, description="Commands at the same time.")
    interval_seconds: float = Field(default=1.0, gt=0, description="Time between two looks for what others entered.")
    batch: int = Field(default=16, ge=1, le=1000, description="Dispatches claimed in one transaction.")

    @field_validator("command", "permanent_exit_codes", mode="before")
    @classmethod
    def _list(cls, value: object) -> object:
        return _listed(value)

    @field_validator("command")
    @classmethod
    def _argv(cls, value: list[str]) -> list[str]:
        if value and (not value[0].strip() or any("\0" in part for part in value)):
            raise ValueError("must name a program, without NUL")
        if value and value[0] in (DELIVER_TO, PAYLOAD):
            raise ValueError(f"must name a program: {value[0]} in its place would let each dispatch choose what is run")
        for token in (DELIVER_TO, PAYLOAD):
            if any(token in part and token != part for part in value):
                raise ValueError(f"must have {token} as an argument of its own: within another it is not replaced")
        return value

    @model_validator(mode="after")
    def _runnable(self) -> Delivery:
        if self.enabled and not self.command:
            raise ValueError("enabled needs a command")
        return self


class Shutdown(Section):
    """The end of the process."""

    drain_seconds: float = Field(default=20.0, gt=0, description="Budget for requests under way at shutdown.")


class Log(Section):
    """Logs on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Least level to write.")
    format: Literal["json", "console"] = Field(default="json", description="json, or console for people.")
    access_ratio: float = Field(
        default=0.01, ge=0, le=1, description="Share of the answers that are logged; failures are, one a second."
    )


class Settings(BaseSettings):
    """All settings, frozen in one value; read with `load_settings`."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, validate_default=True
    )
    database: Database = Database()
    storage: Storage = Storage()
    listen: Listen = Listen()
    auth: Auth = Auth()
    queue: Queue = Queue()
    receipts: Receipts = Receipts()
    maintenance: Maintenance = Maintenance()
    delivery: Delivery = Delivery()
    shutdown: Shutdown = Shutdown()
    log: Log = Log()

    _file: ClassVar[Path | None] = None
    _environ: ClassVar[bool] = True

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags (init), then environment, then the file; no .env, no secrets folder."""
        file = cls._file
        return (
            init_settings,
            *((_Environment(settings_cls),) if cls._environ else ()),
            *((TomlConfigSettingsSource(settings_cls, file),) if file is not None else ()),
        )

    def store_url(self) -> str:
        """Path or URL of the store.

        Raises:
            InvalidInputError: None is set.
        """
        if self.database.url is None:
            raise InvalidInputError("no store given: set database.url (file, LIONSTATE_DATABASE__URL, flag)")
        return self.database.url.get_secret_value()

    def waits_for_database(self) -> bool:
        """Whether the start goes on trying while the database cannot be reached; a file is there or it is not."""
        return self.database.when_unavailable == "wait" and self.store_url().lower().startswith("postgres")

    def socket_path(self) -> str:
        """Path of the Unix socket.

        Raises:
            InvalidInputError: It is not set and cannot be derived.
        """
        if self.listen.socket is not None:
            return self.listen.socket
        if runtime := os.environ.get("RUNTIME_DIRECTORY"):
            return os.path.join(runtime.split(":")[0], "lionstated.sock")
        url = self.store_url()
        path = re.sub(r"^sqlite(?:\+\w+)?://(?:/(?=.))?", "", url).split("?")[0]
        if "://" in path or not path or ":memory:" in path:
            raise InvalidInputError("listen.socket must be given: this store has no file to put it beside")
        return path + ".sock"

    def tokens(self) -> tuple[Token, ...]:
        """Who may call over TCP; () if no file is set or it holds none.

        Raises:
            InvalidInputError: See `read_tokens`.
        """
        return () if self.auth.token_file is None else read_tokens(self.auth.token_file)
