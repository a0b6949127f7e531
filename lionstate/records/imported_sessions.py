"""Deletion of a session that an importer wrote, and of what only it holds.

Contract: ADR-0055 D1; reference §2.1; design decision 18.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, and_, column, delete, exists, inspect, or_, select, table

from lionstate.dialects import dialect_of
from lionstate.errors import BlockedCode, ProgressionError
from lionstate.progression.collection import parse_readable
from lionstate.progression.delete import tombstone
from lionstate.progression.phases import Phase
from lionstate.progression.reads import get_progression
from lionstate.progression.storage_state import lock_many
from lionstate.records.arguments import takes
from lionstate.records.rows import all_rows, delete_rows, get_row, update_rows
from lionstate.records.values import check_text
from lionstate.schema.control import approvals
from lionstate.schema.conversation import branches, messages, progressions, sessions
from lionstate.schema.delivery import dispatch_outbox
from lionstate.schema.evidence import artifacts, status_transitions
from lionstate.schema.execution import plays, team_messages
from lionstate.schema.own import progression_items, progression_storage_state

__all__ = ["delete_imported_session"]

T = TypeVar("T")

_PAGE = 500
_DETACHED = (artifacts, plays, team_messages, dispatch_outbox, approvals)
# A table of LionAGI's own, which refers to the history.
_ACKNOWLEDGED = table("terminal_deliveries", column("transition_id"))
_state = progression_storage_state.c
_IS_TOMBSTONE = and_(_state.phase == Phase.BLOCKED.value, _state.blocked_reason == BlockedCode.DELETING.value)


def _pages(found: Sequence[T]) -> Iterator[Sequence[T]]:
    return (found[start : start + _PAGE] for start in range(0, len(found), _PAGE))


@takes(session_id=check_text, require_source_kind=check_text)
def delete_imported_session(conn: Connection, /, session_id: str, *, require_source_kind: str) -> bool:
    """Delete an imported session, its branches, and the progressions and messages that nothing else holds.

    The three tables are locked on PostgreSQL: nobody may begin to hold a message that was just found to be held by
    nothing else. Progressions first, as every append locks them first.
    """
    if not require_source_kind.startswith("imported_") or get_row(conn, sessions, id=session_id) is None:
        return False
    dialect_of(conn).lock_tables(conn, (progressions, sessions, branches))
    session = get_row(conn, sessions, id=session_id)
    if session is None or session["source_kind"] != require_source_kind:
        return False
    mine = _own_progressions(conn, session)
    locked = lock_many(conn, mine)
    held = {message_id for progression_id in locked for message_id in _ids_of(conn, progression_id)}
    orphans = sorted(held - _held_elsewhere(conn, held, mine))
    _detach(conn, session_id)
    delete_rows(conn, branches, session_id=session_id)
    delete_rows(conn, sessions, id=session_id)
    _delete_messages(conn, orphans)
    for progression_id, found in sorted(locked.items()):
        if found.state is None or not found.state.is_tombstone:
            tombstone(conn, progression_id, found.state)
    _forget_history(conn, session_id)
    return True


def _own_progressions(conn: Connection, session: dict[str, Any]) -> list[str]:
    """The progressions of the session and its branches to which no other session or branch points."""
    session_id, dialect = session["id"], dialect_of(conn)
    of_branches = select(branches.c.progression_id).where(branches.c.session_id == session_id)
    own = {session["progression_id"], *conn.execute(of_branches).scalars()} - {None}
    bound = {"ids": dialect.bind_ids(sorted(own))}
    for referring, is_other in (
        (sessions, sessions.c.id != session_id),
        (branches, branches.c.session_id != session_id),
    ):
        shared = select(referring.c.progression_id).where(dialect.among(referring.c.progression_id, "ids"), is_other)
        own -= set(conn.execute(shared, bound).scalars())
    return sorted(own)


def _ids_of(conn: Connection, progression_id: str) -> list[str]:
    """What a read of the progression would give; nothing where a read is refused: its messages stay."""
    try:
        found = get_progression(conn, progression_id)
        ids: Any = found.finish(found.raw)
    except ProgressionError:
        return []
    return [message_id for message_id in ids if isinstance(message_id, str)]


def _held_elsewhere(conn: Connection, ids: Iterable[str], mine: Sequence[str]) -> set[str]:
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
        held |= _held_in_json(conn, page, left)
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


def _held_in_json(conn: Connection, page: Sequence[str], wanted: Sequence[str]) -> set[str]:
    """Of the wanted ids, those in the JSON of a page; one value that the database cannot read spoils no other."""
    found = dialect_of(conn).held_in_collections(conn, page, wanted)
    if found is not None:
        return found
    if len(page) > 1:
        middle = len(page) // 2
        return _held_in_json(conn, page[:middle], wanted) | _held_in_json(conn, page[middle:], wanted)
    value = dialect_of(conn).collection_of(conn, page[0])
    try:
        elements = parse_readable(None if value is None else value.value)
    except ProgressionError:
        # Nobody can read it, so nobody is shown a message by it.
        return set()
    return {element for element in elements if isinstance(element, str)} & set(wanted)


def _delete_messages(conn: Connection, ids: Sequence[str]) -> None:
    """Delete messages, except those that a session or branch points at."""
    dialect = dialect_of(conn)
    pointers = (sessions.c.first_msg_id, sessions.c.last_msg_id, branches.c.system_msg_id)
    unpointed = [~exists().where(pointer == messages.c.id) for pointer in pointers]
    statement = delete(messages).where(dialect.among(messages.c.id, "ids"), *unpointed)
    for page in _pages(ids):
        conn.execute(statement, {"ids": dialect.bind_ids(page)})


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
