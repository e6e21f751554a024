"""What people see in Dagster's UI: a real browser on a whole `sumaclock up`, with its pg_cron, daemon and workers."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from playwright.sync_api import expect

from sumaclock_dagster.clock.jobs import create_job
from sumaclock_dagster.queue.runs import fire
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.records import TaskStatus
from tests.browser import CHROMIUM, AssetPage
from tests.example_stack import ExampleStack

pytestmark = [
    pytest.mark.xdist_group("ui"),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"No Chromium at {CHROMIUM}: apt-get install chromium"),
    pytest.mark.timeout(200),
]
NEVER_SOON = "0 0 29 2 *"


def add_job(stack: ExampleStack, payload: object) -> UUID:
    owner = {"organization_id": "acme", "user_id": "ada"}
    return create_job(stack.app, stack.clock, kind="demo", **owner, payload=payload, schedule=NEVER_SOON).id


def asset(stack: ExampleStack, name: str) -> AssetPage:
    return AssetPage(stack.page, stack.address, name)


def test_what_a_worker_executed_is_in_the_asset_cron_runs(stack: ExampleStack) -> None:
    run = fire(stack.app, add_job(stack, {}))
    shown = asset(stack, "cron_runs")
    line = shown.wait_for_line("firings", str(run))
    assert (line["kind"], line["outcome"], line["error"], line["attempt"]) == ("demo", "done", "", "1")
    assert (line["organization"], line["user"]) == ("acme", "ada")
    assert {"kind": "demo", "outcome": "done", "runs": "1"} in shown.lines("by kind")
    assert int(shown.value("done").inner_text()) >= 1
    expect(shown.value("failed")).to_have_text("0")
    assert 0 <= float(shown.value("lateness p50 (s)").inner_text()) < 60


def test_a_failed_run_is_in_run_failures_with_its_error_and_its_worker(stack: ExampleStack) -> None:
    run = fire(stack.app, add_job(stack, {"fail": "no such invoice"}))
    asset(stack, "cron_runs").wait_for_line("firings", "no such invoice")
    shown = asset(stack, "run_failures")
    shown.materialize()
    line = shown.wait_for_line("newest failed runs", "no such invoice")
    assert (line["run"], line["kind"], line["organization"]) == (str(run), "demo", "acme")
    assert line["error"] == "RuntimeError: no such invoice"
    expect(shown.value("failed runs of kind demo")).to_have_text("1")

    # The picture opens behind its link, and the worker's log tells of the same run.
    shown.value("by hour").get_by_text("Show Markdown").click()
    picture = stack.page.get_by_role("img", name="Failed runs by hour and kind")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.naturalWidth") > 300
    stack.page.keyboard.press("Escape")
    shown.value(f"Dagster run of failed run {run}").get_by_role("link").click()
    told = stack.page.get_by_text(f"Run {run} failed (kind demo, organization acme, user ada").first
    expect(told).to_be_visible(timeout=30_000)


def test_a_click_on_materialize_mends_drift_that_somebody_made_by_hand(stack: ExampleStack) -> None:
    lost, moved, orphan = add_job(stack, {}), add_job(stack, {}), uuid4()
    stack.clock.schedule(orphan, NEVER_SOON)
    stack.cron.execute("delete from cron.job where jobname like %s", [f"%:cron:{lost}"])
    stack.cron.execute("update cron.job set schedule = '5 5 5 5 *' where jobname like %s", [f"%:cron:{moved}"])

    shown = asset(stack, "sync_report")
    shown.materialize()
    mended = {job: shown.wait_for_line("changes", job.hex) for job in (lost, moved, orphan)}
    assert {line["outcome"] for line in mended.values()} == {"mended"}
    assert [line["drift"] for line in mended.values()] == ["missing", "schedule differs", "orphan"]
    assert (mended[moved]["wanted"], mended[moved]["found"]) == (NEVER_SOON, "5 5 5 5 *")
    assert shown.lines("left") == []
    assert [(line["kind"], line["found"], line["mended"]) for line in shown.lines("by kind")] == [
        ("missing", "1", "1"),
        ("orphan", "1", "1"),
        ("schedule differs", "1", "1"),
    ]
    expect(shown.value("dry run")).to_have_text("false")
    expect(shown.value("clock jobs removed")).to_have_text("1")
    schedules = dict(stack.cron.execute("select right(jobname, 36), schedule from cron.job").fetchall())
    assert (schedules[str(lost)], schedules[str(moved)]) == (NEVER_SOON, NEVER_SOON)
    assert str(orphan) not in schedules


def test_upcoming_firings_are_in_local_time_and_in_utc(stack: ExampleStack) -> None:
    task = api.create(
        stack.app,
        organization_id="acme",
        user_id="ada",
        kind="log",
        title="Payments due",
        cron="30 9 * * MON",
        timezone="Asia/Kolkata",
    )
    shown = asset(stack, "upcoming_firings")
    shown.materialize()
    line = shown.wait_for_line("next firings", task.hex)
    assert (line["task"], line["owner"], line["time zone"]) == ("Payments due", "acme/ada", "Asia/Kolkata")
    assert line["local time"].startswith("Mon")
    assert line["local time"].endswith("09:30 +05:30")
    assert line["UTC"].endswith("04:00")
    active = api.list_tasks(stack.app, status=TaskStatus.ACTIVE)
    expect(shown.value("active tasks")).to_have_text(str(len(active)))
