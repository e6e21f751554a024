"""Metrics for Prometheus, computed from SQL at each scrape. Times are seconds."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

import psycopg
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from sumaclock_dagster.clock.diagnosis import find_faults
from sumaclock_dagster.clock.faults import FaultKind
from sumaclock_dagster.db import Connection, connect, query
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.reports.clock_health import feel_pulse, oldest_transaction

EDGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
# Workers write outcomes some time after they were measured.
SETTLED = timedelta(seconds=10)
CONNECT_SECONDS = 5
TASK_STATUSES = ("active", "paused", "failed", "done")
OUTBOX_STATUSES = ("pending", "sending", "failed")
# Drift is counted over all jobs of both sides, which takes seconds for a hundred thousand.
DRIFT_SECONDS = 60.0

CountDrift = Callable[[], Mapping[str, int]]


def make_registry(app_url: str, cron_url: str, retention_days: int, count_drift: CountDrift) -> CollectorRegistry:
    """A registry with nothing but our metrics. count_drift: how much there is of each kind of drift, zeros included;
    it may raise SumaclockError."""
    registry = CollectorRegistry()
    registry.register(Metrics(app_url, cron_url, retention_days, count_drift))
    return registry


class Metrics(Collector):
    """A scrape opens a connection of its own and closes it; two at a time wait for each other.

    Ended runs are counted from the first scrape on: what ended since the last scrape is added. While the database is
    out of reach, all that there is is `sumaclock_up 0` and the clock's faults. Drift is counted once a minute.
    """

    def __init__(self, app_url: str, cron_url: str, retention_days: int, count_drift: CountDrift) -> None:
        self._app_url = app_url
        self._cron_url = cron_url
        self._retention_days = retention_days
        self._count_drift = count_drift
        self._drift: Mapping[str, int] = {}
        self._drift_at = -math.inf
        self._ended = Counter[tuple[str, str]]()
        self._counted_until: datetime | None = None
        self._lock = threading.Lock()

    def describe(self) -> list[Metric]:
        """Nothing: registering must not connect."""
        return []

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            try:
                with connect(self._app_url, "sumaclock metrics", connect_timeout=CONNECT_SECONDS) as conn:
                    conn.execute(query("limit_metrics_session"))
                    metrics = list(self._read(conn))
            except psycopg.Error:
                metrics = []
            faults = {fault.kind for fault in find_faults(self._app_url, self._cron_url)}
            drift = self._drift_now() if metrics else {}
        yield GaugeMetricFamily("sumaclock_up", "1 if the database answered, else 0 and nothing more.", bool(metrics))
        yield from metrics
        yield _labelled(
            "sumaclock_clock_fault",
            "1 for a fault of the clock that is there, by name; `sumaclock doctor` says the remedy.",
            ("fault",),
            ((kind.value, kind in faults) for kind in FaultKind),
        )
        if drift:
            yield _labelled("sumaclock_drift", "Differences between jobs and clock jobs.", ("kind",), drift.items())

    def _drift_now(self) -> Mapping[str, int]:
        """{} where it can't be counted."""
        if time.monotonic() - self._drift_at >= DRIFT_SECONDS:
            try:
                self._drift = self._count_drift()
            except (SumaclockError, psycopg.Error):
                self._drift = {}
            self._drift_at = time.monotonic()
        return self._drift

    def _read(self, conn: Connection) -> Iterator[Metric]:
        pulse = feel_pulse(conn, self._retention_days)
        oldest = oldest_transaction(conn)
        held_back = oldest.seconds if oldest else 0
        yield _labelled(
            "sumaclock_runs", "Runs that have not ended.", ("kind", "status"), conn.execute(query("count_open_runs"))
        )
        yield self._count_ended(conn, pulse.seen_at)
        yield from _histograms(conn)
        for name, says, value in (
            ("workers_live", "Workers whose session is there.", pulse.live_workers),
            ("backlog_runs", "Due runs that nobody has claimed.", pulse.pending),
            ("backlog_oldest_seconds", "How long the oldest of them has been due.", pulse.oldest_pending_seconds or 0),
            ("tasks_late", "Active tasks late by over 5 minutes.", pulse.late_tasks),
            ("queue_dead_rows", "Dead rows of cron_runs that vacuum has not cleaned yet.", pulse.dead_rows),
            ("oldest_transaction_seconds", "Age of the transaction that holds back vacuum most.", held_back),
        ):
            yield GaugeMetricFamily(f"sumaclock_{name}", says, value)
        if pulse.last_firing:
            yield GaugeMetricFamily(
                "sumaclock_last_firing_timestamp_seconds",
                "The newest minute that the clock fired in.",
                pulse.last_firing.timestamp(),
            )
        yield _by_status(conn, "sumaclock_tasks", "Tasks.", "count_tasks_by_status", TASK_STATUSES)
        yield _by_status(
            conn,
            "sumaclock_outbox_jobs",
            "Core-api jobs, without delivered ones.",
            "count_core_api_jobs",
            OUTBOX_STATUSES,
        )

    def _count_ended(self, conn: Connection, now: datetime) -> Metric:
        until = now - SETTLED
        after = self._counted_until or until
        if until > after:
            rows = conn.execute(query("count_ended_runs"), {"after": after, "until": until}).fetchall()
            self._ended.update({(kind, outcome): runs for kind, outcome, runs in rows})
        self._counted_until = max(after, until)
        return _labelled(
            "sumaclock_runs_ended",
            "Runs that ended since this exporter began to be scraped.",
            ("kind", "outcome"),
            ((*labels, runs) for labels, runs in self._ended.items()),
            CounterMetricFamily,
        )


def _histograms(conn: Connection) -> Iterator[Metric]:
    families = {
        "lateness": HistogramMetricFamily(
            "sumaclock_lateness_seconds",
            "Handler start minus the minute that was meant, of firings that ended within the last hour.",
            labels=["kind"],
        ),
        "duration": HistogramMetricFamily(
            "sumaclock_duration_seconds",
            "How long handlers took, of runs that ended within the last hour.",
            labels=["kind"],
        ),
    }
    for name, kind, bins, runs, seconds in conn.execute(query("fill_time_buckets"), {"edges": list(EDGES)}):
        counted = dict(zip(bins, runs, strict=True))
        at_most = accumulate(counted.get(number, 0) for number in range(len(EDGES) + 1))
        edges = (*(f"{edge:g}" for edge in EDGES), "+Inf")
        families[name].add_metric([kind], list(zip(edges, at_most, strict=True)), float(seconds))
    yield from families.values()


def _by_status(conn: Connection, name: str, says: str, statement: str, statuses: Sequence[str]) -> Metric:
    """With a zero for each status that nothing has, so that an alert can be written on it."""
    found = dict(conn.execute(query(statement)).fetchall())
    return _labelled(name, says, ("status",), ((status, found.get(status, 0)) for status in statuses))


def _labelled(name: str, says: str, labels: Sequence[str], rows: Any, family: Any = GaugeMetricFamily) -> Metric:
    """One sample a row: its labels, then its value."""
    metric: Metric = family(name, says, labels=list(labels))
    for *values, number in rows:
        metric.add_metric([str(value) for value in values], number)  # type: ignore[attr-defined]
    return metric
