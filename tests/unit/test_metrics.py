"""Metrics: closed label sets, a constant number of series, and exposition formats."""

from __future__ import annotations

import math
from types import SimpleNamespace

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from lionstate.migration import SignalStatus, ThrottleStatus
from lionstated.lane_histogram import LaneHistogram
from lionstated.metrics import Metrics


def series(metrics: Metrics) -> int:
    return sum(not line.startswith(b"#") for line in metrics.exposition()[0].splitlines())


def test_series_are_there_at_zero_and_never_grow() -> None:
    metrics = Metrics(["append_to_progression"])
    metrics.set_sqlite("3.53.4", affected=False)
    before = series(metrics)
    for index in range(2000):
        metrics.operation(f"made_up_{index}", f"outcome_{index}")
        metrics.checkpoint(f"mode{index}", f"error text {index}", 0.1)
        metrics.lock_hold(f"lane{index}", 0.1)
        metrics.blocked_append(f"authority{index}")
        metrics.set_paused([f"reason{index}"])
        metrics.set_sqlite(f"3.{index}", affected=True)
    assert series(metrics) == before
    text = metrics.exposition()[0].decode()
    assert 'lionstate_operations_total{operation="other",outcome="other"} 2000.0' in text
    assert 'lionstate_operations_total{operation="append_to_progression",outcome="written"} 0.0' in text
    assert "_created" not in text


def test_the_observer_feeds_them() -> None:
    metrics = Metrics(["f"])
    metrics.lock_wait("request", 0.1)
    metrics.lock_hold("maintenance", 0.2)
    metrics.commit("maintenance", 0.1)
    metrics.pause(0.11)
    metrics.checkpoint("PASSIVE", "complete", 0.1)
    metrics.wal(10, 4, 4096)
    metrics.wal_written(100)
    metrics.batch(3)
    metrics.queue_waits([0.1])
    metrics.queue_depth(5, 50, 0.5)
    metrics.operation("f", "written")
    metrics.foreign_commit()
    metrics.blocked_append("items")
    metrics.compat_read()
    metrics.shadow_reads({"dropped": 2})
    metrics.set_paused(["operator"])
    text = metrics.exposition()[0].decode()
    for line in (
        "lionstate_write_lock_wait_seconds_count 1.0",
        'lionstate_write_lock_hold_seconds_count{lane="maintenance"} 1.0',
        "lionstate_commit_seconds_count 1.0",
        "lionstate_write_pause_seconds_total 0.11",
        'lionstate_checkpoints_total{mode="passive",outcome="complete"} 1.0',
        'lionstate_wal_frames{state="checkpointed"} 4.0',
        "lionstate_wal_bytes 4096.0",
        "lionstate_wal_bytes_written_total 100.0",
        "lionstate_write_batch_operations_sum 3.0",
        "lionstate_write_queue_age_seconds 0.5",
        'lionstate_operations_total{operation="f",outcome="written"} 1.0',
        "lionstate_foreign_commits_total 1.0",
        'lionstate_migration_parity_checks_total{outcome="dropped"} 2.0',
        'lionstate_blocked_appends_total{authority="items"} 1.0',
        "lionstate_compat_reads_total 1.0",
        'lionstate_migration_paused{reason="operator"} 1.0',
    ):
        assert line + "\n" in text


def test_exemplars_tell_the_lane_of_locks_and_commits() -> None:
    """In OpenMetrics only: the older text format has none, and a scraper of it would refuse the whole body."""
    metrics = Metrics()
    metrics.lock_wait("request", 0.3)
    metrics.lock_hold("maintenance", 0.3)
    metrics.commit("made up", 0.3)
    text, content_type = metrics.exposition("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            if sample.exemplar is not None:
                found[sample.name] = (sample.exemplar.labels, sample.exemplar.value)
    assert {
        "lionstate_write_lock_wait_seconds_bucket": ({"lane": "request"}, 0.3),
        "lionstate_write_lock_hold_seconds_bucket": ({"lane": "maintenance"}, 0.3),
        "lionstate_commit_seconds_bucket": ({"lane": "request"}, 0.3),
    } == found
    assert b" # {" not in metrics.exposition()[0]


def test_a_signal_that_is_unread_or_old_is_nan() -> None:
    """Decision 24: 0 would say that all is well."""
    metrics = Metrics()

    def told(what: str, signal: str) -> float:
        value = metrics.registry.get_sample_value(f"lionstate_migration_throttle_{what}", {"signal": signal})
        assert value is not None
        return value

    assert math.isnan(told("value", "wal_frames"))
    assert math.isnan(told("limit", "wal_frames"))
    metrics._throttle(ThrottleStatus(signals=(SignalStatus("queue_depth", 3.0, 9.0, False),)))
    assert (3.0, 9.0) == (told("value", "queue_depth"), told("limit", "queue_depth"))
    assert math.isnan(told("value", "wal_frames"))
    metrics.is_stale = lambda: True
    assert math.isnan(told("value", "queue_depth"))


def test_exemplars_are_of_what_is_slow_and_of_one_a_second() -> None:
    """To make one of each observation took twice as long as all else that is noted of a transaction."""
    now, seen = [0.0], []
    histogram = SimpleNamespace(observe=lambda *given: seen.append(given))
    lanes = LaneHistogram(dict.fromkeys(("request", "maintenance"), histogram), clock=lambda: now[0])  # type: ignore[arg-type]
    for at, lane, seconds in (
        (0.0, "request", 0.001),
        (0.5, "request", 0.001),
        (0.6, "maintenance", 0.001),
        (0.7, "request", 0.006),
        (1.6, "made up", 0.001),
        (1.8, "request", 0.001),
    ):
        now[0] = at
        lanes.observe(lane, seconds)
    lane_of = [given[1]["lane"] if len(given) > 1 else None for given in seen]
    assert ["request", None, "maintenance", "request", None, "request"] == lane_of
