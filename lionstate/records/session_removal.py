"""Removal of sessions and of what only they hold: decided by items and JSON, whichever is the authority.

Contract: ADR-0055 D1; reference §2.1; design decision 18.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, and_, column, delete, exists, func, inspect, or_, select, table

from lionstate.dialects import dialect_of
from lionstate.errors import BlockedCode, ProgressionError
from lionstate.progression.collection import parse_readable
from lionstate.progression.delete import tombstone
from lionstate.progression.phases import Phase
from lionstate.progression.reads import get_progression
from lionstate.progression.storage_state import lock_many
from lionstate.records.rows import all_rows, delete_rows, update_rows
from lionstate.schema.control import approvals
from lionstate.schema.conversation import branches, messages, progressions, sessions
from lionstate.schema.delivery import dispatch_outbox
from lionstate.schema.evidence import artifacts, status_transitions
from lionstate.schema.execution import plays, team_messages
from lionstate.schema.own import progression_items, progression_storage_state
from lionstate.schema.types import encode_json

__all__ = ["Removal", "count_unpointed", "lock_conversations", "plan_removal", "remove_sessions"]

T = TypeVar("T")

_PAGE = 500
_POINTERS = (sessions.c.first_msg_id, sessions.c.last_msg_id, branches.c.system_msg_id)
_DETACHED = (artifacts, plays, team_messages, dispatch_outbox, approvals)
# A table of LionAGI's own, which refers to the history.
_ACKNOWLEDGED = table("terminal_deliveries", column("transition_id"))
_state = progression_storage_state.c
_IS_TOMBSTONE = and_(_state.phase == Phase.BLOCKED.value, _state.blocked_reason == BlockedCode.DELETING.value)


def _pages(found: Sequence[T]) -> Iterator[Sequence[T]]:
    return (found[start : start + _PAGE] for start in range(0, len(found), _PAGE))


@dataclass(frozen=True, slots=True)
class Removal:
    """What goes with some sessions.

    Attributes:
        progressions: Those to which nothing else points.
        orphans: Messages that they name, or that the sessions and branches point at, and no other progression holds.
        unreadable: Progressions, theirs or others', that no read is answered from: what they may hold stays.
    """

    progressions: Sequence[str]
    orphans: Sequence[str]
    unreadable: Sequence[str]


def plan_removal(
    conn: Connection, /, batch: Sequence[str], *, gone: ColumnElement[bool] | None = None, careful: bool = True
) -> Removal:
    """Find what goes with the sessions of a batch and is held by nothing that stays.

    Args:
        batch: Ids of sessions.
        gone: A condition on ``sessions``: those that are gone before; none when absent.
        careful: Also take along what the sessions and branches point at, and keep what stands anywhere in a value of
            others that no read is answered from.

    Cost: what the batch holds, one pass over the index of the items and one over every JSON value that may count.
    """
    dialect = dialect_of(conn)
    bound = {"batch": dialect.bind_ids(list(batch))}
    in_batch = dialect.among(sessions.c.id, "batch")
    is_gone = in_batch if gone is None else or_(gone, in_batch)
    outside = _only_theirs(conn, is_gone, bound)
    mine = sorted(outside & _referred(conn, in_batch, bound))
    unreadable: set[str] = set()
    held = {found for progression_id in mine for found in _ids_of(conn, progression_id, unreadable)}
    if careful:
        held |= _pointed_at(conn, in_batch, bound)
    elsewhere = _held_elsewhere(conn, held, sorted(outside), unreadable if careful else None)
    return Removal(mine, sorted(held - elsewhere), sorted(unreadable))


def remove_sessions(conn: Connection, /, batch: Sequence[str], plan: Removal) -> tuple[int, int]:
    """Carry out a plan, in the transaction that made it; the branches and messages that went.

    The progressions answer as missing from now on; maintenance removes their rows.
    """
    gone_branches = 0
    for session_id in batch:
        _detach(conn, session_id)
        gone_branches += delete_rows(conn, branches, session_id=session_id)
        delete_rows(conn, sessions, id=session_id)
        _forget_history(conn, session_id)
    gone_messages = _delete_messages(conn, plan.orphans)
    for progression_id, found in sorted(lock_many(conn, plan.progressions).items()):
        if found.state is None or not found.state.is_tombstone:
            tombstone(conn, progression_id, found.state)
    return gone_branches, gone_messages


def lock_conversations(conn: Connection, /) -> None:
    """Let nobody begin to hold a message that is about to be found held by nothing (PostgreSQL).

    Progressions first, as every append locks them first.
    """
    dialect_of(conn).lock_tables(conn, (progressions, sessions, branches))


def count_unpointed(conn: Connection, /, ids: Sequence[str], gone: ColumnElement[bool]) -> int:
    """Of these messages, those that exist and that nothing but sessions that are gone points at."""
    dialect = dialect_of(conn)
    stays = sessions.c.id.not_in(select(sessions.c.id).where(gone))
    of_branches = branches.c.session_id.not_in(select(sessions.c.id).where(gone))
    unpointed = [
        ~exists().where(pointer == messages.c.id, of_branches if pointer.table is branches else stays)
        for pointer in _POINTERS
    ]
    statement = select(func.count()).select_from(messages).where(dialect.among(messages.c.id, "ids"), *unpointed)
    return sum(conn.execute(statement, {"ids": dialect.bind_ids(page)}).scalar_one() for page in _pages(ids))


def _referred(conn: Connection, condition: ColumnElement[bool], bound: Mapping[str, Any]) -> set[str]:
    """The progressions of the sessions that match, and of their branches."""
    chosen = select(sessions.c.id).where(condition)
    found = select(sessions.c.progression_id).where(condition)
    of_branches = select(branches.c.progression_id).where(branches.c.session_id.in_(chosen))
    return {*conn.execute(found, bound).scalars(), *conn.execute(of_branches, bound).scalars()} - {None}


def _only_theirs(conn: Connection, condition: ColumnElement[bool], bound: Mapping[str, Any]) -> set[str]:
    """Those of ``_referred`` to which no other session or branch points."""
    dialect, chosen = dialect_of(conn), select(sessions.c.id).where(condition)
    own: set[str] = _referred(conn, condition, bound)
    for referring, key in ((sessions, sessions.c.id), (branches, branches.c.session_id)):
        others = select(referring.c.progression_id).where(
            dialect.among(referring.c.progression_id, "own"), key.not_in(chosen)
        )
        own -= set(conn.execute(others, {**bound, "own": dialect.bind_ids(sorted(own))}).scalars())
    return own


def _pointed_at(conn: Connection, condition: ColumnElement[bool], bound: Mapping[str, Any]) -> set[str]:
    chosen = select(sessions.c.id).where(condition)
    found: set[str | None] = set()
    for pointer in _POINTERS:
        where = branches.c.session_id.in_(chosen) if pointer.table is branches else condition
        found.update(conn.execute(select(pointer).where(where), bound).scalars())
    return {message_id for message_id in found if message_id is not None}


def _ids_of(conn: Connection, progression_id: str, unreadable: set[str]) -> list[str]:
    """What a read of the progression would give; nothing where a read is refused: its messages stay."""
    try:
        found = get_progression(conn, progression_id)
        ids: Any = found.finish(found.raw)
    except ProgressionError:
        unreadable.add(progression_id)
        return []
    return [message_id for message_id in ids if isinstance(message_id, str)]


def _held_elsewhere(conn: Connection, ids: Iterable[str], mine: Sequence[str], unreadable: set[str] | None) -> set[str]:
    """Of these messages, those that any other progression holds, in its item rows or in its JSON.

    An item row counts whatever its phase, and so does the JSON of everything that is not in ``items``: in doubt a
    message stays. A progression that is being deleted holds nothing.
    """
    dialect, wanted = dialect_of(conn), sorted(ids)
    item = progression_items.c
    in_items = (
        select(item.message_id)
        .distinct()
        .where(dialect.among(item.message_id, "wanted"), ~dialect.among(item.progression_id, "mine"))
        .where(item.progression_id.not_in(select(_state.progression_id).where(_IS_TOMBSTONE)))
    )
    bound = {"wanted": dialect.bind_ids(wanted), "mine": dialect.bind_ids(mine)}
    held = set(conn.execute(in_items, bound).scalars()) if wanted else set()
    for page in _json_pages(conn, mine):
        if not (left := [message_id for message_id in wanted if message_id not in held]):
            break
        held |= _held_in_json(conn, page, left, unreadable)
    return held


def _json_pages(conn: Connection, mine: Sequence[str]) -> Iterator[list[str]]:
    """The ids of all other progressions whose JSON may count, in pages."""
    dialect, after = dialect_of(conn), ""
    joined = progressions.outerjoin(progression_storage_state, _state.progression_id == progressions.c.id)
    counts = or_(_state.progression_id.is_(None), and_(_state.phase != Phase.ITEMS.value, ~_IS_TOMBSTONE))
    others = select(progressions.c.id).select_from(joined).where(counts, ~dialect.among(progressions.c.id, "mine"))
    others = others.order_by(progressions.c.id).limit(_PAGE)
    bound = {"mine": dialect.bind_ids(mine)}
    while page := list(conn.execute(others.where(progressions.c.id > after), bound).scalars()):
        yield page
        after = page[-1]


def _held_in_json(
    conn: Connection, page: Sequence[str], wanted: Sequence[str], unreadable: set[str] | None
) -> set[str]:
    """Of the wanted ids, those in the JSON of a page; one value that the database cannot read spoils no other."""
    found = dialect_of(conn).held_in_collections(conn, page, wanted)
    if found is not None:
        return found
    if len(page) > 1:
        middle = len(page) // 2
        halves = (page[:middle], page[middle:])
        return {found for half in halves for found in _held_in_json(conn, half, wanted, unreadable)}
    value = dialect_of(conn).collection_of(conn, page[0])
    try:
        elements = parse_readable(None if value is None else value.value)
    except ProgressionError:
        # Nobody is shown a message by it now; somebody may mend it.
        if unreadable is None:
            return set()
        unreadable.add(page[0])
        return _mentioned(None if value is None else value.value, wanted)
    return {element for element in elements if isinstance(element, str)} & set(wanted)


def _mentioned(value: object, wanted: Sequence[str]) -> set[str]:
    """Of the wanted ids, those that stand anywhere in a value that is no array."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return {message_id for message_id in wanted if message_id in text or encode_json(message_id)[1:-1] in text}


