"""Messages: what a row is, how it is checked before a transaction, how it is read."""

from __future__ import annotations

import base64
import binascii
import functools
import math
import operator
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, FromClause, Select, null, select

from lionstate.dialects import Dialect, dialect_named, dialect_of
from lionstate.dialects.statement import Statement, compiled_once
from lionstate.engine import Deferred
from lionstate.errors import BackendError, InvalidInputError
from lionstate.records.schemas import merged, row_schema
from lionstate.records.values import check_text, encoded_json, finite_number, require_keys
from lionstate.schema.conversation import message_types, messages
from lionstate.schema.types import NOT_PLAIN, RawJson, decode_json, decode_text

__all__ = [
    "LARGE",
    "MESSAGE_SCHEMA",
    "WHOLE",
    "MessageRow",
    "checked_message",
    "decoded_by_id",
    "decoded_rows",
    "get_message",
    "get_messages",
    "message_pages",
    "present_ids",
    "present_query",
    "raw_columns",
    "size_of",
    "unpacked",
    "usable_ids",
    "with_classes",
]

_PAGE = 500
# Above this the values are decoded in a worker thread. They are many small ones, between which the interpreter lock
# changes hands, so a child process is never worth it.
_MOST_SIZE = 8 * 1024 * 1024
_TEXTS = ("sender", "recipient", "channel")
# What there is of a message, in the order in which it is read and told.
WHOLE: Final = (
    *("id", "created_at", "node_metadata", "content", "embedding"),
    *(*_TEXTS, "role", "lion_class", "lion_class_str"),
)
# Of a whole row what can be large, but for metadata, which hardly ever is.
LARGE: Final = tuple(operator.itemgetter(WHOLE.index(name)) for name in ("content", "embedding"))


_NEEDED = ("id", "created_at", "role", "content")
MESSAGE_SCHEMA = merged(
    row_schema(messages, (*_TEXTS, "node_metadata", "embedding"), _NEEDED),
    {"properties": {"content": {"not": {"type": "null"}}, "role": {"minLength": 1}}},
)


@dataclass(slots=True, eq=False)
class MessageRow:
    """A checked message.

    Attributes:
        id: Its id.
        created_at: When it was made.
        stored: The other columns in the order of ``MESSAGE_COLUMNS``, JSON as text, without the class id.
        lion_class: The name of its class; None is the unknown class.
    """

    id: str
    created_at: float
    stored: tuple[Any, ...] = field(repr=False)
    lion_class: str | None

    @property
    def size(self) -> int:
        """Characters and bytes of its large values."""
        metadata, content, embedding = self.stored[:3]
        return 256 + len(content) + len(metadata) + len(embedding or b"")


def checked_message(msg: Mapping[str, Any] | MessageRow) -> MessageRow:
    """Check and encode a message; one that is checked already comes back as it is.

    Args:
        msg: Needs ``id``, ``created_at``, ``role`` and ``content``; other keys than the columns are left alone.
    Raises:
        MissingKeyError: A key is missing.
        InvalidInputError: ``content`` is None, ``role`` is blank, a value has no stored form.

    Cost: linear in the content.
    Contract: reference §2.1 (``insert_message``).
    """
    if isinstance(msg, MessageRow):
        return msg
    if not isinstance(msg, Mapping):
        raise InvalidInputError(f"a message must be a mapping, not {type(msg).__name__}")
    require_keys("the message", msg, _NEEDED)
    content, role = msg["content"], msg["role"]
    if content is None or (isinstance(content, RawJson) and content.text.strip() == "null"):
        raise InvalidInputError("the message's content is None")
    if not isinstance(role, str) or not role.strip():
        raise InvalidInputError("the message's role is blank or not text")
    metadata = msg.get("node_metadata")
    mid, created_at = check_text("id", msg["id"]), finite_number("created_at", msg["created_at"])
    stored = (
        encoded_json("node_metadata", metadata).text,
        encoded_json("content", content).text,
        _packed(msg.get("embedding")),
        *[None if (value := msg.get(name)) is None else check_text(name, value) for name in _TEXTS],
        check_text("role", role),
    )
    return MessageRow(mid, created_at, stored, _class_of(metadata))


