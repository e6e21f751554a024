"""What the Launchpad of `edit_schedules` asks for. The descriptions are its help, beside the editor."""

from typing import Any, Literal

import dagster as dg
from pydantic import Field

from sumaclock_dagster.calendar import DEFAULT_TIMEZONE

TASK_ID = (
    "Id of the task. It is in the asset upcoming_firings, column 'task id', and in the metadata of whatever made it."
)
FILLED_IN = (
    "Texts may hold, in quotes, '{scheduled_local:%Y-%m-%d}' (the occurrence on the clocks of the time zone, in any "
    "strftime format; scheduled_local-7d is a week before, scheduled_for is in UTC), '{organization_id}', '{user_id}', "
    "'{task_id}' and '{title}'."
)
KEEP = "Empty: it stays as it is."


class _Launch(dg.Config):
    location: str = Field(
        "",
        description="Code location that has it, as the UI lists it under Deployment. Empty: the one that this job is "
        "in. Another one is reached through SUMACLOCK_DAGSTER_GRAPHQL_URL.",
    )
    partition_key: str = Field(
        "",
        description="Partition to run, for example acme or {organization_id}. A dynamic partition that is new is added "
        f"first. Empty: it has no partitions. {FILLED_IN}",
    )
    dynamic_partitions: dict[str, str] = Field(
        {},
        description="Keys to add first, by the name of their dynamic partitions definition, for example {customers: "
        f"'{{organization_id}}'}}. Only a job of ops in another code location needs it. {FILLED_IN}",
    )
    repository: str = Field(
        "", description="Repository of that code location, where it has several. Empty: its only one."
    )
    run_config: dict[str, Any] = Field(
        {}, description=f"Config of the Dagster run, as its own Launchpad takes it: ops, resources. {FILLED_IN}"
    )
    tags: dict[str, str] = Field(
        {},
        description="Tags of the Dagster run, besides sumaclock/run, /job, /task, /organization and /scheduled_for. "
        f"{FILLED_IN}",
    )


class DagsterJob(_Launch):
    """A Dagster job, launched once for each occurrence."""

    what: Literal["job"] = "job"
    name: str = Field(description="Name of the Dagster job, as the UI lists it under Jobs.")


class DagsterAssets(_Launch):
    """Assets, materialised together once for each occurrence."""

    what: Literal["assets"] = "assets"
    asset_keys: list[str] = Field(description="Keys of the assets, for example [report] or [reports/weekly].")


class OtherKind(dg.Config):
    """Anything else that a worker can do, by its task kind."""

    what: Literal["kind"] = "kind"
    name: str = Field(description="Task kind: log, core_api, or one of your own (SUMACLOCK_TASK_KINDS).")
    payload: dict[str, Any] = Field({}, description="What the kind is given.")


class AsBefore(dg.Config):
    """What it runs stays as it is."""

    what: Literal["as_before"] = "as_before"


class Create(dg.Config):
    """A new schedule."""

    change: Literal["create"] = "create"
    organization_id: str = Field(
        description="Organisation (customer, tenant) that it belongs to. What it launches carries the tag "
        "sumaclock/organization, which limits how much runs at once."
    )
    user_id: str = Field(description="User that it belongs to, whose access is checked before each run.")
    title: str = Field("", description="What people call it, for example Weekly report.")
    cron: str = Field(
        "",
        description="When: five cron fields (minute, hour, day of month, month, day of week) on the clocks of the time "
        "zone, for example 0 9 * * MON for Mondays at 9:00. Empty where instant is given.",
    )
    instant: str = Field(
        "",
        description="Or once: 2026-12-01 09:00 on the clocks of the time zone, or 2026-12-01T09:00+01:00. Empty where "
        "cron is given.",
    )
    timezone: str = Field(DEFAULT_TIMEZONE, description="IANA time zone whose clocks count, for example America/Lima.")
    runs: DagsterJob | DagsterAssets | OtherKind = Field(
        discriminator="what", description="What it runs: one of job, assets and kind."
    )


class Edit(dg.Config):
    """Changes what is given and leaves the rest. A new schedule is computed from now."""

    change: Literal["edit"] = "edit"
    task_id: str = Field(description=TASK_ID)
    title: str = Field("", description=f"What people call it. {KEEP}")
    cron: str = Field("", description=f"Five cron fields, which also take the place of an instant. {KEEP}")
    instant: str = Field("", description=f"Once, at this moment, which also takes the place of a cron. {KEEP}")
    timezone: str = Field("", description=f"IANA time zone whose clocks count. {KEEP}")
    runs: DagsterJob | DagsterAssets | OtherKind | AsBefore = Field(
        AsBefore(),
        discriminator="what",
        description="What it runs: one of job, assets, kind and as_before. It replaces the old as a whole.",
    )


class Pause(dg.Config):
    """Stops its firings until it is resumed. Its history stays."""

    change: Literal["pause"] = "pause"
    task_id: str = Field(description=TASK_ID)
    reason: str = Field("", description="Why, for those who look at it.")


class Resume(dg.Config):
    """Lets a paused or failed one fire again, computed from now: what it missed stays missed."""

    change: Literal["resume"] = "resume"
    task_id: str = Field(description=TASK_ID)


class Delete(dg.Config):
    """Ends it for good. Its history stays."""

    change: Literal["delete"] = "delete"
    task_id: str = Field(description=TASK_ID)


class EditSchedules(dg.Config):
    """One change of one schedule."""

    schedule: Create | Edit | Pause | Resume | Delete = Field(
        discriminator="change", description="The change: one of create, edit, pause, resume and delete."
    )


# What the Launchpad starts with: every field of a new schedule, so that none has to be known by heart.
EXAMPLE: dict[str, Any] = {
    "schedule": {
        "create": {
            "organization_id": "acme",
            "user_id": "ada",
            "title": "Weekly report",
            "cron": "0 9 * * MON",
            "instant": "",
            "timezone": DEFAULT_TIMEZONE,
            "runs": {
                "job": {
                    "name": "write the job's name here",
                    "location": "",
                    "repository": "",
                    "partition_key": "",
                    "dynamic_partitions": {},
                    "run_config": {},
                    "tags": {},
                }
            },
        }
    }
}
HOW = """Creates, edits, pauses, resumes or deletes a schedule. Launch it from the **Launchpad**, which starts with a
new schedule. The metadata of its step then say when it fires next.

For another change, write one of these in place of `create`:

```yaml
edit: {task_id: ..., cron: 30 8 * * MON-FRI}
pause: {task_id: ..., reason: on holiday}
resume: {task_id: ...}
delete: {task_id: ...}
```

and for other work, one of these in place of `job`:

```yaml
assets: {asset_keys: [report], partition_key: acme}
kind: {name: log, payload: {}}
```
"""
