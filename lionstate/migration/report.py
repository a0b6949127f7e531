"""What migration tells: the result of a stage, a step, a verification, and the status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lionstate.errors import BlockedCode, HeldReason
from lionstate.migration.control import Pause
from lionstate.migration.fence import FenceStatus
from lionstate.migration.lane import Elsewhere, Failing
from lionstate.migration.lease import Ownership
from lionstate.migration.orders import Order, Orders, Ready
from lionstate.migration.progress import Progress
from lionstate.migration.scrub_pass import ProofStatus
from lionstate.migration.throttle import SignalStatus

__all__ = [
    "BlockedProgression",
    "HotProgression",
    "MigrationStatus",
    "MigrationStep",
    "Stage",
    "StageOutcome",
    "StepTally",
    "StopReason",
    "ThrottleStatus",
    "VerificationOutcome",
    "VerificationResult",
]


class StageOutcome(StrEnum):
    """How one short transaction of migration ended."""

    ADMITTED = "admitted"
    COPIED = "copied"
    REMOVED = "removed"
    CUT_OVER = "cut_over"
    BLOCKED = "blocked"
    HELD = "held"
    # Another owner, a replacement or a delete came first: read again.
    MOVED = "moved"
    # Only the text of the value is another one: parse again.
    TEXT_CHANGED = "text_changed"
    # The rows that were found to be wrong are right under the lock: prove again.
    UNPROVED = "unproved"
    # A deleted progression whose parent row must stay while a session or branch points at it.
    REFERENCED = "referenced"
    # The cutover would hold the lock for longer than its budget.
    MISSED = "missed"
    PAUSED = "paused"
    # Another process has taken the lease of maintenance over.
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Stage:
    """The result of one stage.

    Attributes:
        count: Elements admitted, copied, removed or cut over.
        size_bytes: UTF-8 bytes of the ids copied.
        growth_bytes: What the item rows of a chunk made the store grow by.
        lock_seconds: From the lock to the last statement of a chunk or cutover.
        mark: The store's token for "nobody else has committed", where it has one.
        transactions: Explicit transactions begun in this process so far.
        value_compared: The value had to be compared under the lock.
    """

    outcome: StageOutcome
    count: int = 0
    size_bytes: int = 0
    code: BlockedCode | None = None
    held: HeldReason | None = None
    growth_bytes: int = 0
    lock_seconds: float = 0.0
    mark: object | None = None
    transactions: int = 0
    value_compared: bool = False


class StopReason(StrEnum):
    """Why a step ended: a closed set. Hitting a cap is not an error (ADR-0117 D5)."""

    DONE = "done"
    NOTHING_TO_DO = "nothing_to_do"
    CAP_ITEMS = "cap_items"
    CAP_BYTES = "cap_bytes"
    CAP_SECONDS = "cap_seconds"
    PAUSED = "paused"
    # The store is under load; see the throttle of the status. Never an error (design decision 25).
    THROTTLED = "throttled"
    # Another process migrates this store.
    NOT_OWNER = "not_owner"
    HELD = "held"
    BLOCKED = "blocked"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """What one ``step()`` did.

    Attributes:
        stop_reason: Why it ended.
        admitted: Progressions that entered ``dual``.
        admitted_items: Elements in them, to be copied.
        items: Elements copied.
        size_bytes: Their UTF-8 bytes.
        chunks: Transactions that copied.
        removed_items: Shadow rows of rolled back progressions removed, and rows of deleted ones.
        verified: Proofs of both representations that were made, by outcome (``match``, ``mismatch``).
        cut_over: Progressions that entered ``items``.
        blocked: Progressions blocked by this step, by code.
        held: Progressions that wait, by reason.
        text_retries: Proofs made again because only the text of a value had changed.
        lost_races: Stages that found another owner's work done, or what a proof had found not there any more.
        seconds: Of the whole step.
        chunk_seconds: Of the copying transactions, waiting in the queue included.
        proof_seconds: Of the proofs, outside every lock.
        cutover_lock_seconds: The longest hold of a cutover.
        chunk_lock_seconds: The longest hold of a chunk, COMMIT aside.
        growth_bytes: What the copied rows made the store grow by.
        sizing_seconds: Of noting sizes of values, which moves nothing.
    """

    stop_reason: StopReason
    admitted: int
    admitted_items: int
    items: int
    size_bytes: int
    chunks: int
    removed_items: int
    verified: Mapping[str, int]
    cut_over: int
    blocked: Mapping[str, int]
    held: Mapping[str, int]
    text_retries: int
    lost_races: int
    seconds: float
    chunk_seconds: float
    proof_seconds: float
    cutover_lock_seconds: float
    chunk_lock_seconds: float = 0.0
    growth_bytes: int = 0
    sizing_seconds: float = 0.0

    @property
    def did_work(self) -> bool:
        """Whether anything was written."""
        return bool(self.admitted or self.chunks or self.cut_over or self.removed_items or self.blocked)


@dataclass(slots=True)
class StepTally:
    """The counts of the running step; fields as in ``MigrationStep``."""

    admitted: int = 0
    admitted_items: int = 0
    items: int = 0
    size_bytes: int = 0
    chunks: int = 0
    removed_items: int = 0
    verified: Counter[str] = field(default_factory=Counter)
    cut_over: int = 0
    blocked: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    text_retries: int = 0
    lost_races: int = 0
    chunk_seconds: float = 0.0
    proof_seconds: float = 0.0
    cutover_lock_seconds: float = 0.0
    chunk_lock_seconds: float = 0.0
    growth_bytes: int = 0
    sizing_seconds: float = 0.0

    def add_chunk(self, stage: Stage, seconds: float) -> None:
        """Count a chunk that was copied in so many seconds, waiting in the queue included."""
        self.chunks += 1
        self.items += stage.count
        self.size_bytes += stage.size_bytes
        self.growth_bytes += stage.growth_bytes
        self.chunk_seconds += seconds
        self.chunk_lock_seconds = max(self.chunk_lock_seconds, stage.lock_seconds)

    def step(self, stop_reason: StopReason, seconds: float) -> MigrationStep:
        """Close the tally."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in ("verified", "blocked", "held"):
            values[name] = dict(values[name])
        found = MigrationStep(stop_reason=stop_reason, seconds=seconds, **values)
        if stop_reason is StopReason.DONE and not found.did_work:
            return MigrationStep(stop_reason=StopReason.NOTHING_TO_DO, seconds=seconds, **values)
        return found


