"""What a run of kind dagster launches: the payload, checked, and filled in for one occurrence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sumaclock_dagster.launches.templates import Occurrence, fill, fill_all
from sumaclock_dagster.model import SumaclockError

EXAMPLE = '{"job": "weekly_report"} or {"assets": ["sales/report"], "partition_key": "{scheduled_for:%Y-%m-%d}"}'
FIELDS = ("job", "assets", "location", "repository", "run_config", "tags", "partition_key", "dynamic_partitions")
OWN_TAGS = "sumaclock/"
# Dagster's own, set by what launches; a second hand there would lie to it.
DAGSTERS_TAGS = ("dagster/run_key", "dagster/sensor_name", "dagster/partition", "dagster/tick")
TEXT_MAX_CHARS = 1000
ASSETS_MOST = 1000


@dataclass(frozen=True, slots=True)
class Target:
    """Exactly one of `job` (a name) and `assets` (keys, "prefix/name") is given. `location`: a code location, None for
    the one that sumaclock is in. `repository`: of that location, where it has several. `dynamic_partitions`: keys to
    add first, by the names of their dynamic partitions definitions."""

    job: str | None = None
    assets: tuple[str, ...] = ()
    location: str | None = None
    repository: str | None = None
    run_config: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    partition_key: str | None = None
    dynamic_partitions: Mapping[str, str] = field(default_factory=dict)

    def as_payload(self) -> dict[str, Any]:
        """As JSON holds it; what is not given is left out."""
        values = {
            "job": self.job,
            "assets": list(self.assets),
            "location": self.location,
            "repository": self.repository,
            "run_config": dict(self.run_config),
            "tags": dict(self.tags),
            "partition_key": self.partition_key,
            "dynamic_partitions": dict(self.dynamic_partitions),
        }
        return {name: value for name, value in values.items() if value}

    def in_words(self) -> str:
        """For people: "job nightly", "assets a, b/c in etl"."""
        what = f"job {self.job}" if self.job else f"asset{'s'[: len(self.assets) != 1]} {', '.join(self.assets)}"
        return what + (f" in {self.location}" if self.location else "")


def parse_target(payload: Any) -> Target:
    """The target that a payload names, its templates unfilled. Raises SumaclockError that says what to correct."""
    if not isinstance(payload, dict):
        raise SumaclockError(f"The payload must be an object such as {EXAMPLE}.")
    unknown = sorted(str(name) for name in payload if name not in FIELDS)
    if unknown:
        raise SumaclockError(f"The payload has '{unknown[0]:.100}', and kind dagster knows {', '.join(FIELDS)}.")
    job, assets = _text(payload, "job"), _assets(payload.get("assets"))
    if (job is None) == (not assets):
        raise SumaclockError(f"The payload must name either a job or assets: {EXAMPLE}.")
    if payload.get("repository") and not payload.get("location"):
        raise SumaclockError("The payload has a repository and no location: name the code location that it is in.")
    return Target(
        job=job,
        assets=assets,
        location=_text(payload, "location"),
        repository=_text(payload, "repository"),
        run_config=_run_config(payload.get("run_config")),
        tags=_tags(payload.get("tags")),
        partition_key=_text(payload, "partition_key"),
        dynamic_partitions=_dynamic_partitions(payload.get("dynamic_partitions")),
    )


def resolve_target(payload: Any, occurrence: Occurrence) -> Target:
    """The target with the templates of its partition keys, its tags' values and its run_config's texts filled in."""
    target = parse_target(payload)
    return Target(
        job=target.job,
        assets=target.assets,
        location=target.location,
        repository=target.repository,
        run_config=fill_all(dict(target.run_config), occurrence),
        tags={name: fill(value, occurrence) for name, value in target.tags.items()},
        partition_key=None if target.partition_key is None else fill(target.partition_key, occurrence),
        dynamic_partitions={name: fill(key, occurrence) for name, key in target.dynamic_partitions.items()},
    )


def check_target(payload: Any, *, of_task: bool) -> Target:
    """As `parse_target`, and raises SumaclockError for templates that no occurrence could fill in. of_task: a job has
    no task_id and no local time."""
    some = Occurrence(
        scheduled_for=datetime(2030, 1, 7, 8, tzinfo=UTC),
        organization_id="organization",
        user_id="user",
        run_id=1,
        timezone="Europe/Madrid" if of_task else None,
        task_id=UUID(int=0) if of_task else None,
    )
    resolve_target(payload, some)
    return parse_target(payload)


def target_in_words(payload: Any) -> str:
    """The target of a payload for people; "" for a payload that names none."""
    try:
        return parse_target(payload).in_words()
    except SumaclockError:
        return ""


def _text(payload: Mapping[str, Any], name: str) -> str | None:
    value = payload.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or len(value) > TEXT_MAX_CHARS:
        raise SumaclockError(f"The payload's {name} must be a text of 1 to {TEXT_MAX_CHARS} characters.")
    return value


def _assets(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(key, str) and key.strip("/ ") for key in listed):
        raise SumaclockError('The payload\'s assets must be a list of asset keys, for example ["sales/report"].')
    if len(listed) > ASSETS_MOST:
        raise SumaclockError(f"The payload names {len(listed)} assets; at most {ASSETS_MOST} go into one Dagster run.")
    return tuple(dict.fromkeys(listed))


def _run_config(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise SumaclockError('The payload\'s run_config must be an object, for example {"ops": {...}}.')
    return value


def _tags(value: Any) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise SumaclockError('The payload\'s tags must be an object of texts, for example {"team": "sales"}.')
    for name, text in value.items():
        if not isinstance(text, str):
            raise SumaclockError(f"The payload's tag '{name:.100}' must be a text; put {text!r:.100} in quotes.")
        if name.startswith(OWN_TAGS) or name in DAGSTERS_TAGS:
            raise SumaclockError(
                f"The payload's tag '{name:.100}' is set by sumaclock or Dagster. Choose another name."
            )
    return value


def _dynamic_partitions(value: Any) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) and key for key in value.values()):
        raise SumaclockError(
            "The payload's dynamic_partitions must be an object: names of dynamic partitions definitions, each with "
            'the key to add, for example {"customers": "{organization_id}"}.'
        )
    return value
