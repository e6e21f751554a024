"""The example project as its README starts it: pg_cron fires, customers' partitions are materialised, and a person does
all of it in Dagster's UI."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect

from sumaclock_dagster.model import RunStatus
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.records import Task, TaskStatus
from sumaclock_dagster.tasks.waiting import await_placed
from tests.browser import CHROMIUM, SHOWN_SECONDS, AssetPage
from tests.example_stack import EXAMPLE, ExampleStack

pytestmark = [
    pytest.mark.xdist_group("ui"),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"No Chromium at {CHROMIUM}: apt-get install chromium"),
    pytest.mark.timeout(600),
]
MONDAYS = "0 9 * * MON"
# Milliseconds, as Playwright counts. A Dagster run also waits in the queue and for its process.
SHOWN = SHOWN_SECONDS * 1000
ENDED = 2 * SHOWN
NEW = """ops:
  edit_schedule:
    config:
      schedule:
        create:
          organization_id: initech
          user_id: bob
          title: Report of initech
          cron: 30 7 * * MON-FRI
          timezone: America/Lima
          runs:
            assets:
              asset_keys: [orders, {asset}]
              partition_key: '{{organization_id}}'
              run_config: {{ops: {{orders: {{config: {{week: '{{scheduled_local-7d:%G-W%V}}'}}}}}}}}
"""
CHANGE = """ops:
  edit_schedule:
    config:
      schedule:
        {change}: {{task_id: {task_id}, {more}}}
