"""The words of status changes: statuses, terminal sets, reason codes, defaults and first entries; data only.

Contract: ADR-0055 D1 (ADR-0057 vocabularies); reference §2.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["ENTITIES", "REASON_CODES", "SOURCES", "Entity", "entity_named"]


@dataclass(frozen=True, slots=True)
class Entity:
    """One kind of record whose status is changed with a reason.

    Attributes:
        name: The word stored in ``status_transitions.entity_type``.
        table: Its table's name.
        prefix: Of the key under which the write queue keeps changes of a row in order.
        statuses: Every status it can have.
        terminal: Those that are left only by an audited override.
        default_reasons: The reason of a change that names none, by new status.
        initial_reasons: The reason of the first history entry, by the status a row is created with.
        extra_fields: Columns that may change together with the status.
    """

    name: str
    table: str
    prefix: str
    statuses: frozenset[str]
    terminal: frozenset[str]
    default_reasons: Mapping[str, str] = field(default_factory=dict)
    initial_reasons: Mapping[str, str] = field(default_factory=dict)
    extra_fields: frozenset[str] = frozenset()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_RUN_ENDS = "completed completed_empty failed timed_out aborted cancelled"
_RUN_REASONS: Final[Mapping[str, str]] = {
    "running": "run.started.ok",
    "completed": "run.completed.ok",
    "completed_empty": "run.completed_empty.no_evidence",
    "failed": "run.failed.exception",
    "timed_out": "run.timed_out.deadline",
    "aborted": "run.aborted.user",
    "cancelled": "run.cancelled.system",
}

ENTITIES: Final[Mapping[str, Entity]] = {
    entity.name: entity
    for entity in (
        Entity(
            "session",
            "sessions",
            "s",
            _words(f"running {_RUN_ENDS}"),
            _words(_RUN_ENDS),
            default_reasons=_RUN_REASONS,
            initial_reasons={"running": "run.started.ok"},
            extra_fields=_words("ended_at duration_ms ended_at_is_approximate node_metadata current_phase"),
        ),
        Entity(
            "invocation",
            "invocations",
            "i",
            _words(f"running {_RUN_ENDS}"),
            _words(_RUN_ENDS),
            default_reasons=_RUN_REASONS,
            initial_reasons={"running": "run.started.ok"},
            extra_fields=_words("ended_at"),
        ),
        Entity(
            "show",
            "shows",
            "show",
            _words("active completed aborted imported"),
            _words("completed aborted"),
            default_reasons={"completed": "show.completed.final_gate", "aborted": "show.aborted.operator"},
            initial_reasons={"active": "show.active.created", "imported": "legacy.imported"},
        ),
        Entity(
            "play",
            "plays",
            "play",
            _words(
                "pending prepared running running_complete gated gate_failed redoing merged escalated blocked"
                " aborted_after_finish"
            ),
            _words("merged escalated gate_failed blocked aborted_after_finish"),
            default_reasons={
                "merged": "play.merged.ok",
                "escalated": "play.escalated.gate_twice",
                "gate_failed": "play.gate_failed.verdict",
            },
            initial_reasons={"pending": "play.pending.created"},
            extra_fields=_words("ended_at"),
        ),
        Entity("team", "teams", "team", _words("active archived"), _words("archived")),
        Entity(
            "schedule_run",
            "schedule_runs",
            "run",
            _words("queued waiting_dependency running retry_wait completed failed timed_out skipped cancelled"),
            _words("completed failed timed_out skipped cancelled"),
            default_reasons=_RUN_REASONS,
            initial_reasons={
                "queued": "schedule.queued.created",
                "running": "run.started.ok",
                "failed": "run.failed.exception",
                "skipped": "schedule.skipped.precondition",
            },
            extra_fields=_words("ended_at error_detail exit_code"),
        ),
    )
}

_ALIASES: Final[Mapping[str, str]] = {
    "run": "session",
    **{entity.table: entity.name for entity in ENTITIES.values()},
}

SOURCES: Final = _words("executor agent admin system")

_REASONS_BY_SUBJECT: Final[Mapping[str, str]] = {
    "legacy": "imported",
    "run": (
        "started.ok completed.ok completed.finalize_error completed.gate_rejected completed.spawn_refused"
        " completed_empty.no_evidence failed.exit_nonzero failed.exception failed.provider_retryable"
        " failed.provider_nonretryable failed.missing_artifact failed.missing_cwd failed.cwd_inherit_refused"
        " failed.escalated failed.artifact_write failed.lease_attempts_exhausted failed.never_dispatched"
        " timed_out.deadline aborted.user cancelled.sigint cancelled.sigterm cancelled.system"
        " cancelled.orchestrator cancelled.manual_kill cancelled.force_kill cancelled.stale_auto paused.operator"
        " queued.lease_expired skipped.waiter_cap_exceeded skipped.duration_exceeds_lease"
    ),
    "session": (
        "stale.no_heartbeat orphaned.no_process zombie.stale_locks phantom.process_dead phantom.missing_artifacts"
        " reopened.by_resume"
    ),
    "play": (
        "pending.created pending.waiting_on_deps pending.ready blocked.invalid_deps blocked.dep_failed"
        " gate_failed.verdict escalated.gate_twice merged.ok"
    ),
    "show": "active.created blocked.no_ready_plays completed.final_gate completed.all_plays_merged aborted.operator",
    "schedule": (
        "queued.created fired.due skipped.precondition skipped.overlap skipped.missed_fire deferred.capacity"
        " budget.exhausted"
    ),
    "schedule_definition": (
        "created.observed enabled.observed deleted.observed disabled.unspecified disabled.max_runs"
        " disabled.budget_exhausted disabled.declared disabled.omitted disabled.manual"
    ),
    "team": "archived.operator",
    "dispatch": (
        "pending.enqueued pending.retry_backoff delivering.attempt delivered.transport_ok dead_letter.max_attempts"
        " dead_letter.ack_timeout expired.deadline acked.consumer"
    ),
}

REASON_CODES: Final[frozenset[str]] = frozenset(
    f"{subject}.{reason}" for subject, reasons in _REASONS_BY_SUBJECT.items() for reason in reasons.split()
)


def entity_named(entity_type: str) -> Entity | None:
    """The entity of a name, its alias (``run`` is a session) or its table's name; None for any other word."""
    return ENTITIES.get(_ALIASES.get(entity_type, entity_type))
