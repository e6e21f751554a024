"""The example project as its README starts it: `sumaclock up` with its definitions, and a browser on the UI."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from sumaclock_dagster.clock.pg_cron import Clock, open_clock
from sumaclock_dagster.db import Connection, connect, with_database
from sumaclock_dagster.embedded.cluster import PrivateCluster
from sumaclock_dagster.embedded.configuration import read_cluster_file
from sumaclock_dagster.embedded.ui_port import any_free_port
from sumaclock_dagster.model import Run
from sumaclock_dagster.queue.runs import list_runs
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.tasks.records import Task
from tests.browser import opened_page
from tests.conftest import new_home, remove_cluster
from tests.up_stack import state, sumaclock
from tests.waiting import until

EXAMPLE = Path(__file__).parent.parent / "examples" / "customer_reports"
PARTITIONS = """query ($asset: String!) { assetNodeOrError(assetKey: {path: [$asset]}) { ... on AssetNode {
    assetPartitionStatuses { ... on DefaultPartitionStatuses { materializedPartitions } } } } }"""
RUNS = """query ($run: String!) { runsOrError(filter: {tags: [{key: "sumaclock/run", value: $run}]}) { ... on Runs {
    results { runId status runConfig tags { key value } } } } }"""


@dataclass(frozen=True)
class ExampleStack:
    """clock: this app database's. cron: a superuser in pg_cron's database. page: of a browser, for all tests."""

    address: str
    home: Path
    app: Connection
    clock: Clock
    cron: Connection
    page: Page

    def in_a_minute(self, timezone: str) -> str:
        """A weekly cron whose next occurrence there is 20 to 80 seconds away, so that it is placed in time."""
        row = self.app.execute(
            "select to_char(t, 'FMMI FMHH24 * * '), extract(dow from t)::int"
            " from (select (now() + interval '80 seconds') at time zone %s as t) s",
            [timezone],
        ).fetchone()
        assert row is not None
        return f"{row[0]}{row[1]}"

    def fired(self, task: Task) -> Run:
        """The run of the task that pg_cron itself fired, once it has ended."""

        def ended() -> list[Run]:
            runs = list_runs(self.app, job_id=task.cron_job_id)
            return [run for run in runs if run.trigger.value == "clock" and run.finished_at]

        return until(ended, 180, f"a firing of task {task.id}; logs in {self.home}", 0.2)[-1]

    def partitions(self, asset: str) -> set[str]:
        """Those that Dagster has materialised."""
        node = self._ask(PARTITIONS, asset=asset)["assetNodeOrError"]
        return set(node["assetPartitionStatuses"]["materializedPartitions"])

    def dagster_run(self, run: Run) -> dict[str, Any]:
        """The one Dagster run that was launched for the run."""
        (found,) = self._ask(RUNS, run=str(run.id))["runsOrError"]["results"]
        return {**found, "tags": {tag["key"]: tag["value"] for tag in found["tags"]}}

    def _ask(self, question: str, **variables: str) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310
            f"{self.address}/graphql",
            json.dumps({"query": question, "variables": variables}).encode(),
            {"Content-Type": "application/json"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as response:
            answer: dict[str, Any] = json.load(response)["data"]
        return answer


@contextmanager
def example_stack() -> Iterator[ExampleStack]:
    home = new_home()
    environment = {
        "PYTHONPATH": str(EXAMPLE),
        "SUMACLOCK_DEFINITIONS": "customer_reports",
        "SUMACLOCK_GRACE_SECONDS": "1",
        "SUMACLOCK_OBSERVE_SECONDS": "1",
    }
    with ExitStack() as ends:
        ends.callback(remove_cluster, PrivateCluster(home))
        ends.callback(sumaclock, "down", "--home", str(home), **environment)
        # Not the first free one from 3000 on, which others may be about to take.
        port = str(any_free_port())
        up = sumaclock("up", "--detach", "--no-demo", "--port", port, "--home", str(home), **environment)
        assert up.returncode == 0, up.stdout + up.stderr
        settings, file = Settings(home=home), read_cluster_file(home)
        assert file is not None
        app = ends.enter_context(connect(settings.app_url, "test example"))
        clock = ends.enter_context(open_clock(app, settings.cron_url))
        cron = ends.enter_context(connect(with_database(file.superuser_url, "postgres"), "test drift"))
        yield ExampleStack(state(home).address, home, app, clock, cron, ends.enter_context(opened_page()))
