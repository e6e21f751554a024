"""sumaclock in a user's own code location: one line, nothing of theirs changed, and clear words where names clash."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from sumaclock_dagster import with_sumaclock
from sumaclock_dagster.definitions import build
from sumaclock_dagster.definitions import definitions as own_definitions
from sumaclock_dagster.defs.clashes import assets_of, jobs_of
from sumaclock_dagster.defs.own import OWN_JOBS
from sumaclock_dagster.defs.targets import ASSETS_SENSOR, JOBS_SENSOR
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.settings import Settings

NO_SERVER = Settings(database_url="postgresql://sumaclock_app:hunter2@127.0.0.1:1/sumaclock")  # type: ignore[arg-type]


def op_named(name: str) -> dg.OpDefinition:
    @dg.op(name=name)
    def does_nothing() -> None: ...

    return does_nothing


def job_named(name: str, op: str = "users_op") -> dg.JobDefinition:
    node = op_named(op)

    @dg.job(name=name)
    def does_nothing() -> None:
        node()

    return does_nothing


@dg.asset
def orders() -> int:
    return 1


@dg.asset(deps=[orders], check_specs=[dg.AssetCheckSpec("is_whole", asset="report")])
def report() -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster knows it only bare
    return dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=True)])


@dg.asset_check(asset=orders)
def has_rows() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


by_schedule = job_named("by_schedule", "op_by_schedule")
asset_job = dg.define_asset_job("asset_job", selection=[report])


@dg.sensor(job=job_named("by_sensor", "op_by_sensor"))
def users_sensor() -> None: ...


def users_definitions(**more: Any) -> dg.Definitions:
    return dg.Definitions(
        assets=[orders, report, dg.AssetSpec("elsewhere")],
        asset_checks=[has_rows],
        jobs=[job_named("users_job"), asset_job],
        schedules=[dg.ScheduleDefinition(name="nightly", job=by_schedule, cron_schedule="0 3 * * *")],
        sensors=[users_sensor],
        **{"resources": {"warehouse": "snow"}, "executor": dg.multiprocess_executor, **more},
    )


def names(definitions: dg.Definitions) -> set[str]:
    repository = definitions.get_repository_def()
    return {
        *repository.job_names,
        *(sensor.name for sensor in repository.sensor_defs),
        *(schedule.name for schedule in repository.schedule_defs),
        *(key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()),
        *(str(key) for key in repository.asset_graph.asset_check_keys),
    }


def test_one_line_adds_everything_and_takes_nothing_away() -> None:
    together = with_sumaclock(users_definitions(), NO_SERVER)

    dg.Definitions.validate_loadable(together)
    ours = names(build(NO_SERVER)) | {"dagster_asset_targets"}
    assert names(together) == names(users_definitions()) | ours
    assert set(together.resources or {}) >= {"warehouse", "sumaclock"}
    assert together.executor is dg.multiprocess_executor
    # A worker is one process, whatever the user's jobs run in.
    assert together.resolve_job_def("work").executor_def is dg.in_process_executor
    assert together.resolve_job_def("users_job").executor_def is dg.multiprocess_executor


def test_definitions_of_a_function_are_called_first() -> None:
    @dg.definitions
    def lazily() -> dg.Definitions:
        return with_sumaclock(users_definitions(), NO_SERVER)

    assert "work" in lazily().get_repository_def().job_names
    with pytest.raises(SumaclockError, match=r"as in with_sumaclock\(definitions\(\)\)"):
        with_sumaclock(own_definitions, NO_SERVER)  # type: ignore[arg-type]


FOLDER_PROJECT = {
    "pyproject.toml": '[project]\nname = "p"\nversion = "1"\n[tool.dg]\ndirectory_type = "project"\n'
    '[tool.dg.project]\nroot_module = "folder_project"\n',
    "src/folder_project/__init__.py": "",
    "src/folder_project/defs/__init__.py": "",
    "src/folder_project/defs/things.py": "import dagster as dg\n@dg.asset\ndef thing(): ...\n"
    "@dg.job\ndef chore(): ...\n",
    "src/folder_project/definitions.py": """
from pathlib import Path
import dagster as dg
from sumaclock_dagster import with_sumaclock

@dg.definitions
def defs():
    return with_sumaclock(dg.load_from_defs_folder(path_within_project=Path(__file__).parent))
