"""The tasks of the demo: one for the next minute, and one for Mondays at 9:00 in Madrid."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from sumaclock_dagster.calendar import DEFAULT_TIMEZONE, in_words, parse_schedule
from sumaclock_dagster.calendar.zones import zone_named
from sumaclock_dagster.clock.jobs import database_time
from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.queue.workers import live_workers
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.tasks import api
from sumaclock_dagster.tasks.records import Task, TaskStatus
from sumaclock_dagster.tasks.waiting import await_placed

APPLICATION = "sumaclock up"
OWNER = "demo"
ONCE = "Hello, once"
WEEKLY = "Hello, every week"
PLACED_SECONDS = 5.0
# A clock job that is made later in a minute may miss the next.
LATEST_SECOND = 50


def ensure_demo_tasks(settings: Settings, kind: str) -> list[Task]:
    """The two tasks, made if they are not there, and placed where a worker lives. The one for the next minute is of
    `kind`, and set anew where it is over; what somebody paused or deleted stays so. Raises SumaclockError."""
    with connect(settings.app_url, APPLICATION) as app:
        gone = {task.title for task in _of_demo(app, deleted=True)}
        found = {task.title: task for task in _of_demo(app)}
        ids: list[UUID] = []
        if ONCE in found:
            ids.append(found[ONCE].id)
            if found[ONCE].status in (TaskStatus.DONE, TaskStatus.FAILED):
                api.update(app, found[ONCE].id, kind=kind, instant=_next_minute(app))
        elif ONCE not in gone:
            ids.append(_create(app, kind, ONCE, instant=_next_minute(app)))
        if WEEKLY in found:
            ids.append(found[WEEKLY].id)
        elif WEEKLY not in gone:
            ids.append(_create(app, "log", WEEKLY, cron="0 9 * * MON"))
        seconds = PLACED_SECONDS if live_workers(app) else 0
        return [await_placed(app, task_id, seconds) for task_id in ids]


def told(task: Task) -> str:
    """A task on one line: when it fires next, in local time and in UTC, and what it is."""
    what = (
        task.title
        if task.cron is None
        else f"{task.title}: {in_words(parse_schedule(task.cron, timezone=task.timezone), 'en')}"
    )
    if task.next_run_at is None:
        return f"{what}; {task.status.value}"
    local = task.next_run_at.astimezone(zone_named(task.timezone)).isoformat(" ", "minutes")
    return f"{local[:16]} {local[16:]} = {task.next_run_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC  {what}"


def _of_demo(app: Connection, *, deleted: bool = False) -> list[Task]:
    return api.list_tasks(app, organization_id=OWNER, user_id=OWNER, deleted=deleted)


def _create(
    app: Connection, kind: str, title: str, *, cron: str | None = None, instant: datetime | None = None
) -> UUID:
    return api.create(
        app,
        organization_id=OWNER,
        user_id=OWNER,
        kind=kind,
        title=title,
        cron=cron,
        instant=instant,
        timezone=DEFAULT_TIMEZONE,
    )


def _next_minute(app: Connection) -> datetime:
    now = database_time(app)
    return now.replace(second=0, microsecond=0) + timedelta(minutes=1 if now.second < LATEST_SECOND else 2)
