"""Receipts: a write under an idempotency key happens once, and its repeats get the first answer.

Contract: design decision 39.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, bindparam, delete, select, tuple_, update

from lionstate import wire
from lionstate.dialects import Dialect, Statement
from lionstate.engine import Call, Refused, Reply
from lionstate.engine.offload import run_pure
from lionstate.errors import (
    BackendBusyError,
    IdempotencyConflictError,
    InvalidInputError,
    ResultNotKeptError,
    StateError,
    WireError,
)
from lionstate.operations import Operation
from lionstate.progression.parsed import Later, NeedsParse
from lionstate.schema.own import request_receipts

__all__ = ["Claim", "ReceiptLimits", "Receipts", "RequestKey"]

_log = logging.getLogger(__name__)

LEAST_KEEP_SECONDS: Final = 900.0
_KEY_CHARACTERS = 255
# What a repeat is answered with is read whole into one row; a larger result is written and not kept.
_OUTCOME_BYTES = 256 * 1024
_CLAIM_ATTEMPTS = 5
# One keyed call in so many removes so many expired receipts: twice as many as can have come.
_PURGE_EVERY = 16
_PURGE_THEN = 32
_PURGE_AT_ONCE = 500
_PURGE_ROUNDS = 20
_PURGE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ReceiptLimits:
    """How long and how many receipts are kept.

    Attributes:
        keep_seconds: Age up to which a repeat is recognised; at least 900, longer than any client repeats.
        max_count: Above so many the oldest go first, but none younger than 900 s.
    """

    keep_seconds: float = 86_400.0
    max_count: int = 100_000


@dataclass(slots=True, eq=False)
class RequestKey:
    """What a caller names one write with.

    Attributes:
        caller: Who asks: keys of different callers are different keys.
        key: 1 to 255 printable ASCII characters without blanks.
        replayed: Set when the answer is the kept one of an earlier call.
    """

    caller: str
    key: str
    replayed: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no key."""
        if not 0 < len(self.key) <= _KEY_CHARACTERS or any(not "!" <= character <= "~" for character in self.key):
            raise InvalidInputError(
                f"an idempotency key has 1 to {_KEY_CHARACTERS} printable ASCII characters and no blanks"
            )

    @property
    def row(self) -> dict[str, Any]:
        """The primary key of its receipt."""
        return {"of_caller": self.caller, "of_key": self.key}

    def answered_again(self) -> None:
        """The answer is a kept one."""
        self.replayed = True


@dataclass(frozen=True, slots=True)
class Claim:
    """A key on its way to the store, with a hash of what is asked under it and the codec of the answer."""

    key: RequestKey
    params_hash: str
    codec: wire.Codec

    @property
    def queue_key(self) -> str:
        """What keeps calls under one key on one lane, in order."""
        return f"r:{self.key.caller}\0{self.key.key}"


class _Kept(msgspec.Struct):
    """An outcome as it stands in its row: one of the two."""

    result: msgspec.Raw = msgspec.Raw(b"")
    error: dict[str, Any] | None = None


_kept = msgspec.json.Decoder(_Kept)
_table = request_receipts.c
_this = (_table.caller == bindparam("of_caller")) & (_table.key == bindparam("of_key"))
_find = Statement(select(_table.params_hash, _table.outcome, _table.created_at).where(_this))
_settle = Statement(update(request_receipts).where(_this).values(outcome=bindparam("text")))
_forget = Statement(delete(request_receipts).where(_this))
_expired = _table.created_at < bindparam("before")
_any_expired = Statement(select(_table.created_at).where(_expired).limit(1))


def _purge_of(count: int) -> Statement:
    # Rows that another transaction removes already are left to it: purges never wait for each other.
    oldest = select(_table.caller, _table.key).where(_expired).order_by(_table.created_at).limit(count)
    chosen = tuple_(_table.caller, _table.key).in_(oldest.with_for_update(skip_locked=True))
    return Statement(delete(request_receipts).where(chosen))


_purge_some = _purge_of(_PURGE_THEN)
_purge_many = _purge_of(_PURGE_AT_ONCE)


@functools.cache
def _defaults(script: Callable[..., Any]) -> Mapping[str, Any]:
    """What a caller may send or leave out and mean the same; a default without a JSON form cannot be sent."""
    found = {}
    for parameter in inspect.signature(script).parameters.values():
        if parameter.default is not parameter.empty:
            with suppress(InvalidInputError):
                wire.encode(parameter.default)
                found[parameter.name] = parameter.default
    return found


def _hash_of(call: tuple[str, Mapping[str, Any]]) -> str:
    name, params = call
    return hashlib.sha256(name.encode() + b"\0" + wire.canonical(params)).hexdigest()


