"""Every metric of the daemon: names, closed label sets, and the observer that the engine and the queue call.

Held in memory in a registry of its own; the exposition never looks at the store.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from lionstate import __version__
from lionstate.codes import ThrottleSignal
from lionstate.engine.connections import Connections
from lionstate.errors import BlockedCode, HeldReason
from lionstate.migration import MigrationStatus, MigrationStep, ScrubSlice, StopReason, ThrottleStatus

from .history import History
from .lane_histogram import LaneHistogram

__all__ = ["PHASES", "Metrics", "held_of"]

_LANES = ("request", "maintenance")
_OUTCOMES = ("written", "not_written", "overloaded", "deadline_exceeded", "unknown", "read", "failed", "refused")
_MODES = ("passive", "full", "restart", "truncate")
_CHECKPOINT_OUTCOMES = ("complete", "partial", "busy", "error")
PHASES = ("json", "dual", "items", "blocked")
_CHUNK_OUTCOMES = ("copied", "stale", "busy", "blocked", "failed")
_PARITY_OUTCOMES = ("match", "mismatch", "moved", "dropped")
_SCRUB_OUTCOMES = ("match", "mismatch")
_AUTHORITIES = ("json", "items", "none")
_PAUSED = ("disabled", "operator", "error_budget", "stopped", "owner", "pressure")
_SERVICES = ("maintenance", "delivery")
_DELIVERIES = ("delivered", "sent", "retried", "dead_letter", "moot")
OTHER = "other"
_UNREAD = float("nan")
# Doubles the number of series and tells nothing that a restart does not; the switch is per process.
_disable_created: Callable[[], None] = disable_created_metrics

_FAST = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_SLOW = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The registry, its metrics, and the observer methods that feed them."""

    def __init__(self, operations: Iterable[str] = ()) -> None:
        """Create all series at zero.

        Args:
            operations: The closed set of operation names.
        """
        _disable_created()
        self.registry = CollectorRegistry()
        self.history = History()
        self._operations = frozenset(operations)
        # Found once: to look one up by its labels costs twice what it costs to count.
        self._counters: dict[tuple[str, str], Counter] = {}
        # Called on the engine's threads.
        self.on_foreign_commit: list[Callable[[], None]] = []
        # Called on the event loop: progression, generation, what was answered; and the progression.
        self.on_dual_read: list[Callable[[str, int, Sequence[Any]], None]] = []
        self.on_doubt: list[Callable[[str], None]] = []
        self._define_service()
        self._define_write()
        self._define_wal()
        self._define_migration()
        self._define_scrub()
        self._define_delivery()

    def _counter(self, name: str, text: str, **labels: Iterable[str]) -> Counter:
        metric = Counter(name, text, tuple(labels), registry=self.registry)
        _initialise(metric, list(labels.values()))
        return metric

    def _gauge(self, name: str, text: str, **labels: Iterable[str]) -> Gauge:
        metric = Gauge(name, text, tuple(labels), registry=self.registry)
        _initialise(metric, list(labels.values()))
        return metric

    def _histogram(self, name: str, text: str, buckets: Iterable[float] = _FAST, **labels: Iterable[str]) -> Histogram:
        metric = Histogram(name, text, tuple(labels), registry=self.registry, buckets=tuple(buckets))
        _initialise(metric, list(labels.values()))
        return metric

    def _define_service(self) -> None:
        self._gauge("lionstate_build_info", "Version of lionstate.", version=[__version__]).labels(__version__).set(1)
        self.up = self._gauge("lionstate_up", "1 while the store is open, answers and takes writes: what /readyz says.")
        self.sqlite_info = Gauge(
            "lionstate_sqlite_info",
            "SQLite library in use; affected says whether it has the WAL-reset race.",
            ("version", "affected"),
            registry=self.registry,
        )
        self.service_degraded = self._gauge(
            "lionstate_service_degraded", "1 while a part of the daemon does not run.", service=_SERVICES
        )
        self.followers = self._gauge("lionstate_followers", "Requests that wait for items of a progression.")
        self.pool_connections = self._gauge(
            "lionstate_pool_connections", "Connections to the database.", state=Connections._fields
        )

    def _define_write(self) -> None:
        gauge, histogram, counter = self._gauge, self._histogram, self._counter
        self.depth = gauge("lionstate_write_queue_depth", "Operations that wait for the writer.")
        self.bytes = gauge("lionstate_write_queue_bytes", "Bytes of the operations that wait.")
        self.age = gauge("lionstate_write_queue_age_seconds", "Age of the oldest operation that waits.")
        self.waits = histogram("lionstate_write_queue_wait_seconds", "Time an operation waited.")
        self.batches = histogram("lionstate_write_batch_operations", "Operations of a transaction.", _SIZES)
        waits = histogram("lionstate_write_lock_wait_seconds", "Time to obtain the write lock.")
        self.lock_waits = LaneHistogram.of_one(waits, _LANES)
        holds = histogram("lionstate_write_lock_hold_seconds", "Time the lock was held.", lane=_LANES)
        self.lock_holds = LaneHistogram.by_label(holds, _LANES)
        self.commits = LaneHistogram.of_one(histogram("lionstate_commit_seconds", "Time of COMMIT."), _LANES)
        self.pauses = counter("lionstate_write_pause_seconds_total", "Time the lock was left to others.")
        self.foreign = counter("lionstate_foreign_commits_total", "Looks that found commits of others.")
        self.operations = counter(
            "lionstate_operations_total",
            "Operations by outcome.",
            operation=[*sorted(self._operations), OTHER],
            outcome=[*_OUTCOMES, OTHER],
        )

    def _define_wal(self) -> None:
        self.wal_frames = self._gauge(
            "lionstate_wal_frames", "Frames of the write-ahead log.", state=("log", "checkpointed")
        )
        self.wal_bytes = self._gauge("lionstate_wal_bytes", "Size of the write-ahead log.")
        self.wal_growth = self._counter("lionstate_wal_bytes_written_total", "Bytes written to the log.")
        self.checkpoint_times = self._histogram("lionstate_checkpoint_seconds", "Time of a checkpoint.", _SLOW)
        self.checkpoints = self._counter(
            "lionstate_checkpoints_total",
            "Checkpoints by mode and outcome.",
            mode=[*_MODES, OTHER],
            outcome=[*_CHECKPOINT_OUTCOMES, OTHER],
        )

    def _define_migration(self) -> None:
        gauge, histogram, counter = self._gauge, self._histogram, self._counter
        self.progressions = gauge("lionstate_migration_progressions", "Progressions.", phase=PHASES)
        self.remaining_items = gauge(
            "lionstate_migration_remaining_items", "Items of admitted progressions still to copy."
        )
        self.step_times = histogram("lionstate_migration_step_seconds", "Time of a step.", _SLOW)
        self.items = counter("lionstate_migration_items_total", "Items copied.")
        self.migrated_bytes = counter("lionstate_migration_bytes_total", "Bytes copied.")
        self.chunks = counter("lionstate_migration_chunks_total", "Chunks.", outcome=[*_CHUNK_OUTCOMES, OTHER])
        self.parity_checks = counter(
            "lionstate_migration_parity_checks_total",
            "Proofs before a cutover, and reads in dual that were compared afterwards.",
            outcome=_PARITY_OUTCOMES,
        )
        self.blocked = gauge("lionstate_migration_blocked", "Blocked progressions.", code=list(BlockedCode))
        self.held = gauge("lionstate_migration_held", "Held progressions.", reason=list(HeldReason))
        self.cutover_locks = histogram("lionstate_migration_cutover_lock_seconds", "Lock hold of a cutover.")
        self.paused = gauge("lionstate_migration_paused", "1 for each reason to wait.", reason=_PAUSED)
        self.starved = gauge("lionstate_migration_starved", "1 while migration is throttled without any progress.")
        self.throttle_values = gauge(
            "lionstate_migration_throttle_value",
            "Signal as last read; NaN if unread.",
            signal=list(ThrottleSignal),
        )
        self.throttle_limits = gauge(
            "lionstate_migration_throttle_limit",
            "Where the signal throttles migration; NaN if unread.",
            signal=list(ThrottleSignal),
        )
        # Whether what was read last is too old to count; asked by every scrape.
        self.is_stale: Callable[[], bool] = lambda: False
        self._signals: dict[str, float] = {}
        for signal in ThrottleSignal:
            self.throttle_values.labels(signal).set_function(functools.partial(self._signal, signal))
            self.throttle_limits.labels(signal).set(_UNREAD)
        self.throttled_seconds = counter(
            "lionstate_migration_throttled_seconds_total", "Time the signal was tripped.", signal=list(ThrottleSignal)
        )
        self._throttled: dict[str, float] = {}
        self.owner = gauge("lionstate_migration_owner", "1 if this process migrates the store.")
        self.blocked_appends = counter(
            "lionstate_blocked_appends_total", "Appends to blocked progressions.", authority=_AUTHORITIES
        )
        self.compat_reads = counter("lionstate_compat_reads_total", "Reads joined from both representations.")

    def _define_scrub(self) -> None:
        self.scrub_items = self._counter(
            "lionstate_scrub_items_total", "Item rows compared again after their cutover.", outcome=_SCRUB_OUTCOMES
        )
        self.scrub_coverage = self._gauge(
            "lionstate_scrub_coverage_ratio",
            "Share of the progressions that the running pass of the scrubber has done.",
        )
        self.scrub_last_pass = self._gauge(
            "lionstate_scrub_last_pass_timestamp_seconds", "End of the last whole pass of the scrubber; 0: none yet."
        )

    def _define_delivery(self) -> None:
        self.deliveries = self._counter(
            "lionstate_deliveries_total", "Attempts at delivery by what came of them.", outcome=_DELIVERIES
        )
        self.delivery_times = self._histogram("lionstate_delivery_seconds", "Time of an attempt at delivery.", _SLOW)
        self.deliveries_running = self._gauge("lionstate_deliveries_running", "Attempts at delivery under way.")

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """The text of all metrics and its content type, negotiated from an Accept header."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self.registry), content_type

    def set_sqlite(self, version: str, *, affected: bool) -> None:
        """Name the one SQLite library of this process."""
        self.sqlite_info.clear()
        self.sqlite_info.labels(version, "true" if affected else "false").set(1)

    def watch_connections(self, count: Callable[[], Connections]) -> None:
        """Show what `count` says, which is asked by every scrape and must answer from memory."""
        for state in Connections._fields:
            self.pool_connections.labels(state).set_function(functools.partial(_of, count, state))

    def set_paused(self, reasons: Iterable[str]) -> None:
        """Set which reasons hold maintenance back; all others become 0."""
        given = frozenset(reasons)
        for reason in _PAUSED:
            self.paused.labels(reason).set(reason in given)

    # The observer protocol of the engine and the queue.

    def migration_step(self, step: MigrationStep) -> None:
        """Count what one migration step did."""
        self.step_times.observe(step.seconds)
        self.items.inc(step.items)
        self.migrated_bytes.inc(step.size_bytes)
        self.chunks.labels("copied").inc(step.chunks)
        if step.lost_races:
            self.chunks.labels("stale").inc(step.lost_races)
        if step.stop_reason is StopReason.BUSY:
            self.chunks.labels("busy").inc()
        for outcome, count in step.verified.items():
            self.parity_checks.labels(outcome).inc(count)
        if step.cut_over:
            self.cutover_locks.observe(step.cutover_lock_seconds)

    def migration_status(self, status: MigrationStatus) -> None:
        """Set the gauges of phases, remaining items, blocked and held."""
        for phase in PHASES:
            self.progressions.labels(phase).set(status.phases.get(phase, 0))
        self.remaining_items.set(status.remaining_admitted_items)
        for code in BlockedCode:
            self.blocked.labels(code).set(status.blocked.get(code, 0))
        held = held_of(status)
        for reason in HeldReason:
            self.held.labels(reason).set(held.get(reason, 0))
        self._throttle(status.throttle)
        self.scrub_coverage.set(status.proof.coverage)
        self.scrub_last_pass.set(status.proof.last_pass_at or 0.0)

    def _throttle(self, throttle: ThrottleStatus) -> None:
        self.starved.set(throttle.starved)
        self._signals = {one.signal: _UNREAD if one.value is None else one.value for one in throttle.signals}
        for one in throttle.signals:
            self.throttle_limits.labels(one.signal).set(one.limit)
        for signal, seconds in throttle.throttled_seconds.items():
            self.throttled_seconds.labels(signal).inc(max(0.0, seconds - self._throttled.get(signal, 0.0)))
        self._throttled = dict(throttle.throttled_seconds)

    def _signal(self, signal: str) -> float:
        return _UNREAD if self.is_stale() else self._signals.get(signal, _UNREAD)

    def scrub_slice(self, found: ScrubSlice) -> None:
        """Count what one slice of the scrubber compared."""
        for outcome, count in found.items.items():
            self.scrub_items.labels(outcome).inc(count)

    def shadow_reads(self, outcomes: Mapping[str, int]) -> None:
        """Reads in dual were compared with the rows."""
        for outcome, count in outcomes.items():
            self.parity_checks.labels(outcome).inc(count)

    def delivery(self, status: str | None, *, failed: bool, seconds: float) -> None:
        """An attempt ended and left its dispatch in ``status``; None: it had been acknowledged or claimed anew."""
        outcome = {"pending": "retried" if failed else "sent", None: "moot"}.get(status, status)
        self.deliveries.labels(outcome).inc()
        self.delivery_times.observe(seconds)

    def lock_wait(self, lane: str, seconds: float) -> None:
        """The write lock was obtained after `seconds` on behalf of `lane`, which the exemplar tells."""
        self.history.lock_wait(seconds)
        self.lock_waits.observe(lane, seconds)

    def lock_hold(self, lane: str, seconds: float) -> None:
        """The write lock was held for `seconds` on behalf of `lane`."""
        self.lock_holds.observe(lane, seconds)

    def commit(self, lane: str, seconds: float) -> None:
        """COMMIT took `seconds` on behalf of `lane`, which the exemplar tells."""
        self.commits.observe(lane, seconds)

    def pause(self, seconds: float) -> None:
        """The lock was left to other processes for `seconds`."""
        self.pauses.inc(seconds)

    def checkpoint(self, mode: str, outcome: str, seconds: float) -> None:
        """A checkpoint ended."""
        mode = mode.lower()
        self.checkpoints.labels(
            mode if mode in _MODES else OTHER, outcome if outcome in _CHECKPOINT_OUTCOMES else OTHER
        ).inc()
        self.checkpoint_times.observe(seconds)

    def wal(self, log_frames: int, checkpointed_frames: int, wal_bytes: int) -> None:
        """The log was looked at."""
        self.wal_frames.labels("log").set(log_frames)
        self.wal_frames.labels("checkpointed").set(checkpointed_frames)
        self.wal_bytes.set(wal_bytes)
        self.history.wal(max(0, log_frames - checkpointed_frames))

    def wal_written(self, count: int) -> None:
        """So many bytes went into the log."""
        self.wal_growth.inc(count)

    def batch(self, operations: int) -> None:
        """A transaction with so many operations ended."""
        self.batches.observe(operations)

    def queue_waits(self, seconds: Iterable[float]) -> None:
        """Operations were taken after waiting for these times."""
        for wait in seconds:
            self.waits.observe(wait)

    def queue_depth(self, operations: int, size_bytes: int, oldest_age_seconds: float) -> None:
        """The queue changed."""
        self.depth.set(operations)
        self.bytes.set(size_bytes)
        self.age.set(oldest_age_seconds)

    def operation(self, name: str, outcome: str, count: int = 1) -> None:
        """So many operations ended; what is not in the closed sets counts as `other`."""
        counter = self._counters.get((name, outcome))
        if counter is None:
            is_known = name in self._operations and outcome in _OUTCOMES
            counter = self.operations.labels(
                name if name in self._operations else OTHER, outcome if outcome in _OUTCOMES else OTHER
            )
            if is_known:
                self._counters[name, outcome] = counter
        counter.inc(count)

    def foreign_commit(self) -> None:
        """Another process committed since the last look."""
        self.foreign.inc()
        for listener in self.on_foreign_commit:
            listener()

    def blocked_append(self, authority: str) -> None:
        """An append met a blocked progression."""
        self.blocked_appends.labels(authority if authority in _AUTHORITIES else "none").inc()

    def compat_read(self) -> None:
        """A read was joined from both representations."""
        self.compat_reads.inc()

    def dual_read(self, progression_id: str, generation: int, found: Sequence[Any]) -> None:
        """A read was answered from the JSON of a dual progression."""
        for listener in self.on_dual_read:
            listener(progression_id, generation, found)

    def doubted(self, progression_id: str) -> None:
        """A read failed closed."""
        for listener in self.on_doubt:
            listener(progression_id)


def held_of(status: MigrationStatus) -> dict[str, int]:
    """Progressions that wait, by reason; those that wait for a command to cut over are held by the operator."""
    held = dict(status.held)
    held[HeldReason.OPERATOR] = held.get(HeldReason.OPERATOR, 0) + status.ready.waiting
    return held


def _of(count: Callable[[], Connections], state: str) -> float:
    return float(getattr(count(), state))


def _initialise(metric: Counter | Gauge | Histogram, sets: list[Iterable[str]]) -> None:
    combinations: list[tuple[str, ...]] = [()]
    for values in sets:
        combinations = [(*head, str(value)) for head in combinations for value in values]
    for combination in combinations:
        if combination:
            metric.labels(*combination)
