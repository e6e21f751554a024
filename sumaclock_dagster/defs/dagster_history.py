"""The end of Dagster's own history, as far as it is ours: what Dagster's functions delete, and what they leave behind.

Ours is a Dagster run of one of our jobs, or a materialisation of our assets alone, launched from this code location.
Others' Dagster runs, in whichever code location, are never deleted, nor is one that has not ended.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta

import dagster as dg
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.scheduler.instigation import InstigatorState
from dagster._core.storage.compute_log_manager import ComputeIOType

from sumaclock_dagster import dagster_history
from sumaclock_dagster.dagster_history import Owned
from sumaclock_dagster.db import Connection
from sumaclock_dagster.defs.own import OWN_ASSETS, OWN_INSTIGATORS, OWN_JOBS

FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
BATCH = 100
ATTEMPTS = 10
Say = Callable[[str], None]


@dataclass(slots=True)
class Deleted:
    """Counts of what was deleted. tick_logs: files with the log lines of ticks that are gone."""

    dagster_runs: int = 0
    runs_of_events: int = 0
    check_executions: int = 0
    event_tags: int = 0
    snapshots: int = 0
    tick_logs: int = 0

    def in_words(self) -> dict[str, int]:
        return {f"deleted {field.name.replace('_', ' ')}": getattr(self, field.name) for field in fields(self)}


def label_of(run: dg.DagsterRun) -> str | None:
    """The code location that launched it; None for one that was executed within a process."""
    origin = run.remote_job_origin
    return origin.repository_origin.get_label() if origin else None


def old_runs(instance: dg.DagsterInstance, kept: set[str], before: datetime) -> Iterator[list[dg.DagsterRun]]:
    """Ended Dagster runs of our jobs and assets in any code location that were last updated before that moment, page by
    page, oldest first, without those whose ids are in `kept`."""
    for job in (*OWN_JOBS, IMPLICIT_ASSET_JOB_NAME):
        for page in _pages(instance, dg.RunsFilter(job_name=job, statuses=FINISHED, updated_before=before)):
            yield [run for run in page if run.run_id not in kept and _is_of_ours_alone(run)]


def runs_to_keep(instance: dg.DagsterInstance) -> set[str]:
    """Ids of the Dagster runs of the latest materialisation and observation of each of our assets: the UI shows them,
    however old they are."""
    kept = set()
    for record in instance.get_asset_records(OWN_ASSETS):
        latest = record.asset_entry.last_materialization
        kept.update([latest.run_id] if latest else [])
        kept.update(seen.run_id for seen in instance.fetch_observations(record.asset_entry.asset_key, limit=1).records)
    return kept


def prune(
    instance: dg.DagsterInstance, storage: Connection | None, label: str | None, before: datetime, say: Say
) -> Deleted:
    """Delete all history of ours from before that moment. `storage`: Dagster's database; without it, what Dagster's own
    functions leave behind stays. `label`: of the code location, see `label_of`. Interrupted, it goes on when called
    again."""
    deleted = Deleted()
    kept = runs_to_keep(instance)
    for page in old_runs(instance, kept, before):
        runs = [run for run in page if label_of(run) == label]
        for run in runs:
            delete_run(instance, run.run_id)
        deleted.dagster_runs += len(runs)
        if runs and storage is not None:
            deleted.snapshots += _delete_snapshots(storage, runs)
        if runs:
            say(f"{deleted.dagster_runs} Dagster runs deleted so far.")
    if storage is not None:
        owned = owned_by_us(kept)
        for run_ids in dagster_history.runless_events(storage, owned, before):
            for run_id in run_ids:
                delete_run(instance, run_id)
            deleted.runs_of_events += len(run_ids)
        deleted.check_executions = sum(dagster_history.prune_checks(storage, owned, before))
        deleted.event_tags = sum(dagster_history.prune_tags(storage, owned, before))
    return deleted


def delete_run(instance: dg.DagsterInstance, run_id: str) -> None:
    """The Dagster run with its events, and first the output of its steps, which nothing would find without it."""
    for _ in range(ATTEMPTS):
        try:
            instance.compute_log_manager.delete_logs(prefix=[run_id])
            break
        except FileNotFoundError:
            # Another prune takes the same files away, and may end before it has taken all.
            continue
    instance.delete_run(run_id)


def owned_by_us(kept: set[str]) -> Owned:
    return Owned(OWN_JOBS, tuple(key.to_string() for key in OWN_ASSETS), tuple(kept))


def purge_ticks(instance: dg.DagsterInstance, label: str | None, now: datetime, days: int) -> int:
    """Delete old ticks of our sensors and schedules in this code location, and the log lines of ticks that are gone.

    Dagster deletes ticks itself, by `retention` in dagster.yaml, but only while the sensor or schedule runs, and never
    their log lines. Where it says nothing of a status, ticks are kept for `days`. Returns how many logs were deleted.
    """
    logs = 0
    for state in instance.all_instigator_state():
        if state.instigator_name in OWN_INSTIGATORS and state.origin.repository_origin.get_label() == label:
            for status, kept_days in instance.get_tick_retention_settings(state.instigator_type).items():
                before = now - timedelta(days=kept_days if kept_days > 0 else days)
                instance.purge_ticks(state.instigator_origin_id, state.selector_id, before.timestamp(), [status])
            logs += _delete_logs_of_gone_ticks(instance, state)
    return logs


def _delete_logs_of_gone_ticks(instance: dg.DagsterInstance, state: InstigatorState) -> int:
    prefix = [state.origin.repository_origin.repository_name, state.instigator_name]
    try:
        keys = instance.compute_log_manager.get_log_keys_for_log_key_prefix(prefix, ComputeIOType.STDERR)
    except OSError:
        # No tick has ever written a line.
        return 0
    ids = {int(key[-1]): key for key in keys if key[-1].isdecimal()}
    storage = instance.schedule_storage
    if not ids or storage is None:
        return 0
    there = {tick.tick_id for tick in storage.get_ticks_by_ids(list(ids))}
    gone = [key for tick_id, key in ids.items() if tick_id not in there]
    for key in gone:
        instance.compute_log_manager.delete_logs(log_key=key)
    return len(gone)


def _pages(instance: dg.DagsterInstance, filters: dg.RunsFilter) -> Iterator[Sequence[dg.DagsterRun]]:
    page = instance.get_runs(filters, limit=BATCH, ascending=True)
    while page:
        # Before the page is handed out: a Dagster run that is deleted is no cursor any more.
        more = len(page) == BATCH
        following = instance.get_runs(filters, cursor=page[-1].run_id, limit=BATCH, ascending=True) if more else []
        yield page
        page = following


def _is_of_ours_alone(run: dg.DagsterRun) -> bool:
    if run.job_name != IMPLICIT_ASSET_JOB_NAME:
        return True
    keys = {*(run.asset_selection or ()), *(check.asset_key for check in run.asset_check_selection or ())}
    return bool(keys) and keys <= set(OWN_ASSETS)


def _delete_snapshots(storage: Connection, runs: Sequence[dg.DagsterRun]) -> int:
    jobs = {run.job_snapshot_id for run in runs if run.job_snapshot_id}
    plans = {run.execution_plan_snapshot_id for run in runs if run.execution_plan_snapshot_id}
    return dagster_history.delete_spent_snapshots(storage, sorted(jobs), sorted(plans))
