"""The whole truth table of read source and append target (ADR-0117 D4)."""

import pytest

from lionstate.errors import BlockedCode
from lionstate.progression.phases import (
    AppendTarget,
    Authority,
    Phase,
    ReadSource,
    append_target,
    new_generation,
    read_source,
)

JSON, ITEMS, NONE = Authority.JSON, Authority.ITEMS, Authority.NONE

# phase, authority, reason, read, read with compat, append
TABLE = [
    (None, None, None, "json", "json", "json"),
    (Phase.JSON, None, None, "json", "json", "json"),
    (Phase.JSON, JSON, None, "json", "json", "json"),
    (Phase.DUAL, None, None, "json", "json", "dual"),
    (Phase.DUAL, JSON, None, "json", "json", "dual"),
    (Phase.ITEMS, None, None, "items", "compat", "items"),
    (Phase.ITEMS, ITEMS, None, "items", "compat", "items"),
    *[
        row
        for code in [None, *(code for code in BlockedCode if code is not BlockedCode.DELETING)]
        for row in (
            (Phase.BLOCKED, JSON, code, "json", "json", "json"),
            (Phase.BLOCKED, ITEMS, code, "items", "compat", "items"),
            (Phase.BLOCKED, NONE, code, "closed", "closed", "refused"),
            (Phase.BLOCKED, None, code, "closed", "closed", "refused"),
        )
    ],
    *[(Phase.BLOCKED, authority, "deleting", "missing", "missing", "noop") for authority in (NONE, JSON, ITEMS, None)],
    # A row that contradicts itself is trusted for nothing.
    *[(Phase.JSON, authority, None, "closed", "closed", "refused") for authority in (ITEMS, NONE)],
    *[(Phase.DUAL, authority, None, "closed", "closed", "refused") for authority in (ITEMS, NONE)],
    *[(Phase.ITEMS, authority, None, "closed", "closed", "refused") for authority in (JSON, NONE)],
]


@pytest.mark.parametrize(("phase", "authority", "reason", "read", "compat_read", "append"), TABLE)
def test_table(
    phase: Phase | None,
    authority: Authority | None,
    reason: str | None,
    read: str,
    compat_read: str,
    append: str,
) -> None:
    assert ReadSource(read) is read_source(phase, authority, compat=False, reason=reason)
    assert ReadSource(compat_read) is read_source(phase, authority, compat=True, reason=reason)
    assert AppendTarget(append) is append_target(phase, authority, reason)


def test_table_is_whole() -> None:
    covered = {(phase, authority) for phase, authority, *_ in TABLE}

    assert {(phase, authority) for phase in Phase for authority in (*Authority, None)} <= covered


@pytest.mark.parametrize("phase", [None, Phase.JSON, Phase.DUAL, Phase.ITEMS])
def test_reason_counts_only_while_blocked(phase: Phase | None) -> None:
    assert read_source(phase, None, compat=False, reason=None) is read_source(
        phase, None, compat=False, reason=BlockedCode.DELETING
    )
    assert append_target(phase, None, None) is append_target(phase, None, BlockedCode.DELETING)


def test_stored_words() -> None:
    assert ["json", "dual", "items", "blocked"] == [str(phase) for phase in Phase]
    assert ["json", "items", "none"] == [str(authority) for authority in Authority]


def test_generations_are_positive_bigints_and_do_not_repeat() -> None:
    drawn = [new_generation() for _ in range(1000)]

    assert all(0 < generation < 2**63 for generation in drawn)
    assert 1000 == len(set(drawn))
    assert max(drawn) > 2**61