""",
}


def test_a_project_whose_definitions_are_a_folder_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in FOLDER_PROJECT.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "src"))

    definitions = import_module("folder_project.definitions").defs()

    dg.Definitions.validate_loadable(definitions)
    repository = definitions.get_repository_def()
    assert [target.job_name for target in repository.get_sensor_def(JOBS_SENSOR).targets] == ["chore"]
    assert repository.get_sensor_def(ASSETS_SENSOR).asset_selection.resolve(repository.asset_graph) == {
        dg.AssetKey("thing")
    }
    assert "work" in repository.job_names


def test_targets_are_all_jobs_and_all_assets_that_can_be_materialised() -> None:
    assert {job.name for job in jobs_of(users_definitions())} == {"users_job", "asset_job", "by_schedule", "by_sensor"}
    keys = {key.to_user_string() for asset in assets_of(users_definitions()) for key in asset.keys}
    assert keys == {"orders", "report"}


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        ({"jobs": [job_named("sync")]}, "job 'sync'"),
        ({"jobs": [job_named("mine", op="claim_and_execute")]}, "op 'claim_and_execute'"),
        ({"assets": [dg.AssetSpec("cron_runs")]}, "asset 'cron_runs'"),
        ({"assets": [dg.asset(name="task_runs")(lambda: None)]}, "asset 'task_runs', op 'task_runs'"),
        (
            {"asset_checks": [dg.asset_check(asset="cron_runs", name="every_kind_has_a_handler")(lambda: None)]},
            "asset check 'cron_runs:every_kind_has_a_handler'",
        ),
        ({"resources": {"sumaclock": "mine"}}, "resource 'sumaclock'"),
        ({"sensors": [dg.sensor(name="alerts", job_name="mine")(lambda: None)]}, "schedule or sensor 'alerts'"),
        (
            {"schedules": [dg.ScheduleDefinition(name="prune", job=by_schedule, cron_schedule="0 3 * * *")]},
            "schedule or sensor 'prune'",
        ),
    ],
)
def test_a_name_that_both_have_is_told_with_what_to_do(theirs: dict[str, Any], told: str) -> None:
    with pytest.raises(SumaclockError) as caught:
        with_sumaclock(dg.Definitions(**theirs), NO_SERVER)
    said = str(caught.value)
    assert f"use the same names: {told}" in said
    assert "Rename yours" in said
    assert "SUMACLOCK_DAGSTER_GRAPHQL_URL" in said


def test_twice_is_refused() -> None:
    with pytest.raises(SumaclockError, match="contain sumaclock already"):
        with_sumaclock(with_sumaclock(dg.Definitions(), NO_SERVER), NO_SERVER)


@pytest.mark.parametrize("job", OWN_JOBS)
def test_an_io_manager_of_the_user_that_is_down_stops_no_job_of_ours(job: str) -> None:
    @dg.io_manager
    def broken(_: object) -> None:
        raise RuntimeError("the warehouse is away")

    together = with_sumaclock(users_definitions(resources={"io_manager": broken}), NO_SERVER)
    result = together.resolve_job_def(job).execute_in_process(
        raise_on_error=False, instance=dg.DagsterInstance.ephemeral()
    )

    said = " ".join(str(event.event_specific_data) for event in result.all_events if event.is_failure)
    # check_clock reports it as a finding.
    assert "127.0.0.1" in said or result.success, "it got as far as the database, which is not there"
    assert "warehouse" not in said


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=False
    )


def test_core_users_import_no_dagster() -> None:
    done = python(
        "import sys, sumaclock_dagster, sumaclock_dagster.tasks.api, sumaclock_dagster.clock.jobs;"
        "print('dagster' in sys.modules, 'with_sumaclock' in sumaclock_dagster.__all__)"
    )
    assert done.stdout.split() == ["False", "True"], done.stderr
    assert (
        "has no attribute 'nothing_like_it'"
        in python("import sumaclock_dagster; sumaclock_dagster.nothing_like_it").stderr
    )


def test_the_environment_is_read_by_the_call_and_not_at_import() -> None:
    wrong = {"SUMACLOCK_MAX_WORKERS": "many"}
    assert python("from sumaclock_dagster import with_sumaclock", **wrong).returncode == 0
    called = python(
        "import dagster; from sumaclock_dagster import with_sumaclock; with_sumaclock(dagster.Definitions())", **wrong
    )
    assert "max_workers" in called.stderr
    given = python(
        "import dagster; from sumaclock_dagster import with_sumaclock;"
        "from sumaclock_dagster.settings import Settings;"
        "with_sumaclock(dagster.Definitions(), Settings.model_construct())",
        **wrong,
    )
    assert given.returncode == 0, given.stderr
