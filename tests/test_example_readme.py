"""What the README shows a Dagster user is true: its ten lines load, and its SQL makes a schedule that launches them."""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pytest
import yaml

from sumaclock_dagster.db import Connection
from sumaclock_dagster.defs import targets
from sumaclock_dagster.own_handlers import own_handlers
from sumaclock_dagster.tasks import api
from tests.conftest import AppDatabase, TestCluster
from tests.dagster_storage import ROOT, dagster_home, dagster_instance
from tests.tasks import EAGER, settled
from tests.waiting import until
from tests.workers import running

SECTION = "## Your Dagster jobs and assets, on a schedule that is a row"


@pytest.fixture(scope="module")
def instance(cluster: TestCluster) -> Iterator[dg.DagsterInstance]:
    with dagster_home(cluster, f"d_{uuid.uuid4().hex[:10]}") as home, dagster_instance(*home) as instance:
        yield instance


@pytest.fixture
def project(tmp_path: Path, app_db: AppDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The README's module, imported from a file of its own with the environment that a user sets."""
    monkeypatch.setenv("SUMACLOCK_DATABASE_URL", app_db.app_url)
    monkeypatch.setenv("SUMACLOCK_CRON_DATABASE_URL", app_db.cron_url)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_project.py").write_text(block("python"))
    import my_project  # type: ignore[import-not-found]

    yield my_project
    del sys.modules["my_project"]


def block(language: str) -> str:
    """The first block of `language` in the README's section."""
    section = (ROOT / "README.md").read_text().partition(SECTION)[2].partition("\n## ")[0]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found, f"no {language} in {SECTION!r}"
    return found[1]


def test_it_is_ten_lines() -> None:
    lines = [line for line in block("python").splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) <= 10


def test_the_schedule_of_the_readme_launches_the_asset_of_the_readme(
    project: ModuleType,
    app_db: AppDatabase,
    app: Connection,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(targets, "WATCH_SECONDS", 0.0)
    definitions = project.defs
    dg.Definitions.validate_loadable(definitions)
    sensor = definitions.resolve_sensor_def(targets.ASSETS_SENSOR)

    with running(app_db, own_handlers(app_db.settings), **EAGER):
        row = app.execute(block("sql").encode()).fetchone()
        assert row is not None
        task = settled(app, row[0])
        assert task.next_run_at is not None
        assert (task.cron, task.timezone, task.organization_id) == ("0 9 * * MON", "Europe/Madrid", "acme")
        api.run_now(app, task.id)

        def launched() -> list[dg.RunRequest]:
            context = dg.build_sensor_context(
                instance=instance,
                definitions=definitions,
                resources=definitions.resources,
                sensor_name=targets.ASSETS_SENSOR,
            )
            return list(sensor.evaluate_tick(context).run_requests or ())

        (request,) = until(launched, 60, "a request for a Dagster run", 0.2)

    assert request.partition_key == "acme"
    assert request.asset_selection == [dg.AssetKey("report")]
    assert request.tags["sumaclock/task"] == str(task.id)
    assert request.tags["sumaclock/organization"] == "acme"
    assert instance.get_dynamic_partitions("customers") == ["acme"]


def test_the_launchpad_config_of_the_docs_fits(project: ModuleType) -> None:
    page = (ROOT / "docs" / "dagster-targets.md").read_text()
    (config,) = [text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "edit_schedule" in text]
    job = project.defs.resolve_job_def("edit_schedules")
    given: dict[str, Any] = yaml.safe_load(config)
    assert dg.validate_run_config(job, given)


def test_the_limits_of_the_docs_are_those_of_dagster_yaml(instance: dg.DagsterInstance) -> None:
    page = (ROOT / "docs" / "dagster-targets.md").read_text()
    (told,) = [text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "concurrency:" in text]
    shipped = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    assert yaml.safe_load(told)["concurrency"]["runs"] == shipped["concurrency"]["runs"]
    queue = instance.get_concurrency_config().run_queue_config
    assert queue is not None
    assert queue.max_concurrent_runs == -1
    assert {limit["key"]: limit["limit"] for limit in queue.tag_concurrency_limits} == {
        "sumaclock/organization": 2,
        "sumaclock/run": 10,
    }
