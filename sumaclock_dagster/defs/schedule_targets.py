"""What a schedule is to run: checked against the code location as far as it can be known beforehand."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterInvalidConfigError

from sumaclock_dagster.defs.schedule_config import DagsterAssets, DagsterJob, OtherKind
from sumaclock_dagster.defs.targets import ASSETS_SENSOR, JOBS_SENSOR
from sumaclock_dagster.launches import DAGSTER_KIND
from sumaclock_dagster.launches.target import check_target, target_in_words
from sumaclock_dagster.model import SumaclockError

LISTED = 10


def kind_and_payload(
    runs: DagsterJob | DagsterAssets | OtherKind, repository: dg.RepositoryDefinition
) -> tuple[str, dict[str, Any]]:
    """The task's kind and payload.

    Raises SumaclockError for a job or asset that is no target in `repository`, a partition key too many or too few, and
    config that does not fit. Where a location is named or a text is filled in later, only the launch can tell.
    """
    if isinstance(runs, OtherKind):
        return runs.name, runs.payload
    if isinstance(runs, DagsterJob):
        target: dict[str, Any] = {"job": runs.name}
        if not runs.location:
            _check_job(runs, repository)
    else:
        target = {"assets": runs.asset_keys}
        if not runs.location:
            _check_assets(runs, repository)
    more = {
        "location": runs.location,
        "repository": runs.repository,
        "dynamic_partitions": runs.dynamic_partitions,
        "partition_key": runs.partition_key,
        "run_config": runs.run_config,
        "tags": runs.tags,
    }
    payload = target | {name: value for name, value in more.items() if value}
    check_target(payload, of_task=True)
    return DAGSTER_KIND, payload


def what_runs(kind: str, payload: Any) -> str:
    """For people: "job weekly in reports, partition acme", or the kind."""
    words = target_in_words(payload) if kind == DAGSTER_KIND else ""
    partition = payload.get("partition_key") if words else None
    return (words or f"kind {kind}") + (f", partition {partition}" if partition else "")


def _check_job(runs: DagsterJob, repository: dg.RepositoryDefinition) -> None:
    names = sorted(target.job_name for target in repository.get_sensor_def(JOBS_SENSOR).targets)
    if runs.name not in names:
        raise _unknown("job", runs.name, names)
    job = repository.get_job(runs.name)
    _check_partition(f"Job '{runs.name}'", job.partitions_def, runs.partition_key)
    if _is_filled_in(runs.run_config):
        return
    try:
        dg.validate_run_config(job, runs.run_config)
    except DagsterInvalidConfigError as error:
        raise SumaclockError(f"run_config does not fit the job '{runs.name}'. {error.message}") from None


def _check_assets(runs: DagsterAssets, repository: dg.RepositoryDefinition) -> None:
    graph = repository.asset_graph
    known = {key.to_user_string(): key for key in _target_assets(repository)}
    if not runs.asset_keys:
        raise SumaclockError(f"asset_keys is empty: write for example [{next(iter(sorted(known)), 'report')}].")
    for name in runs.asset_keys:
        if name not in known:
            raise _unknown("asset", name, sorted(known))
        _check_partition(f"Asset '{name}'", graph.get(known[name]).partitions_def, runs.partition_key)


def _target_assets(repository: dg.RepositoryDefinition) -> Collection[dg.AssetKey]:
    if not repository.has_sensor_def(ASSETS_SENSOR):
        return ()
    selection = repository.get_sensor_def(ASSETS_SENSOR).asset_selection
    return selection.resolve(repository.asset_graph) if selection else ()


def _check_partition(what: str, partitions: dg.PartitionsDefinition[Any] | None, key: str) -> None:
    if partitions is None:
        if key:
            raise SumaclockError(f"{what} has no partitions: leave partition_key empty instead of {key!r}.")
        return
    if not key:
        raise SumaclockError(f"{what} has partitions: write in partition_key which one to run.")
    # A dynamic partition is added when it is first used.
    if isinstance(partitions, dg.DynamicPartitionsDefinition) or _is_filled_in(key):
        return
    if not partitions.has_partition_key(key):
        raise SumaclockError(f"{what} has no partition {key!r}; the last ones are {_last(partitions)}.")


def _last(partitions: dg.PartitionsDefinition[Any]) -> str:
    return ", ".join(partitions.get_partition_keys()[-3:])


def _is_filled_in(value: object) -> bool:
    return "{" in (value if isinstance(value, str) else "".join(_texts(value)))


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for entry in value.items() for part in entry for text in _texts(part)]
    return [text for entry in value for text in _texts(entry)] if isinstance(value, list) else []


def _unknown(what: str, name: str, names: list[str]) -> SumaclockError:
    close = get_close_matches(name, names, n=1)
    hint = f"Did you mean '{close[0]}'? " if close else ""
    shown = ", ".join(names[:LISTED]) + (" and more" if len(names) > LISTED else "") or "none"
    return SumaclockError(
        f"This code location has no {what} {json.dumps(name)}. {hint}It has: {shown}. For another code location, "
        "write its name in location."
    )