class VerificationOutcome(StrEnum):
    """What ``verify()`` found."""

    MATCH = "match"
    MISMATCH = "mismatch"
    # Both representations agree as far as the copy, or a verification that was cut short, has come.
    INCOMPLETE = "incomplete"
    # There is one representation only; ``code`` says if it may be migrated.
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """One read-only verification; not the result of the artifact verifier.

    Attributes:
        progression_id: What was verified.
        phase: Its phase (``json`` without a state row).
        outcome: What was found.
        code: Why it differs or may not be migrated; None when nothing is wrong.
        json_count: Elements of the JSON value; None when it is unreadable.
        items_count: Item rows compared.
        json_digest: Digest of what was compared on the JSON side.
        items_digest: Digest of what was compared on the items side.
        first_difference: The lowest ordinal at which they were seen to differ; None if none was.
        next_ordinal: The allocator; None without a state row.
        token: Where a verification that was cut short goes on; None when it came to its end. Beside a token, outcome
            and code are of the ``items_count`` rows that were read: never ``match``, and ``mismatch`` is certain, but
            the rows that were not read may change its code.
    """

    progression_id: str
    phase: str
    outcome: VerificationOutcome
    code: str | None = None
    json_count: int | None = None
    items_count: int | None = None
    json_digest: str | None = None
    items_digest: str | None = None
    first_difference: int | None = None
    next_ordinal: int | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True)
class HotProgression:
    """A progression whose JSON still takes appends: how many were seen, and its size when it was measured."""

    progression_id: str
    appends: int
    size_bytes: int | None
    measured_at: float | None


@dataclass(frozen=True, slots=True)
class BlockedProgression:
    """One blocked progression."""

    progression_id: str
    code: str
    authority: str
    next_ordinal: int
    compat_read: bool
    updated_at: float


