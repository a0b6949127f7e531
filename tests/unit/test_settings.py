"""Where settings come from, what is said about bad ones, and the commented defaults file."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

import pytest
import structlog

from lionstate.errors import InvalidInputError
from lionstated.api import check_listeners
from lionstated.command import main
from lionstated.logs import configure
from lionstated.masking import mask_url
from lionstated.settings import (
    Settings,
    config_text,
    differences,
    effective_json,
    effective_text,
    flag_names,
    is_loopback,
    load_settings,
    split_address,
)
from tests.support.certificates import make_certificate

CONFIG = Path(__file__).parents[2] / "config" / "lionstated.toml"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RUNTIME_DIRECTORY", "LIONSTATE_DATABASE__URL"):
        monkeypatch.delenv(name, raising=False)


def test_the_file_in_the_repository_is_the_generated_one() -> None:
    assert CONFIG.read_text(encoding="utf-8") == config_text()


def test_the_commented_defaults_are_the_defaults(tmp_path: Path) -> None:
    assert load_settings(CONFIG, environ=False) == load_settings(environ=False)
    file = tmp_path / "c.toml"
    file.write_text(re.sub(r"(?m)^#(?=\w+ = )", "", config_text()))
    assert file.read_text().count("\n#") < config_text().count("\n#")
    assert load_settings(file, environ=False) == load_settings(environ=False)


def test_flags_over_environment_over_file_over_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[queue]\nmax_operations = 1\nmax_bytes = 1\ndeadline_ms = 1\n")
    monkeypatch.setenv("LIONSTATE_QUEUE__MAX_BYTES", "2")
    monkeypatch.setenv("LIONSTATE_QUEUE__DEADLINE_MS", "2")
    queue = load_settings(file, flags={"queue.deadline_ms": "3"}).queue
    assert (queue.max_operations, queue.max_bytes, queue.deadline_ms) == (1, 2, 3)
    assert queue.max_hold_ms == 25


def test_other_applications_settings_are_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIONAGI_STATE_DB_URL", "sqlite:////live.db")
    monkeypatch.setenv("LIONAGI_HOME", "/live")
    monkeypatch.setenv("LIONSTATE_TEST_PG_DSN", "ignored")
    settings = load_settings()
    assert settings == load_settings(environ=False)
    with pytest.raises(InvalidInputError, match="no store given"):
        settings.store_url()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[queue]\nmax_ops = 1\n", "unknown setting queue.max_ops in"),
        ("[quee]\nmax_operations = 1\n", "unknown setting quee in"),
        ("queue = 5\n", "setting queue must be a table"),
        ("[queue]\nmax_operations = 0\n", "setting queue.max_operations in"),
        ("[database]\nsynchronous = 'OFF'\n", "setting database.synchronous in"),
        ("[listen]\nops = 'nine'\n", "setting listen.ops in"),
        ("[queue\n", "is not valid TOML"),
    ],
)
def test_bad_files_are_named_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(InvalidInputError) as caught:
        load_settings(file)
    assert said in str(caught.value)
    assert str(file) in str(caught.value) or "table" in said
    assert "\n" not in str(caught.value)


def test_bad_environment_and_flags_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError, match=r"log\.level in flag --log-level"):
        load_settings(flags={"log.level": "loud"})
    monkeypatch.setenv("LIONSTATE_QUEUE__MAX_OPERATIONS", "many")
    with pytest.raises(InvalidInputError, match="LIONSTATE_QUEUE__MAX_OPERATIONS"):
        load_settings()
    monkeypatch.delenv("LIONSTATE_QUEUE__MAX_OPERATIONS")
    monkeypatch.setenv("LIONSTATE_QUEUE__MAX_OPS", "1")
    with pytest.raises(InvalidInputError, match=r"queue\.max_ops in environment variable LIONSTATE_"):
        load_settings()


@pytest.mark.parametrize(
    ("name", "value", "form"),
    [
        ("LIONSTATE_DATABASE__REPLICA_URL", "hunter2pw", "must be a JSON array"),
        ("LIONSTATE_DELIVERY__COMMAND", "notjson hunter2pw", "must be a JSON array"),
        ("LIONSTATE_DELIVERY__COMMAND", "[" * 100_000, "must be a JSON array"),
        ("LIONSTATE_DELIVERY__PERMANENT_EXIT_CODES", "1", "must be a JSON array"),
        ("LIONSTATE_DELIVERY", "{hunter2pw", "must be a JSON object"),
        ("LIONSTATE_DELIVERY", "[]", "must be a JSON object"),
    ],
)
def test_an_environment_variable_that_is_no_json_is_one_line(
    name: str, value: str, form: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LIONSTATE_DATABASE__URL", "postgresql://u:hunter2pw@h/db")
    monkeypatch.setenv(name, value)
    assert main(["--check-config"]) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert f"in environment variable {name}: " in said
    assert form in said
    assert "hunter2pw" not in said


def test_one_replica_may_be_a_plain_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIONSTATE_DATABASE__REPLICA_URL", "postgresql://u:pw@h1,h2/db")
    (found,) = load_settings().database.replica_url
    assert found.get_secret_value() == "postgresql://u:pw@h1,h2/db"
    monkeypatch.setenv("LIONSTATE_DATABASE__REPLICA_URL", '["postgresql://h1/db", "postgresql://h2/db"]')
    assert len(load_settings().database.replica_url) == 2


@pytest.mark.parametrize("is_configured", [False, True])
def test_an_unexpected_exception_shows_no_value(
    is_configured: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        password = "hunter" + "2pw"
        raise RuntimeError(password)

    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    structlog.reset_defaults()
    try:
        if is_configured:
            configure(format="console")
        monkeypatch.setattr("lionstated.command.load_settings", broken)
        assert main(["--check-config"]) == 1
    finally:
        structlog.reset_defaults()
        logging.getLogger().handlers[:] = handlers
        logging.getLogger().setLevel(level)
    said = capfd.readouterr().err
    assert "internal_error" in said
    assert "RuntimeError" in said
    assert said.count("\n") == 1
    assert "hunter2pw" not in said


def test_no_number_is_infinite() -> None:
    for key, flag in ((key, flag) for flag, key in flag_names().items()):
        section, leaf = key.split(".")
        if isinstance(getattr(getattr(Settings.model_construct(), section), leaf), float):
            for value in ("inf", "nan"):
                with pytest.raises(InvalidInputError, match=f"flag --{flag}"):
                    load_settings(flags={key: value}, environ=False)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("delivery.command", '["{deliver_to}"]', "name a program"),
        ("delivery.command", '["{payload}", "x"]', "name a program"),
        ("delivery.timeout_seconds", "86401", "less than or equal to 86400"),
        ("delivery.kill_seconds", "3601", "less than or equal to 3600"),
        ("delivery.permanent_exit_codes", "[0]", "greater than or equal to 1"),
        ("delivery.permanent_exit_codes", "[256]", "less than or equal to 255"),
        ("delivery.permanent_exit_codes", "[-1]", "greater than or equal to 1"),
    ],
)
def test_what_delivery_cannot_mean_is_refused(key: str, value: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(said)):
        load_settings(flags={key: value}, environ=False)


def test_secrets_are_masked() -> None:
    url = "postgresql+asyncpg://user:hunter2@host/db?password=hunter3&x=1"
    settings = load_settings(flags={"database.url": url}, environ=False)
    assert settings.store_url() == url
    for text in (repr(settings), str(settings), effective_text(settings), mask_url(url)):
        assert "hunter" not in text
    assert mask_url(url) == "postgresql+asyncpg://user:***@host/db?password=***&x=1"
    assert mask_url("/a:b@c/d.db") == "/a:b@c/d.db"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:/SEKRIT@127.0.0.1:1/db",
        "postgresql://app:one SEKRIT@h/db",
        "postgresql://app:a@SEKRIT@h1:5432,h2:5432/db",
        "postgresql:/app:SEKRIT@h/db",
        "postgresql://app@h/db?sslpassword=SEKRIT",
        "host=h user=app password=SEKRIT",
    ],
)
def test_a_password_that_was_not_escaped_is_masked_too(url: str) -> None:
    assert "SEKRIT" not in mask_url(url)
    assert mask_url("postgresql://h1:5432,h2:5432/db?x=1") == "postgresql://h1:5432,h2:5432/db?x=1"


def test_arguments_of_the_command_are_not_shown() -> None:
    """They may hold secrets: the program and how many there are."""
    flags = {
        "delivery.command": '["/bin/send", "--token", "SEKRIT"]',
        "database.replica_url": "postgresql://u:SEKRIT@h",
    }
    settings = load_settings(flags=flags, environ=False)
    shown = [effective_text(settings), effective_json(settings)]
    shown += [one.new for one in differences(load_settings(environ=False), settings)]
    assert "SEKRIT" not in "".join(shown)
    assert all('["/bin/send", "*** (2 arguments)"]' in text for text in (shown[0], shown[1], shown[-1]))
    alone = load_settings(flags={"delivery.command": '["/bin/send"]'}, environ=False)
    assert 'command = ["/bin/send"]' in effective_text(alone)


@pytest.mark.parametrize("key", ["database-url", "database-replica-url"])
def test_urls_are_read_before_the_start(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    for more in (["--check-config"], []):
        assert 2 == main(["--database-url=x.db", f"--{key}=postgresql://h/d?foo=1", *more])
        assert "parameter foo; it takes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("/a/b.db", "/a/b.db.sock"),
        ("sqlite:////a/b.db", "/a/b.db.sock"),
        ("sqlite+aiosqlite:///a/b.db?mode=rw", "a/b.db.sock"),
    ],
)
def test_the_socket_is_beside_the_store(url: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(flags={"database.url": url}, environ=False)
    assert settings.socket_path() == path
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/x:/run/y")
    assert settings.socket_path() == "/run/x/lionstated.sock"


@pytest.mark.parametrize("url", ["postgresql://h/db", "sqlite://", ":memory:"])
def test_a_store_without_a_file_needs_a_socket(url: str) -> None:
    with pytest.raises(InvalidInputError, match=r"listen.socket"):
        load_settings(flags={"database.url": url}, environ=False).socket_path()


def test_listeners_for_strangers_are_refused(tmp_path: Path) -> None:
    token, empty = tmp_path / "token", tmp_path / "empty"
    token.write_text("t0ken\n")
    token.chmod(0o600)
    empty.write_text("\n")
    made = make_certificate(tmp_path)
    tls = {"listen.tls_cert": str(made.cert), "listen.tls_key": str(made.key)}
    good = {"auth.token_file": str(token)}
    bad: list[dict[str, str]] = [
        {"listen.http": "127.0.0.1:1"},
        {"listen.http": "127.0.0.1:1", "auth.token_file": str(empty)},
        {"listen.http": "127.0.0.1:1", "auth.token_file": str(tmp_path / "none")},
        {"listen.http": "0.0.0.0:1", **good},
        {"listen.ops": "[::]:1", **good},
        {"listen.ops": "host.example:1", **tls},
        {"listen.tls_cert": "c.pem"},
        {"listen.tls_cert": str(made.key), "listen.tls_key": str(made.cert)},
    ]
    for flags in bad:
        with pytest.raises(InvalidInputError):
            check_listeners(load_settings(flags=flags, environ=False))
    for flags in ({}, {"listen.http": "[::1]:1", **good}, {"listen.http": "0.0.0.0:1", **good, **tls}):
        check_listeners(load_settings(flags=flags, environ=False))


def test_files_that_nobody_writes_to_are_refused_at_once(tmp_path: Path) -> None:
    """A FIFO holds whoever opens it: a reload would stop the event loop for ever."""
    made, fifo, token_file = make_certificate(tmp_path), tmp_path / "fifo", tmp_path / "token"
    token_file.write_text("t0ken\n")
    token_file.chmod(0o600)
    os.mkfifo(fifo, 0o600)
    tls = {"listen.tls_cert": str(made.cert), "listen.tls_key": str(made.key), "auth.token_file": str(token_file)}
    check_listeners(load_settings(flags=tls, environ=False))
    for other in (fifo, Path("/dev/null")):
        for key in tls:
            with pytest.raises(InvalidInputError, match=f"{key} cannot be read: not a regular file: {other}"):
                check_listeners(load_settings(flags=tls | {key: str(other)}, environ=False))
        with pytest.raises(InvalidInputError, match=f"cannot read {other}: not a regular file"):
            load_settings(other, environ=False)


def test_addresses_and_flags() -> None:
    assert split_address("[::1]:80") == ("::1", 80)
    assert is_loopback("127.0.0.2")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert flag_names()["queue-max-operations"] == "queue.max_operations"
    assert isinstance(load_settings(environ=False), Settings)