def _class_of(metadata: object) -> str | None:
    if isinstance(metadata, RawJson):
        metadata = decode_json(metadata.text)
    name = metadata.get("lion_class") if isinstance(metadata, Mapping) else None
    return check_text("lion_class", name) if isinstance(name, str) and name else None


def _packed(embedding: object) -> bytes | None:
    """Little-endian float32 of a list of numbers; packed bytes (base64 text on the wire) stay as they are."""
    if embedding is None:
        return None
    if isinstance(embedding, str):
        try:
            embedding = base64.b64decode(embedding, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidInputError("the embedding is text and not base64") from None
    if isinstance(embedding, (bytes, bytearray, memoryview)):
        packed = bytes(embedding)
        if len(packed) % 4:
            raise InvalidInputError("the packed embedding is not a whole number of float32 values")
        if not all(map(math.isfinite, unpacked(packed) or ())):
            raise InvalidInputError("the embedding must be finite")
        return packed
    if not isinstance(embedding, (list, tuple)):
        raise InvalidInputError(f"the embedding must be a list of numbers or bytes, not {type(embedding).__name__}")
    numbers = [finite_number("embedding", value) for value in embedding]
    try:
        return struct.pack(f"<{len(numbers)}f", *numbers)
    except OverflowError:
        raise InvalidInputError("the embedding holds a number beyond float32") from None


def unpacked(stored: object) -> list[float] | None:
    """The numbers of a stored embedding; None if there is none."""
    if stored is None:
        return None
    if not isinstance(stored, (bytes, bytearray, memoryview)):
        kind = type(stored).__name__
        raise BackendError(f"a stored embedding is {kind} where packed numbers belong: repair that row of messages")
    whole = len(stored) - len(stored) % 4
    return list(struct.unpack(f"<{whole // 4}f", stored[:whole]))


_PRESENT_FOR: dict[str, Select[Any]] = {}


def raw_columns(
    dialect: Dialect, place: ColumnElement[Any], generation: ColumnElement[Any], read: Sequence[str] = WHOLE
) -> list[ColumnElement[Any]]:
    """What is read of a message, JSON as it is stored, its place in an order and the generation of that order.

    Args:
        read: Names of ``WHOLE``, in its order; ``decoded_rows`` takes all of them.
    """
    found = (
        message_types.c.lion_class if name == "lion_class_str" else dialect.raw_column(messages.c[name])
        for name in read
    )
    return [*found, place, generation]


def with_classes(found: FromClause, read: Sequence[str] = WHOLE) -> FromClause:
    """The source of ``raw_columns``: ``found``, in which the messages are, with names of classes if they are read."""
    if "lion_class_str" not in read:
        return found
    return found.outerjoin(message_types, message_types.c.type_id == messages.c.lion_class)


# Kept for the choices of columns that were made last.
@functools.lru_cache
def _by_ids(database: str, read: tuple[str, ...]) -> Statement:
    """The query of messages by a set of ids (bind ``ids``), which have no place."""
    dialect = dialect_named(database)
    columns = raw_columns(dialect, null(), null(), read)
    found = select(*columns).select_from(with_classes(messages, read))
    return Statement(found.where(dialect.among(messages.c.id, "ids")))


def present_query(conn: Connection, /) -> Select[Any]:
    """The query of which ids of a set (bind ``ids``) have a row."""
    dialect = dialect_of(conn)
    name = dialect.capabilities.name
    if name not in _PRESENT_FOR:
        _PRESENT_FOR[name] = select(messages.c.id).where(dialect.among(messages.c.id, "ids"))
    return _PRESENT_FOR[name]


def present_ids(conn: Connection, /, ids: Sequence[str]) -> set[str]:
    """Those of the ids that have a row. Cost: one query that looks into the primary key only."""
    rows = compiled_once(present_query(conn)).rows(conn, {"ids": dialect_of(conn).bind_ids(ids)})
    return {row[0] for row in rows}


def message_pages(conn: Connection, /, ids: Sequence[str], read: tuple[str, ...] = WHOLE) -> Iterator[list[Any]]:
    """Raw rows of the messages that exist, 500 ids per query."""
    query = _by_ids(dialect_of(conn).capabilities.name, read)
    for start in range(0, len(ids), _PAGE):
        yield query.rows(conn, {"ids": dialect_of(conn).bind_ids(ids[start : start + _PAGE])})


def decoded_rows(rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Decode raw rows in their order; one that has a place has it as ``ordinal``, with the ``generation``.

    Pure, linear.
    """
    decoded = []
    decode = decode_text
    for mid, at, metadata, content, packed, sender, recipient, channel, role, kind, name, place, generation in rows:
        # Most of the time of a page goes in here, so a call less is worth its line.
        try:
            value = decode(content)
            described = None if metadata is None else decode(metadata)
        except NOT_PLAIN:
            value, described = decode_json(content), decode_json(metadata)
        found = {
            "id": mid,
            "created_at": at,
            "node_metadata": described,
            "content": value,
            "embedding": None if packed is None else unpacked(packed),
            "sender": sender,
            "recipient": recipient,
            "channel": channel,
            "role": role,
            "lion_class": kind,
            "lion_class_str": name,
        }
        if place is not None:
            found["ordinal"] = place
            found["generation"] = generation
        decoded.append(found)
    return decoded


def decoded_by_id(rows: Iterable[Sequence[Any]]) -> dict[str, dict[str, Any]]:
    """Decode raw rows that have no place; pure, linear."""
    return {found["id"]: found for found in decoded_rows(rows)}


def size_of(rows: Sequence[Sequence[Any]], large: Iterable[Callable[[Sequence[Any]], Any]] = LARGE) -> int:
    """How much decoding raw rows take, by those of their values that can be large, to choose where it is done."""
    total = 64 * len(rows)
    for value_of in large:
        try:
            total += sum(map(len, filter(None, map(value_of, rows))))
        except TypeError:  # A number, which SQLite stores as such.
            total += sum(len(value) for value in map(value_of, rows) if isinstance(value, (str, bytes)))
    return min(total, _MOST_SIZE)


def _only(rows: list[Any]) -> dict[str, Any] | None:
    return next(iter(decoded_by_id(rows).values()), None)


def get_message(conn: Connection, /, message_id: str) -> Deferred[dict[str, Any] | None]:
    """One message with ``lion_class_str``; None if it is missing.

    Contract: ADR-0055 D1; reference §2.1.
    """
    rows = [row for page in message_pages(conn, usable_ids([message_id])) for row in page]
    return Deferred(rows, _only, size_of(rows))


def get_messages(conn: Connection, /, ids: Sequence[str]) -> Deferred[dict[str, dict[str, Any]]]:
    """Messages by id; ids without a row are left out.

    Cost: one query per 500 ids.
    Contract: ADR-0055 D1; reference §2.1.
    """
    if isinstance(ids, str):
        raise InvalidInputError("ids is a sequence of message ids, not one text")
    rows = [row for page in message_pages(conn, usable_ids(dict.fromkeys(ids))) for row in page]
    return Deferred(rows, decoded_by_id, size_of(rows))


def usable_ids(ids: Iterable[object]) -> list[str]:
    """Ids that a row can have: PostgreSQL fails on others, even in a comparison."""
    usable = []
    for found in ids:
        try:
            usable.append(check_text("id", found))
        except InvalidInputError:
            continue
    return usable
