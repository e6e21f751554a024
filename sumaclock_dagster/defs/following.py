"""What became of launched Dagster runs: found by their tag, followed by their id until they end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import dagster as dg
from dagster._core.storage.tags import AUTO_RETRY_RUN_ID_TAG, GRPC_INFO_TAG, WILL_RETRY_TAG

from sumaclock_dagster.db import Connection
from sumaclock_dagster.defs.lost import UNDER_WAY, report_lost
from sumaclock_dagster.defs.run_processes import is_seen, process_of, this_machine
from sumaclock_dagster.launches import progress
from sumaclock_dagster.launches.progress import End, Launched, Sought
from sumaclock_dagster.queue.workers import read_clock
from sumaclock_dagster.settings import Settings

LAUNCH_TAG = "sumaclock/launch"
ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
NOT_BEGUN = [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING]
LOOKED_UP = 100
STEPS_TOLD = 3
# So says a code server under which a process ended before its Dagster run did.
PROCESS_DIED = "Run execution process for"
STEP_MAX_CHARS = 2000


def find(instance: dg.DagsterInstance, conn: Connection, sought: Sequence[Sought]) -> set[int]:
    """Note which of these launches have a Dagster run by now. Returns the launches' ids.

    A Dagster run that was executed again carries the same tags: the first one counts.
    """
    found: dict[int, str] = {}
    for start in range(0, len(sought), LOOKED_UP):
        by_key = {str(one.launch_key): one.id for one in sought[start : start + LOOKED_UP]}
        records = instance.get_run_records(dg.RunsFilter(tags={LAUNCH_TAG: list(by_key)}), ascending=True)
        for record in records:
            found.setdefault(by_key[record.dagster_run.tags[LAUNCH_TAG]], record.dagster_run.run_id)
    progress.note_launched(conn, found)
    return set(found)


def follow(instance: dg.DagsterInstance, conn: Connection) -> int:
    """End the launches whose Dagster run has ended. Returns how many are still under way."""
    open_launches = 0
    for page in _pages(conn):
        filters = dg.RunsFilter(run_ids=list(page), statuses=ENDED)
        runs = [record.dagster_run for record in instance.get_run_records(filters)]
        ends = [_end(instance, conn, page[run.run_id], run) for run in runs]
        open_launches += len(page) - progress.end(conn, [end for end in ends if end is not None])
    return open_launches


def give_up(instance: dg.DagsterInstance, conn: Connection, start_seconds: float) -> int:
    """End the launches whose Dagster run was deleted, or has not begun within `start_seconds` though nothing holds it
    back. Returns how many ended. One that waits in Dagster's queue waits as long as it takes."""
    now, ended = read_clock(conn), 0
    for page in _pages(conn):
        records = {r.dagster_run.run_id: r for r in instance.get_run_records(dg.RunsFilter(run_ids=list(page)))}
        ends = []
        for run_id, launch in page.items():
            record = records.get(run_id)
            if record is None:
                ends.append(End(launch.id, f"Dagster run {run_id} was deleted before it had ended."))
            elif _hangs(record, launch, now, start_seconds):
                reason = f"It had not begun {start_seconds:g} s after it was launched."
                # Whatever launches it later finds that it is over.
                instance.report_run_failed(record.dagster_run, reason)
                ends.append(End(launch.id, f"Dagster run {run_id} failed: {reason}"))
        ended += progress.end(conn, ends)
    return ended


def give_up_lost(instance: dg.DagsterInstance, conn: Connection, here: str, settings: Settings) -> int:
    """Report to Dagster the end of launched Dagster runs whose process is gone; `follow` then ends their launches.
    Returns how many. here: this code location."""
    now, machine, lost = read_clock(conn), this_machine(), 0
    for page in _pages(conn):
        runs = instance.get_runs(dg.RunsFilter(run_ids=list(page), statuses=UNDER_WAY))
        # Of another location a process that is not here is gone only where it was seen before.
        noted = {run.run_id: page[run.run_id].seen_on for run in runs if _location(run) != here}
        news = {run.run_id: _seen_on(instance, run, machine) for run in runs if noted.get(run.run_id, "") is None}
        progress.note_seen(conn, {page[run_id].id: seen_on for run_id, seen_on in news.items() if seen_on is not None})
        noted.update(news)
        # One that was launched a moment ago can't have been silent for long.
        old = [run for run in runs if page[run.run_id].seconds > settings.dagster_lost_seconds]
        seen = {run.run_id for run in old if noted.get(run.run_id, machine) == machine}
        lost += report_lost(instance, old, seen, settings, now)
    return lost


def _location(run: dg.DagsterRun) -> str | None:
    return run.remote_job_origin.location_name if run.remote_job_origin is not None else None


def _seen_on(instance: dg.DagsterInstance, run: dg.DagsterRun, machine: str) -> str | None:
    """This machine where the run's process is one of it, "" where it is not, None where it hasn't begun."""
    process = process_of(instance, run.run_id)
    if process is None:
        return None
    return machine if is_seen(process, run.tags.get(GRPC_INFO_TAG, "")) else ""


def _pages(conn: Connection) -> Iterator[Mapping[str, Launched]]:
    """The launches that are under way by Dagster run id, a page at a time."""
    page = progress.launched(conn)
    while page:
        yield {str(launch.dagster_run_id): launch for launch in page}
        page = progress.launched(conn, after=page[-1].id)


def _hangs(record: dg.RunRecord, launch: Launched, now: float, start_seconds: float) -> bool:
    waits = record.dagster_run.status in NOT_BEGUN and launch.seconds > start_seconds
    return waits and now - record.update_timestamp.timestamp() > start_seconds


def _end(instance: dg.DagsterInstance, conn: Connection, launch: Launched, run: dg.DagsterRun) -> End | None:
    """None where Dagster retries the run by itself: its last try says how it ends."""
    result = {"dagster_run_id": run.run_id, "job": run.job_name, "status": run.status.value}
    if run.status == dg.DagsterRunStatus.SUCCESS:
        return End(launch.id, None, result)
    if run.status == dg.DagsterRunStatus.CANCELED:
        return End(launch.id, f"Dagster run {run.run_id} was canceled.", result)
    if run.tags.get(WILL_RETRY_TAG) == "true":
        retry = run.tags.get(AUTO_RETRY_RUN_ID_TAG)
        if retry:
            progress.follow_retry(conn, launch.id, retry)
        return None
    return End(launch.id, _why_it_failed(instance, run), result)


def _why_it_failed(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    kinds = {dg.DagsterEventType.RUN_FAILURE, dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.ENGINE_EVENT}
    events = [entry.dagster_event for entry in instance.all_logs(run.run_id, of_type=kinds) if entry.dagster_event]
    why = [event.message for event in events if event.event_type_value == "PIPELINE_FAILURE" and event.message]
    steps = [
        f"{event.step_key}: {_root(event.step_failure_data.error)}"
        for event in events
        if event.is_step_failure and event.step_failure_data.error
    ]
    # Where the process died, this says how, and the failure only that somebody else noted it.
    died = [event.message for event in events if event.message and PROCESS_DIED in event.message]
    head = f"Dagster run {run.run_id} failed: {(died or why or ['it gave no reason.'])[-1]}"
    return "\n".join([head, *steps[:STEPS_TOLD]])


def _root(error: object) -> str:
    """What the user's code raised, below what Dagster wraps around it."""
    while (cause := getattr(error, "cause", None)) is not None:
        error = cause
    return str(getattr(error, "message", error)).strip()[:STEP_MAX_CHARS]
