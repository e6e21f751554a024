"""Reports of failed runs: which runs they show, how they count them, and that the picture can be read."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from uuid import UUID, uuid4

import matplotlib.image
import pandas as pd
import pytest

from sumaclock_dagster.db import Connection
from sumaclock_dagster.reports.changes import Seen, see, worth_reporting
from sumaclock_dagster.reports.failures import failures_by_hour, kinds_without_handler, recent_failures
from sumaclock_dagster.reports.pictures import draw_failure_heat, draw_failures


def add_job(app: Connection, kind: str, *, organization: str = "acme", enabled: bool = True) -> UUID:
    row = app.execute(
        "insert into sumaclock.cron_jobs (kind, organization_id, user_id, schedule, enabled)"
        " values (%s, %s, 'ana', '* * * * *', %s) returning id",
        [kind, organization, enabled],
    ).fetchone()
    assert row is not None
    return UUID(str(row[0]))


def add_run(app: Connection, job: UUID, status: str, ago: str, error: str | None = None) -> int:
    row = app.execute(
        "insert into sumaclock.cron_runs"
        " (job_id, status, scheduled_at, finished_at, error, attempts, claimed_by, dagster_run_id)"
        " values (%s, %s, now() - %s::interval, now() - %s::interval, %s, 1, 1, %s) returning id",
        [job, status, ago, ago, error, uuid4()],
    ).fetchone()
    assert row is not None
    return int(row[0])


def test_only_failures_of_the_last_day_are_listed_newest_first(app: Connection) -> None:
    job = add_job(app, "invoice")
    add_run(app, job, "failed", "25 hours", "too old")
    older = add_run(app, job, "failed", "2 hours", "ValueError: no such invoice\n\nTraceback: 40 lines")
    newer = add_run(app, job, "failed", "1 minute", "x" * 5000)
    add_run(app, job, "done", "1 minute")
    add_run(app, job, "skipped", "1 minute", "paused")

    failures = recent_failures(app)

    assert list(failures["run_id"]) == [newer, older]
    assert failures.iloc[1]["error"] == "ValueError: no such invoice"
    assert len(failures.iloc[0]["error"]) == 300
    assert set(failures["organization_id"]) == {"acme"}
    assert all(isinstance(run, UUID) for run in failures["dagster_run_id"])


def test_failures_are_counted_by_hour_and_kind_with_every_empty_hour(app: Connection) -> None:
    invoice, mail = add_job(app, "invoice"), add_job(app, "mail")
    for ago in ("5 hours", "5 hours", "1 minute"):
        add_run(app, invoice, "failed", ago, "E")
    add_run(app, mail, "failed", "1 minute", "E")

    by_hour = failures_by_hour(app)

    assert len(by_hour) == 25, "24 hours touch 25 full hours"
    assert by_hour.sum().to_dict() == {"invoice": 3, "mail": 1}
    assert by_hour["invoice"].max() == 2
    assert str(by_hour.index.tz) in ("UTC", "datetime.timezone.utc")
    assert all(hour.minute == hour.second == 0 for hour in by_hour.index)


def test_without_failures_there_are_25_hours_and_no_kinds(app: Connection) -> None:
    by_hour = failures_by_hour(app)
    assert by_hour.shape == (25, 0)
    assert list(recent_failures(app).columns)[:2] == ["run_id", "kind"]


def test_kinds_without_handler_are_those_of_enabled_jobs_and_of_failed_runs(app: Connection) -> None:
    add_job(app, "known")
    add_job(app, "wanted")
    add_job(app, "paused", enabled=False)
    add_run(app, add_job(app, "gone", enabled=False), "failed", "1 hour", "No handler for kind 'gone'")

    missing = kinds_without_handler(app, ["known"])

    assert missing.to_dict("records") == [
        {"kind": "gone", "enabled_jobs": 0, "failed_runs": 1},
        {"kind": "wanted", "enabled_jobs": 1, "failed_runs": 0},
    ]
    assert kinds_without_handler(app, ["known", "wanted", "gone"]).empty


def test_what_is_seen_changes_with_failures_and_handlers_only(app: Connection) -> None:
    job = add_job(app, "invoice")
    before = see(app, ["invoice"])
    add_run(app, job, "done", "1 minute")
    assert replace(see(app, ["invoice"]), seen_at=before.seen_at) == before
    add_run(app, job, "failed", "1 minute", "E")
    after = see(app, ["invoice"])
    assert (after.failed, after.missing) == (1, ())
    assert after.newest != before.newest
    assert see(app, []).missing == ("invoice",)


CALM = Seen(0, "", (), 1000.0)
FAILING = Seen(3, "10:00", (), 1000.0)


@pytest.mark.parametrize(
    ("now", "reported", "worth"),
    [
        (CALM, None, True),
        (CALM, CALM, False),
        (FAILING, CALM, True),
        (CALM, FAILING, True),
        (replace(FAILING, failed=4, seen_at=1060.0), FAILING, False),
        (replace(FAILING, failed=4, seen_at=2800.0), FAILING, True),
        (replace(FAILING, seen_at=9999.0), FAILING, False),
        (replace(FAILING, missing=("x",), seen_at=1060.0), FAILING, True),
    ],
)
def test_when_a_report_is_worth_making_again(now: Seen, reported: Seen | None, worth: bool) -> None:
    assert worth_reporting(now, reported) is worth


@pytest.mark.parametrize("kinds", [0, 1, 3, 30])
def test_the_picture_is_as_wide_as_the_ui_shows_and_draws_every_count(kinds: int) -> None:
    hours = pd.date_range("2026-01-01", periods=25, freq="h", tz="UTC", name="hour")
    by_hour = pd.DataFrame({f"kind_{n}": [n + 1, *([0] * 24)] for n in range(kinds)}, index=hours, dtype="int64")

    png = draw_failures(by_hour)

    assert png.startswith(b"\x89PNG")
    assert len(png) < 100_000, "it travels inside an event"
    pixels = matplotlib.image.imread(BytesIO(png))
    assert pixels.shape[:2] == (380, 900)
    assert (pixels[..., :3].min(axis=2) < 0.5).any(), "something is drawn"


@pytest.mark.parametrize(("kinds", "height"), [(0, 260), (1, 260), (8, 410), (30, 440)])
def test_the_heat_map_is_as_high_as_its_kinds(kinds: int, height: int) -> None:
    hours = pd.date_range("2026-01-01 17:00", periods=169, freq="h", tz="UTC", name="hour")
    rows = {f"kind_{n}_with_a_long_name": [0] * 100 + [10**n % 1_000_003] + [0] * 68 for n in range(kinds)}
    by_hour = pd.DataFrame(rows, index=hours, dtype="int64")

    png = draw_failure_heat(by_hour)

    assert len(png) < 100_000, "it travels inside an event"
    pixels = matplotlib.image.imread(BytesIO(png))
    assert pixels.shape[:2] == (height, 900)
    red = (pixels[..., 0] > 0.5) & (pixels[..., 2] < 0.3)
    assert red.any() == (kinds > 0), "cells are coloured where something failed"