class Receipts:
    """The receipts of one store.

    A receipt is written in the transaction of its call, before the call: it is there exactly when that transaction
    is committed. What raises leaves none, as it leaves nothing else, and runs again under the same key.
    """

    def __init__(self, dialect: Dialect, limits: ReceiptLimits) -> None:
        """Keep receipts within ``limits``."""
        self._limits = limits
        self._insert = Statement(dialect.insert_ignore(request_receipts, ["caller", "key"]))
        self._nth = Statement(
            select(_table.created_at).order_by(_table.created_at.desc()).limit(1).offset(limits.max_count)
        )
        self._calls = 0

    async def claim(self, key: RequestKey, operation: Operation, params: Mapping[str, Any]) -> Claim:
        """Prepare a key for its call; the parameters are those that were sent, before anything is added to them.

        Raises:
            InvalidInputError: The parameters have no JSON form.
        """
        whole = {**_defaults(operation.script), **params}
        params_hash = await run_pure(_hash_of, (operation.name, whole), operation.size(params))
        return Claim(key, params_hash, wire.codec_of(operation.script))

    def once(self, claim: Claim, call: Call) -> Call:
        """The call, run only if its receipt is not there yet."""
        self._calls += 1
        purges = self._calls % _PURGE_EVERY == 0

        def run(conn: Connection) -> Any:
            now = time.time()
            kept = self._entered(conn, claim, now)
            if kept is not None:
                return _again(claim, *kept)
            if purges:
                _purge_some.run(conn, {"before": now - self._limits.keep_seconds})
            found = call(conn)
            if isinstance(found, (NeedsParse, Later)):
                # It goes round and has written nothing: neither may its receipt stay.
                _forget.run(conn, claim.key.row)
            elif (text := _outcome(claim.codec, found)) is not None:
                _settle.run(conn, {**claim.key.row, "text": text})
            # Its own rows do not tell whether its receipt is there.
            return replace(found, is_there=None) if isinstance(found, Reply) else found

        return run

    def _entered(self, conn: Connection, claim: Claim, now: float) -> tuple[str, str | None] | None:
        """Enter the receipt; if there is one, its hash and outcome instead.

        Another transaction that holds the key is waited for: by the insert on PostgreSQL, by BEGIN on SQLite.
        """
        key = claim.key
        row = {"caller": key.caller, "key": key.key, "params_hash": claim.params_hash}
        for _ in range(_CLAIM_ATTEMPTS):
            if self._insert.run(conn, {**row, "outcome": None, "created_at": now}):
                return None
            for params_hash, outcome, created_at in _find.rows(conn, key.row):
                if created_at >= now - self._limits.keep_seconds:
                    return params_hash, outcome
                _forget.run(conn, key.row)
        raise BackendBusyError("receipts under this idempotency key come and go; nothing was written")

    def _cutoff(self, conn: Connection) -> float | None:
        """The time before which receipts may go; None when there is none that old."""
        now = time.time()
        before = now - self._limits.keep_seconds
        # Cost: max_count entries of an index, in a read.
        for (created_at,) in self._nth.rows(conn):
            before = max(before, min(created_at, now - LEAST_KEEP_SECONDS))
        return before if _any_expired.rows(conn, {"before": before}) else None

    async def purge(self, read: Callable[[Call], Awaitable[Any]], write: Callable[[Call], Awaitable[Any]]) -> int:
        """Remove receipts that are too old or too many, in bounded transactions; return how many went.

        Nothing is written when there are none, and no more than 10,000 go in one call.
        """
        before, removed = await read(self._cutoff), 0
        for _ in range(_PURGE_ROUNDS if before is not None else 0):
            count = await write(lambda conn: _purge_many.run(conn, {"before": before}))
            removed += count
            if count < _PURGE_AT_ONCE:
                break
        return removed

    async def keep_purging(self, purge: Callable[[], Awaitable[int]]) -> None:
        """Purge once a minute, whatever else is paused; for a task of the store."""
        while True:
            await asyncio.sleep(_PURGE_SECONDS)
            try:
                await purge()
            except StateError as error:
                _log.debug("receipts could not be purged: %s", error.code)
            except Exception:
                _log.exception("receipts could not be purged")


def _again(claim: Claim, params_hash: str, outcome: str | None) -> Reply | Refused:
    """The answer to a repeat."""
    if params_hash != claim.params_hash:
        return Refused(IdempotencyConflictError())
    try:
        if outcome is None:
            raise ResultNotKeptError
        kept: _Kept = wire.written_from(outcome, _kept, wire.raw_result)
        if kept.error is None:
            return Reply(claim.codec.decode_result(kept.result), claim.key.answered_again)
        error = wire.error_from_problem(kept.error)
    except (ResultNotKeptError, WireError, ValueError, RecursionError):
        # A row of another version may hold what this one cannot read.
        error = ResultNotKeptError()
    error.replayed = True
    return Refused(error)


def _outcome(codec: wire.Codec, found: Any) -> str | None:
    """What is kept of an answer, as JSON; None when it is too large or has no JSON form."""
    try:
        if isinstance(found, Refused):
            text = b'{"error":' + wire.encode(wire.problem(found.error)) + b"}"
        else:
            text = b'{"result":' + codec.encode_result(found.value if isinstance(found, Reply) else found) + b"}"
    except InvalidInputError:
        return None
    return text.decode() if len(text) <= _OUTCOME_BYTES else None
