"""From a launch to a RunRequest that Dagster will take: looked at one by one, so that a bad one fails alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import dagster as dg
from dagster._core.execution.api import create_execution_plan

from sumaclock_dagster.launches.graphql import UnknownPartition
from sumaclock_dagster.launches.progress import Offered
from sumaclock_dagster.launches.target import Target

ERROR_MAX_CHARS = 5000


class Unfit(Exception):
    """Dagster would not launch it. The text is Dagster's own."""


def to_run_request(context: dg.SensorEvaluationContext, sensor: dg.SensorDefinition, offered: Offered) -> dg.RunRequest:
    """The request, its partition resolved. Adds a dynamic partition that is not there yet.

    Resolves the request and plans its execution as the daemon would do afterwards: what raises there would end the tick
    for all its requests. Raises Unfit.
    """
    try:
        with dg.partition_loading_context(dynamic_partitions_store=context.instance):
            return _checked(context, sensor, offered)
    except Exception as error:
        raise Unfit(f"{type(error).__name__}: {error}"[:ERROR_MAX_CHARS]) from error


def add_named_partitions(instance: dg.DagsterInstance, target: Target) -> None:
    """Add the keys that the payload names by their dynamic partitions definitions: what Dagster can't tell of a job of
    ops in another code location."""
    for name, key in target.dynamic_partitions.items():
        if not instance.has_dynamic_partition(name, key):
            instance.add_dynamic_partitions(name, [key])


def in_dagsters_words(unknown: UnknownPartition) -> str:
    """What Dagster raises for such a key in its own code location, and then what to do about it."""
    try:
        with dg.partition_loading_context() as context:
            dg.StaticPartitionsDefinition([]).validate_partition_key(unknown.key, context)
    except dg.DagsterUnknownPartitionError as error:
        return f"{type(error).__name__}: {error} {unknown}"
    return str(unknown)


def _checked(context: dg.SensorEvaluationContext, sensor: dg.SensorDefinition, offered: Offered) -> dg.RunRequest:
    target = offered.parsed()
    repository = context.repository_def
    assert repository is not None  # noqa: S101  (a sensor is evaluated with the repository that it is in)
    keys = [dg.AssetKey.from_user_string(key) for key in target.assets]
    request = dg.RunRequest(
        # Looked up once more when the daemon submits it, also after it was restarted in the middle of a tick.
        run_key=str(offered.launch_key),
        job_name=target.job,
        asset_selection=keys or None,
        run_config=dict(target.run_config),
        tags=offered.tags(),
    )
    if target.job is not None:
        repository.get_job(target.job)  # says best what is wrong with a name
    if target.partition_key is not None:
        _add_dynamic_partitions(context, repository, target, keys, target.partition_key)
    (resolved,) = sensor.resolve_run_requests([request], context, sensor.asset_selection, [])
    job = repository.get_job(str(resolved.job_name))
    if target.partition_key is not None:
        # Not with the rest, where a cache of the tick may not know of a partition that was just added.
        resolved = resolved.with_replaced_attrs(partition_key=target.partition_key).with_resolved_tags_and_config(
            target_definition=job, dynamic_partitions_requests=[], dynamic_partitions_store=context.instance
        )
    if keys:
        job = job.get_subset(asset_selection=frozenset(keys))
    create_execution_plan(job, resolved.run_config, tags=resolved.tags)
    return resolved


def _add_dynamic_partitions(
    context: dg.SensorEvaluationContext,
    repository: dg.RepositoryDefinition,
    target: Target,
    keys: list[dg.AssetKey],
    partition_key: str,
) -> None:
    if target.job is not None:
        job = repository.get_job(target.job)
        if job.partitions_def is not None:
            definitions: set[dg.PartitionsDefinition | None] = {job.partitions_def}
        else:
            keys = list(job.asset_layer.selected_asset_keys)
            definitions = {job.asset_layer.get(key).partitions_def for key in keys}
    else:
        graph = repository.asset_graph
        definitions = {graph.get(key).partitions_def for key in keys if graph.has(key)}
    for name, key in _dynamic(definitions, partition_key):
        if not context.instance.has_dynamic_partition(name, key):
            context.instance.add_dynamic_partitions(name, [key])


def _dynamic(
    definitions: Iterable[dg.PartitionsDefinition | None],
    partition_key: str,
) -> Iterator[tuple[str, str]]:
    """Names of dynamic partitions definitions, each with the key that `partition_key` stands for in it."""
    for definition in definitions:
        if isinstance(definition, dg.DynamicPartitionsDefinition) and definition.name:
            yield definition.name, partition_key
        elif isinstance(definition, dg.MultiPartitionsDefinition):
            parts = definition.get_partition_key_from_str(partition_key).keys_by_dimension
            for dimension in definition.partitions_defs:
                if dimension.name in parts:
                    yield from _dynamic([dimension.partitions_def], parts[dimension.name])
