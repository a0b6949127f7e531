"""The vocabularies of status changes: their sizes, and that they agree with each other and with the tables."""

from __future__ import annotations

import pytest
from sqlalchemy import CheckConstraint

from lionstate.records.status_vocabulary import ENTITIES, REASON_CODES, Entity, entity_named
from lionstate.schema import metadata

_EACH = pytest.mark.parametrize("entity", ENTITIES.values(), ids=list(ENTITIES))


def test_there_are_75_reason_codes() -> None:
    assert 75 == len(REASON_CODES)


def test_six_kinds_of_record_change_status() -> None:
    assert ["invocation", "play", "schedule_run", "session", "show", "team"] == sorted(ENTITIES)


@_EACH
def test_declared_words_belong_to_their_vocabularies(entity: Entity) -> None:
    for reasons in (entity.default_reasons, entity.initial_reasons):
        assert set() == set(reasons.values()) - REASON_CODES
    assert set() == (entity.terminal | set(entity.initial_reasons)) - entity.statuses
    assert set() == entity.extra_fields - set(metadata.tables[entity.table].columns.keys())


@_EACH
def test_the_tables_check_lists_the_same_statuses(entity: Entity) -> None:
    checks = metadata.tables[entity.table].c.status.constraints
    listed = [str(found.sqltext) for found in checks if isinstance(found, CheckConstraint)]
    if entity.name == "session":
        assert [] == listed
    else:
        assert [entity.statuses] == [frozenset(check.split("'")[1::2]) for check in listed]


def test_records_are_named_by_word_alias_and_table() -> None:
    assert ENTITIES["session"] is entity_named("run") is entity_named("sessions") is entity_named("session")
    assert entity_named("dispatch") is None