"""


class Launchpad:
    """The Launchpad of edit_schedules: written into and launched as a person does it."""

    def __init__(self, stack: ExampleStack) -> None:
        self._page = stack.page
        self._url = f"{stack.address}/locations/sumaclock/jobs/edit_schedules/playground"

    def open(self) -> Page:
        self._page.goto(self._url)
        expect(self._page.get_by_role("button", name="Launch Run")).to_be_visible(timeout=SHOWN)
        return self._page

    def launch(self, config: str, ends: str = "Success") -> str:
        """Everything that the page of the Dagster run shows, once it has ended as `ends`."""
        page = self.open()
        page.locator(".CodeMirror").first.click()
        page.keyboard.press("ControlOrMeta+A")
        page.keyboard.insert_text(config)
        expect(page.get_by_text("No errors")).to_be_visible(timeout=SHOWN)
        button = page.get_by_role("button", name="Launch Run")
        # The Launchpad remembers what was written last, which may have been wrong.
        expect(button).to_be_enabled(timeout=SHOWN)
        button.click()
        page.wait_for_url(re.compile("/runs/[0-9a-f-]{36}"))
        ended = page.get_by_text(re.compile("^(Success|Failure|Canceled)$")).first
        expect(ended).to_be_visible(timeout=ENDED)
        assert ended.inner_text() == ends, page.locator("body").inner_text()
        expect(page.get_by_text("RUN_SUCCESS" if ends == "Success" else "RUN_FAILURE").first).to_be_visible(
            timeout=SHOWN
        )
        return page.locator("body").inner_text().replace("\xa0", " ")


def placed(stack: ExampleStack, task_id: UUID) -> Task:
    task = await_placed(stack.app, task_id, 30)
    assert task.status is TaskStatus.ACTIVE, task.status_reason
    assert task.next_run_at is not None
    return task


def test_schedules_made_by_sql_and_by_python_materialise_each_customers_partition(stack: ExampleStack) -> None:
    sql = (EXAMPLE / "schedules.sql").read_text()
    assert sql.count(f"'{MONDAYS}'") == 1
    row = stack.app.execute(sql.replace(MONDAYS, stack.in_a_minute("Europe/Madrid")).encode()).fetchone()
    assert row is not None
    sys.path.insert(0, str(EXAMPLE))
    try:
        from schedules import report_weekly  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(EXAMPLE))
    zone = "America/New_York"
    tasks = {
        "acme": placed(stack, row[0]),
        "globex": placed(stack, report_weekly(stack.app, "globex", zone, stack.in_a_minute(zone))),
    }

    for customer, task in tasks.items():
        run = stack.fired(task)
        assert run.status is RunStatus.DONE, run.error
        dagster_run = stack.dagster_run(run)
        assert dagster_run["status"] == "SUCCESS"
        assert str(run.dagster_run_id) == dagster_run["runId"]
        assert dagster_run["tags"]["sumaclock/organization"] == customer
        assert dagster_run["tags"]["sumaclock/task"] == str(task.id)
        assert f"{task.next_run_at:%Y-%m-%dT%H:%MZ}" == dagster_run["tags"]["sumaclock/scheduled_for"]
        week = stack.app.execute(
            "select to_char((%s at time zone %s) - interval '7 days', 'IYYY\"-W\"IW')",
            [task.next_run_at, task.timezone],
        ).fetchone()
        assert week is not None
        assert dagster_run["runConfig"]["ops"]["orders"]["config"] == {"week": week[0]}
    assert stack.partitions("customer_report") == {"acme", "globex"}

    stack.page.goto(f"{stack.address}/assets/customer_report?view=partitions&partition=globex")
    expect(stack.page.get_by_text("Materialized", exact=True)).to_be_visible(timeout=SHOWN)
    expect(stack.page.get_by_role("heading", name=f"globex, {week[0]}")).to_be_visible(timeout=SHOWN)


def test_the_commands_of_the_readme_make_a_schedule(stack: ExampleStack) -> None:
    made = subprocess.run(
        [sys.executable, "schedules.py", "umbrella", "America/Lima"],
        cwd=EXAMPLE,
        env=os.environ | {"SUMACLOCK_HOME": str(stack.home)},
        capture_output=True,
        text=True,
        check=True,
    )
    task = placed(stack, UUID(made.stdout.strip()))
    assert (task.organization_id, task.cron, task.timezone) == ("umbrella", MONDAYS, "America/Lima")


def test_the_launchpad_starts_with_a_new_schedule_and_refuses_what_does_not_fit(stack: ExampleStack) -> None:
    page = Launchpad(stack).open()
    editor = page.locator(".CodeMirror-code").first
    for field in ("organization_id: acme", "cron: '0 9 * * MON'", "timezone: Europe/Madrid", "partition_key: ''"):
        expect(editor).to_contain_text(field, timeout=SHOWN)
    page.locator(".CodeMirror").first.click()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.insert_text(CHANGE.format(change="pause", task_id="1", more="why: holiday"))
    expect(page.get_by_text(re.compile("Received unexpected config entry .*why")).first).to_be_visible(timeout=SHOWN)


def test_a_person_makes_edits_pauses_and_deletes_a_schedule_in_the_ui_alone(stack: ExampleStack) -> None:
    launchpad = Launchpad(stack)

    shown = launchpad.launch(NEW.format(asset="customer_report"))
    assert "At 07:30, from Monday to Friday (America/Lima)" in shown
    assert "assets orders, customer_report, partition {organization_id}" in shown
    (task,) = api.list_tasks(stack.app, organization_id="initech")
    assert str(task.id) in shown
    assert task.next_run_at is not None
    assert f"{task.next_run_at:%a %d %b %Y %H:%M}" in shown
    assert "07:30 -05:00" in shown

    shown = launchpad.launch(CHANGE.format(change="edit", task_id=task.id, more="cron: 0 6 1 * *, title: Monthly"))
    assert "At 06:00, on day 1 of the month (America/Lima)" in shown
    assert api.get(stack.app, task.id).title == "Monthly"

    asset = AssetPage(stack.page, stack.address, "upcoming_firings")
    asset.materialize()
    line = asset.wait_for_line("next firings", task.id.hex)
    assert (line["task"], line["owner"], line["time zone"]) == ("Monthly", "initech/bob", "America/Lima")

    shown = launchpad.launch(CHANGE.format(change="pause", task_id=task.id, more="reason: on holiday"))
    assert "paused: on holiday" in shown
    assert api.get(stack.app, task.id).status is TaskStatus.PAUSED

    shown = launchpad.launch(CHANGE.format(change="delete", task_id=task.id, more=""))
    assert "deleted" in shown
    assert api.get(stack.app, task.id).deleted_at is not None


def test_a_mistake_in_the_launchpad_says_what_to_correct(stack: ExampleStack) -> None:
    shown = Launchpad(stack).launch(NEW.format(asset="customer_reports"), ends="Failure")
    assert "no asset \"customer_reports\". Did you mean 'customer_report'? It has: customer_report, orders." in shown