def _delete_messages(conn: Connection, ids: Sequence[str]) -> int:
    """Delete messages, except those that a session or branch points at; how many went."""
    dialect = dialect_of(conn)
    unpointed = [~exists().where(pointer == messages.c.id) for pointer in _POINTERS]
    statement = delete(messages).where(dialect.among(messages.c.id, "ids"), *unpointed)
    return sum(conn.execute(statement, {"ids": dialect.bind_ids(page)}).rowcount for page in _pages(ids))


def _detach(conn: Connection, session_id: str) -> None:
    """Let other records' rows lose the session; an artifact whose name is taken without it gets another."""
    mine = all_rows(conn, select(artifacts).where(artifacts.c.session_id == session_id).order_by(artifacts.c.id))
    kinds = {"kinds": dialect_of(conn).bind_ids(sorted({row["kind"] for row in mine}))}
    among = dialect_of(conn).among(artifacts.c.kind, "kinds")
    columns = (artifacts.c.invocation_id, artifacts.c.kind, artifacts.c.name)
    detached = select(*columns).where(artifacts.c.session_id.is_(None), among)
    there = {tuple(row) for row in conn.execute(detached, kinds)} if mine else set()
    taken = there | {(row["invocation_id"], row["kind"], row["name"]) for row in mine}
    for row in mine:
        key = (row["invocation_id"], row["kind"])
        if (*key, row["name"]) not in there:
            continue
        name, number = f"{row['name']} (detached {session_id})", 2
        while (*key, name) in taken:
            name, number = f"{row['name']} (detached {session_id} {number})", number + 1
        taken.add((*key, name))
        update_rows(conn, artifacts, {"id": row["id"]}, {"name": name})
    for referring in _DETACHED:
        update_rows(conn, referring, {"session_id": session_id}, {"session_id": None})


def _forget_history(conn: Connection, session_id: str) -> None:
    if inspect(conn).has_table(_ACKNOWLEDGED.name):
        history = select(status_transitions.c.id).where(
            status_transitions.c.entity_type == "session", status_transitions.c.entity_id == session_id
        )
        conn.execute(delete(_ACKNOWLEDGED).where(_ACKNOWLEDGED.c.transition_id.in_(history)))
    delete_rows(conn, status_transitions, entity_type="session", entity_id=session_id)