@dataclass(frozen=True, slots=True)
class ThrottleStatus:
    """Why migration waits for the store, in the process that is asked (design decisions 24, 25).

    Attributes:
        throttled: Whether a signal is tripped.
        signals: Every signal that this process knows, with value, limit and, where it is tripped, age.
        waited_seconds: How long a lane that wants to work has been throttled without progress; None if it has not.
        starved: That is longer than ``starved_after_seconds``.
        throttled_seconds: How long each signal has been tripped so far, since this process began.
        chunk_items: Elements of the next chunk that copies.
        errors: Parity errors and failed steps that count for the error budget.
    """

    throttled: bool = False
    signals: tuple[SignalStatus, ...] = ()
    waited_seconds: float | None = None
    starved: bool = False
    throttled_seconds: Mapping[str, float] = field(default_factory=dict)
    chunk_items: int = 0
    errors: int = 0

    @property
    def tripped(self) -> tuple[SignalStatus, ...]:
        """The signals that migration waits for."""
        return tuple(one for one in self.signals if one.tripped)


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """The state of a migration; holds no message ids.

    Attributes:
        phases: Progressions by phase; ``json`` counts those without a state row too.
        remaining_items: Elements still to be copied; None while progressions are in ``json``, whose elements nobody
            has counted yet (design decision 19).
        remaining_admitted_items: Those of them that are in ``dual``, whose prefixes were counted at admission.
        oldest_updated_at: Oldest change of state of a progression that is in ``dual``; None if none is.
        blocked: Blocked progressions by code.
        held: Progressions that wait, by reason.
        hottest: Progressions with a JSON authority by appends observed, most first.
        pause: The pause in force.
        accept_foreign_writers: Whether cutover goes on although another program writes.
        foreign_sessions: Sessions that another program seems to write, at most 100; None if not looked at.
        foreign_progressions: Dual progressions that another program has written since lionstate last did, at most
            100; always 0 where rows carry no versions (SQLite).
        foreign_sighted_at: When such a write was last found, epoch seconds; None if not in the last 24 hours.
        compat_read_everywhere: The global switch.
        sizes_measured: JSON progressions whose size is known, the oldest of them measured at ``sizes_measured_at``.
        completion: Share of migratable progressions that are in ``items``, 0 to 1; 1 exactly when none is left.
        measured_at: When this was read, epoch seconds.
        owner: Which process migrates the store.
        fence: Whether programs that know only the JSON column are refused after a cutover, and what follows from that.
        orders: What the operator ordered: cutovers by command only, and for single progressions.
        ready: Progressions that are proved and wait for a command.
        progress: How far it is, and how long it will take.
        maintenance_enabled: What the operator has persisted with ``enable`` or ``disable``; None leaves it to the
            daemon's settings.
        maintenance_order: Who persisted that, why and when; None when nobody did.
        throttle: Why it waits for the store, as the process that is asked knows.
        proof: What was proved again since the cutovers.
        failing: What of migration fails, attempt after attempt, as the process that is asked knows.
        elsewhere: What another process that steps this store waits for; None when none said so lately.
        automatic: Whether the daemon that is asked migrates by itself: what the operator has persisted, else its
            settings; None when no daemon is asked.
        not_ready: Why the daemon that is asked is not ready, as its ``/readyz`` says (``store_moved``, ``disk_full``);
            None when it is, or no daemon is asked.
    """

    phases: Mapping[str, int]
    remaining_items: int | None
    remaining_admitted_items: int
    oldest_updated_at: float | None
    blocked: Mapping[str, int]
    held: Mapping[str, int]
    hottest: tuple[HotProgression, ...]
    pause: Pause | None
    accept_foreign_writers: bool
    foreign_sessions: int | None
    foreign_progressions: int
    foreign_sighted_at: float | None
    compat_read_everywhere: bool
    sizes_measured: int
    sizes_measured_at: float | None
    completion: float
    measured_at: float
    owner: Ownership
    fence: FenceStatus
    orders: Orders
    ready: Ready
    progress: Progress
    maintenance_enabled: bool | None = None
    throttle: ThrottleStatus = ThrottleStatus()
    proof: ProofStatus = field(default_factory=ProofStatus)
    failing: tuple[Failing, ...] = ()
    elsewhere: Elsewhere | None = None
    automatic: bool | None = None
    not_ready: str | None = None
    maintenance_order: Order | None = None
