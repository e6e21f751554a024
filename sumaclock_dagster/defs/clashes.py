"""Names that a user's definitions and sumaclock's can't both have in one code location."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import dagster as dg
from dagster._core.definitions.asset_checks.asset_checks_definition import AssetChecksDefinition
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from sumaclock_dagster.defs.resources import Sumaclock
from sumaclock_dagster.model import SumaclockError

TOLD = 12
AnyJob = dg.JobDefinition | UnresolvedAssetJobDefinition


def refuse_clashes(own: dg.Definitions, users: dg.Definitions) -> None:
    """Raises SumaclockError that lists the names that are in both, and says what to do."""
    if any(isinstance(resource, Sumaclock) for resource in (users.resources or {}).values()):
        raise SumaclockError("These definitions contain sumaclock already: call with_sumaclock once, at the outermost.")
    taken = set(_names(own))
    both = sorted({name for name in _names(users) if name in taken})
    if both:
        shown = ", ".join(f"{what} '{name}'" for what, name in both[:TOLD])
        more = f" and {len(both) - TOLD} more" if len(both) > TOLD else ""
        raise SumaclockError(
            f"Your definitions and sumaclock's use the same names: {shown}{more}. Rename yours; or leave them, and "
            "serve sumaclock in a code location of its own (module sumaclock_dagster.definitions), which launches "
            "yours through SUMACLOCK_DAGSTER_GRAPHQL_URL."
        )


def jobs_of(definitions: dg.Definitions) -> list[AnyJob]:
    """All jobs, those included that only a schedule or a sensor names; each once."""
    found: list[object] = list(definitions.jobs or [])
    found += [schedule.job for schedule in definitions.schedules or [] if _has_job(schedule)]
    found += [target.job_def for sensor in definitions.sensors or [] for target in sensor.targets if target.has_job_def]
    return list({job.name: job for job in found if isinstance(job, AnyJob)}.values())


def assets_of(definitions: dg.Definitions) -> list[dg.AssetsDefinition]:
    """All assets that can be materialised."""
    found = (*(definitions.assets or []), *(definitions.asset_checks or []))
    return [
        asset
        for asset in found
        if isinstance(asset, dg.AssetsDefinition)
        and not isinstance(asset, AssetChecksDefinition)
        and asset.is_materializable
    ]


def _names(definitions: dg.Definitions) -> Iterator[tuple[str, str]]:
    """What kind of thing, and its name. Dagster keeps schedules and sensors in one space of names."""
    for resource in definitions.resources or {}:
        yield "resource", resource
    for job in jobs_of(definitions):
        yield "job", job.name
        if isinstance(job, dg.JobDefinition):
            yield from (("op", node.name) for node in job.all_node_defs)
    for instigator in (*(definitions.schedules or []), *(definitions.sensors or [])):
        yield "schedule or sensor", instigator.name
    yield from _asset_names(definitions.assets or [])
    yield from _asset_names(definitions.asset_checks or [])


def _asset_names(assets: Iterable[object]) -> Iterator[tuple[str, str]]:
    for asset in assets:
        if isinstance(asset, dg.AssetSpec | dg.SourceAsset):
            yield "asset", asset.key.to_user_string()
        elif isinstance(asset, dg.AssetsDefinition):
            yield from (("asset", key.to_user_string()) for key in asset.keys)
            yield from (("asset check", f"{key.asset_key.to_user_string()}:{key.name}") for key in asset.check_keys)
            if asset.is_executable:
                yield "op", asset.node_def.name


def _has_job(schedule: object) -> bool:
    return isinstance(schedule, dg.ScheduleDefinition) and schedule.target.has_job_def
