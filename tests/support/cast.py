"""Who takes part in an explored interleaving, and what must be true whatever their order.

What callers see must be what some order of whole operations explains: one in which an operation that was acknowledged
before another began comes first. Admission, chunk, proof, cutover and rollback are no operation of that order: they
change nothing that a caller sees.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, insert, text

from lionstate.dialects import ParentValue, dialect_of
from lionstate.errors import NotFoundError, PhaseConflictError
from lionstate.migration.admission import admit, block
from lionstate.migration.backfill import copy_chunk
from lionstate.migration.cutover import Mark, cut_over, roll_back
from lionstate.migration.gate import Permit
from lionstate.migration.port import bound
from lionstate.migration.report import Stage, StageOutcome, VerificationOutcome
from lionstate.migration.verification import Prover, judged_of
from lionstate.migration.verify import verify
from lionstate.progression.append import append_to_progression
from lionstate.progression.collection import prepare
from lionstate.progression.delete import delete_progression
from lionstate.progression.digest import digest_of
from lionstate.progression.phases import new_generation
from lionstate.progression.reads import get_progression
from lionstate.progression.replace import set_progression
from lionstate.progression.storage_state import StorageState, get_state, insert_state
from lionstate.schema.conversation import progressions
from lionstate.schema.own import migration_control
from tests.support.interleaving import Actor, Explored, Side, explore

__all__ = ["FOREIGN_APPEND", "PHASES", "explore_on", "groups_of"]

OLD = ["a", "b", "c"]
NEW = ["n1", "a", "n2", "n3"]
PHASES = ("json", "dual", "copied", "items")
"""No state row; dual with one id of three copied; dual with all copied; cut over with an empty tail."""

Ids = list[str] | None
FOREIGN_APPEND = {
    "sqlite": "UPDATE progressions SET collection = json_insert(collection, '$[#]', :mid) WHERE id = :pid"
    " AND NOT EXISTS (SELECT 1 FROM json_each(collection) WHERE value = :mid)",
    "postgresql": "UPDATE progressions SET collection = (collection::jsonb || to_jsonb(CAST(:mid AS text)))::text"
    " WHERE id = :pid AND NOT EXISTS"
    " (SELECT 1 FROM jsonb_array_elements_text(collection::jsonb) AS e(v) WHERE e.v = :mid)",
}


def _appended(message_id: str) -> Callable[[Ids], Ids]:
    return lambda ids: ids if ids is None or message_id in ids else [*ids, message_id]


@dataclass(frozen=True)
class Part:
    """One role.

    Attributes:
        phases: Where it has something to do.
        effect: What it does to the collection in the plain model; None for what callers do not see.
        reads: Its result is the collection.
        expects: What it may report; empty for anything that is no error.
    """

    name: str
    body: Callable[[Actor], Awaitable[Any]]
    phases: tuple[str, ...] = PHASES
    effect: Callable[[Ids], Ids] | None = None
    reads: bool = False
    expects: tuple[Any, ...] = ()
    whole_snapshots: bool = True
    is_foreign: bool = False


def _append(message_id: str) -> Callable[[Actor], Awaitable[Any]]:
    async def body(actor: Actor) -> None:
        await actor.write(bound(append_to_progression, actor.progression_id, message_id))

    return body


async def _replace(actor: Actor) -> None:
    await actor.write(bound(set_progression, actor.progression_id, NEW))


async def _delete(actor: Actor) -> None:
    await actor.write(bound(delete_progression, actor.progression_id))


async def _read(actor: Actor) -> Any:
    return await actor.read(bound(get_progression, actor.progression_id))


async def _foreign_append(actor: Actor) -> None:
    def script(conn: Connection) -> None:
        conn.execute(text(FOREIGN_APPEND[conn.dialect.name]), {"mid": "f", "pid": actor.progression_id})

    await actor.write(script)


def _look(conn: Connection, /, progression_id: str) -> tuple[ParentValue | None, StorageState | None]:
    return dialect_of(conn).collection_of(conn, progression_id), get_state(conn, progression_id)


async def _admit(actor: Actor) -> StageOutcome:
    pid = actor.progression_id
    found, seen = await actor.read(bound(_look, pid))
    if found is None:
        return StageOutcome.MOVED
    judged = await judged_of(pid, found, None if seen is None else seen.generation)
    script = bound(admit, judged, generation=new_generation(), permit=Permit(), actor="test", now=time.time())
    stage: Stage = await actor.write(script)
    return stage.outcome


async def _chunk(actor: Actor) -> StageOutcome:
    pid = actor.progression_id
    found, state = await actor.read(bound(_look, pid))
    if found is None or state is None or state.source_count is None:
        return StageOutcome.MOVED
    judged = await judged_of(pid, found, state.generation)
    script = bound(
        copy_chunk,
        pid,
        generation=state.generation,
        cursor=state.backfill_next,
        ids=list(judged.verdict.ids[state.backfill_next : state.source_count]),
        size_bytes=10,
        transactions=lambda: 0,
        permit=Permit(),
        actor="test",
        now=time.time(),
    )
    stage: Stage = await actor.write(script)
    return stage.outcome


async def _prove_and_cut(actor: Actor) -> StageOutcome:
    # Where a store has a mark, it was taken on the writer's connection before the proof: by the last chunk.
    token = await actor.read(actor.dialect.store_mark)
    proof = await Prover(actor).prove(actor.progression_id)
    if proof is None:
        return StageOutcome.MOVED
    if proof.code is not None:
        finding = proof.finding(proof.code)
        stage: Stage = await actor.write(bound(block, finding, permit=Permit(), actor="test", now=time.time()))
        return stage.outcome
    script = bound(
        cut_over,
        proof,
        mark=Mark(token, 0),
        transactions=lambda: 0,
        may_compare=True,
        accept_foreign_writers=False,
        permit=Permit(),
        actor="test",
        now=time.time(),
    )
    stage = await actor.write(script)
    return stage.outcome


async def _verify(actor: Actor) -> VerificationOutcome | None:
    try:
        return (await verify(actor, actor.progression_id)).outcome
    except NotFoundError:
        return None


async def _roll_back(actor: Actor) -> str:
    script = bound(
        roll_back,
        actor.progression_id,
        generation=new_generation(),
        actor="test",
        reason=None,
        now=time.time(),
    )
    try:
        await actor.write(script)
    except (NotFoundError, PhaseConflictError) as error:
        return error.code
    return "rolled back"


_MOVED = (StageOutcome.MOVED, StageOutcome.TEXT_CHANGED)
_SEEN = (
    VerificationOutcome.MATCH,
    VerificationOutcome.NOT_APPLICABLE,
    VerificationOutcome.INCOMPLETE,
    None,
)

ACTORS = {
    part.name: part
    for part in (
        Part("append x", _append("x"), effect=_appended("x")),
        Part("append x again", _append("x"), effect=_appended("x")),
        Part("append b", _append("b"), effect=_appended("b")),
        Part("append y", _append("y"), effect=_appended("y")),
        Part("replace", _replace, effect=lambda ids: None if ids is None else NEW),
        Part("delete", _delete, effect=lambda _: None),
        Part("read", _read, effect=lambda ids: ids, reads=True, whole_snapshots=False),
        Part("admission", _admit, ("json",), expects=(StageOutcome.ADMITTED, *_MOVED)),
        Part("chunk", _chunk, ("dual",), expects=(StageOutcome.COPIED, *_MOVED)),
        Part("second chunk", _chunk, ("dual",), expects=(StageOutcome.COPIED, *_MOVED)),
        Part("verification", _verify, ("dual", "copied", "items"), expects=_SEEN),
        Part("cutover", _prove_and_cut, ("copied",), expects=(StageOutcome.CUT_OVER, *_MOVED)),
        Part("second cutover", _prove_and_cut, ("copied",), expects=(StageOutcome.CUT_OVER, *_MOVED)),
        Part("rollback", _roll_back, ("dual", "copied")),
        Part("foreign append", _foreign_append, effect=_appended("f"), is_foreign=True),
    )
}
_SECOND = {"append x again": "append x", "second chunk": "chunk", "second cutover": "cutover"}


def groups_of(phase: str, size: int, *, without: Collection[str] = ()) -> list[tuple[str, ...]]:
    """The groups of this size that have something to do in a phase; whoever is a second comes with the first."""
    names = [name for name, part in ACTORS.items() if phase in part.phases and name not in without]
    groups = itertools.combinations(names, size)
    return [group for group in groups if all(_SECOND.get(name, name) in group for name in group)]


_numbers = itertools.count(1)


def _put(conn: Connection, progression_id: str, phase: str) -> None:
    # What is noted once a minute would make the first run another one than the next.
    conn.execute(delete(migration_control).where(migration_control.c.key == "foreign.sighted"))
    value = prepare(OLD)
    conn.execute(insert(progressions).values(id=progression_id, created_at=1.0, collection=value.text))
    if phase == "json":
        return
    copied = 1 if phase == "dual" else len(OLD)
    row: dict[str, Any] = {
        "progression_id": progression_id,
        "phase": "items" if phase == "items" else "dual",
        "authority": "items" if phase == "items" else "json",
        "generation": new_generation(),
        "source_count": len(OLD),
        "backfill_next": copied,
        "next_ordinal": len(OLD),
        "updated_at": 1.0,
    }
    dialect = dialect_of(conn)
    row["last_xact"] = dialect.parent_version(conn, progression_id)
    if phase == "items":
        row |= {
            "frozen_count": value.count,
            "source_digest": value.digest,
            "items_digest": value.digest,
            "text_bytes": value.text_bytes,
            "text_sha256": value.text_sha256,
            "cutover_at": 2.0,
        }
    insert_state(conn, row)
    dialect.insert_items(conn, [(progression_id, ordinal, mid) for ordinal, mid in enumerate(OLD[:copied])])


@dataclass(frozen=True)
class Found:
    """All rows of one progression."""

    value: str | None
    state: Any
    items: list[tuple[int, str]]


def _find(conn: Connection, progression_id: str) -> Found:
    value = conn.execute(text("SELECT collection FROM progressions WHERE id = :pid"), {"pid": progression_id})
    rows = conn.execute(
        text("SELECT ordinal, message_id FROM progression_items WHERE progression_id = :pid ORDER BY ordinal"),
        {"pid": progression_id},
    )
    return Found(value.scalar(), get_state(conn, progression_id), [(row[0], row[1]) for row in rows])


def _collection_in(found: Found, foreign: bool) -> Ids:
    """What a reader gets; every row must agree with the state row."""
    state = found.state
    if found.value is None:
        assert state is None and [] == found.items, "rows without their progression"
        return None
    value: list[str] = json.loads(found.value)
    ordinals = [ordinal for ordinal, _ in found.items]
    ids = [mid for _, mid in found.items]
    if state is None:
        assert [] == ids, "item rows without a state row"
        return value
    if state.phase == "blocked":
        assert foreign and ("json", "foreign_write") == (state.authority, state.blocked_reason), state
        return value
    if state.phase == "json":
        assert state.held_reason and (state.shadow_rows or not ids), state
        return value
    assert state.blocked_reason is None
    if state.phase == "dual":
        # A replacement leaves the rows of what is to be copied again.
        expected = {*range(state.backfill_next), *range(state.source_count, state.next_ordinal)}
        assert expected <= set(ordinals) <= set(range(state.next_ordinal)), "what was copied and what was appended"
        if not foreign:
            assert len(value) == state.next_ordinal, "the allocator of a dual one is the length of its value"
        assert [value[ordinal] for ordinal in ordinals] == ids
        return value
    assert ("items", "items") == (state.phase, state.authority)
    assert list(range(state.next_ordinal)) == ordinals, "ordinals 0 to n - 1"
    assert value == ids[: state.frozen_count], "the value of one in items is its frozen prefix"
    assert (digest_of(value),) * 2 == (state.source_digest, state.items_digest)
    encoded = found.value.encode()
    assert len(encoded) == state.text_bytes
    return ids


def _is_explained(parts: Sequence[Part], actors: Sequence[Actor], final: Ids) -> bool:
    """Whether some order of whole operations gives what was read and what is there."""
    acting = [place for place, part in enumerate(parts) if part.effect is not None]
    refused = {place for place in acting if isinstance(actors[place].result, Exception)}
    for order in itertools.permutations([place for place in acting if place not in refused]):
        before = {pair for pair in itertools.combinations(order, 2)}
        if any(_ended_before(actors[later], actors[sooner]) for sooner, later in before):
            continue
        ids: Ids = list(OLD)
        for place in order:
            effect = parts[place].effect
            assert effect is not None
            ids = effect(ids)
            if parts[place].reads and (ids or []) != actors[place].result:
                break
        else:
            if ids == final:
                return True
    return False


def _ended_before(one: Actor, other: Actor) -> bool:
    return one.ended is not None and other.began is not None and one.ended < other.began


def _check_results(parts: Sequence[Part], actors: Sequence[Actor], foreign: bool) -> None:
    for part, actor in zip(parts, actors, strict=True):
        if isinstance(actor.result, Exception):
            # The fence refuses another program; nobody else is refused anything.
            assert part.is_foreign and "normalized" in str(actor.result), repr(actor.result)
        elif part.expects and not foreign:
            assert actor.result in part.expects, f"{part.name}: {actor.result}"


async def explore_on(side: Side, phase: str, names: Sequence[str], *, preemptions: int) -> Explored:
    """Explore what these actors do to a progression in a phase."""
    parts = [ACTORS[name] for name in names]
    foreign = any(part.is_foreign for part in parts)

    async def make() -> list[Actor]:
        progression_id = f"p{next(_numbers)}"
        await side.direct(bound(_put, progression_id, phase))
        return [
            Actor(side, part.name, progression_id, part.body, whole_snapshots=part.whole_snapshots) for part in parts
        ]

    async def check(actors: Sequence[Actor]) -> None:
        _check_results(parts, actors, foreign)
        final = _collection_in(await side.direct(bound(_find, actors[0].progression_id)), foreign)
        if not _is_explained(parts, actors, final):
            told = {actor.name: (actor.began, actor.ended, actor.result) for actor in actors}
            raise AssertionError(f"no order of whole operations explains {told} and {final}")

    return await explore(side, make, check, preemptions=preemptions)
