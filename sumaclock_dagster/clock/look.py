"""Reading the signs of the clock's health. A look changes nothing, and needs no right beyond the app role's."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from psycopg import errors
from psycopg.rows import dict_row

from sumaclock_dagster.calendar import pg_cron_for
from sumaclock_dagster.clock.faults import quoted
from sumaclock_dagster.clock.pg_cron import clock_job_name
from sumaclock_dagster.clock.signs import ClockRows, Lack, Launcher, Outcome, Signs
from sumaclock_dagster.clock.slots import SLOT_PREFIX, slot_id
from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.raw_schedule import previous_utc

# A firing of thousands that are due at once takes its time; from here on it is told.
GRACE_SECONDS = 60.0
# A crash loop shows its launcher for milliseconds in each second, and leaves a rollback behind each time.
WATCH_SECONDS = 3.2
SETTLED_SECONDS = 0.4
PAUSE_SECONDS = 0.002
CRASHES = 2
# What was due longer ago has been fired by the heartbeat, and says little of now.
LOOK_BACK = timedelta(minutes=15)
SECONDS_BACK = timedelta(minutes=1)

Values = Mapping[str, Any]


def read_signs(app: Connection, cron: Connection, superuser: Connection | None = None) -> Signs:
    """Look now, for up to 3 s where the launcher is not simply there.

    superuser: a connection to pg_cron's database that sees all rows of cron.job.
    Raises psycopg.Error where the databases cannot be read.
    """
    for conn in (app, cron):
        conn.execute(query("limit_look_session"))
    values = _ground(app, cron)
    if values["is_standby"]:
        return Signs(**values)
    pid = _launcher(cron)
    unloaded = values["settings"] == {}
    launcher = Launcher.ALIVE if pid is not None or unloaded else _watched(cron)
    values |= {"without_role": _without_role(superuser), "lacking": _lacking(app, cron, Signs(**values))}
    if not values["lacking"] and not unloaded:
        # Before the first migration there is no work to look at.
        with suppress(errors.UndefinedTable, errors.UndefinedColumn):
            values |= _signs_of_work(app, cron, Signs(**values))
        # A look may fall into the moment in which a crashing launcher is there.
        if launcher is Launcher.ALIVE and _launcher(cron) != pid and pid is not None:
            launcher = _watched(cron)
    return Signs(**values | {"launcher": launcher})


def _ground(app: Connection, cron: Connection) -> dict[str, Any]:
    ground = dict(_row(app, "read_fault_ground"))
    started = ground.pop("server_started_at")
    known = _value(app, "has_clock_settings")
    rows = app.execute(query("read_clock_settings")).fetchall() if known else None
    settings = None if rows is None else {str(name).removeprefix("cron."): str(value) for name, value in rows}
    return {**ground, "cron_database": cron.info.dbname, "newest": started, "settings": settings}


def _signs_of_work(app: Connection, cron: Connection, signs: Signs) -> dict[str, Any]:
    here = {"database": signs.database, "host": signs.host, "background": signs.uses_workers}
    started = signs.newest
    entries = (_value(app, "find_newest_firing"), _value(cron, "find_newest_clock_entry"), started)
    outcome = cron.execute(query("find_last_outcome"), here).fetchone()
    logs = (signs.settings or {}).get("log_run") != "off"
    due_before = signs.seen_at - timedelta(seconds=GRACE_SECONDS)
    # Without a log of firings nobody can tell what pg_cron began.
    unstarted = _unstarted(app, cron, here, started or signs.seen_at, due_before) if logs else []
    return {
        "newest": max((at for at in entries if at is not None), default=None),
        "rows": _rows(app, cron, here),
        "last_outcome": None if outcome is None else Outcome(*outcome),
        "slot_failures": _value(cron, "count_slot_failures"),
        "unstarted": len(unstarted),
        "due_since": min(unstarted, default=None),
        "running": _value(cron, "count_clock_sessions", background=signs.uses_workers),
        "late_starts": _value(cron, "count_late_starts"),
    }


def _launcher(cron: Connection) -> int | None:
    pid = _value(cron, "find_launcher")
    return None if pid is None else int(pid)


def _watched(cron: Connection) -> Launcher:
    """Watch closely for a while: one that comes and goes is crashing, one that comes back and stays is alive."""
    started = came = time.monotonic()
    before = now = _row(cron, "watch_launcher")
    was_seen = False
    while (moment := time.monotonic()) < started + WATCH_SECONDS:
        last, now = now, _row(cron, "watch_launcher")
        if now["pid"] != last["pid"]:
            came = moment
        if now["pid"] is not None:
            was_seen = True
            if moment - came > SETTLED_SECONDS:
                return Launcher.ALIVE
        threading.Event().wait(PAUSE_SECONDS)
    left_traces = all(now[trace] - before[trace] >= CRASHES for trace in ("reads", "rollbacks"))
    return Launcher.CRASHING if was_seen or left_traces else Launcher.GONE


def _lacking(app: Connection, cron: Connection, signs: Signs) -> tuple[Lack, ...]:
    """What the role needs and has not, of both databases."""
    found = []
    database, role = signs.database, quoted(cron.info.user)
    if signs.settings is None:
        what = "function sumaclock.clock_settings()"
        found.append(Lack(f"EXECUTE on {what}", f"grant execute on {what} to {role};", database))
    for conn, name in ((app, "compare_app_rights"), (cron, "compare_cron_rights")):
        rows = conn.execute(query(name)).fetchall()
        found += [Lack(str(right), str(statement), conn.info.dbname) for right, statement, needed in rows if needed]
    may_log_in, may_connect = cron.execute(query("may_fire"), {"database": database}).fetchone() or (True, True)
    if not may_log_in:
        found.append(Lack("LOGIN", f"alter role {role} login;", cron.info.dbname))
    if not may_connect:
        grant = f"grant connect on database {quoted(database)} to {role};"
        found.append(Lack(f"CONNECT on database '{database}'", grant, cron.info.dbname))
    return tuple(found)


def _rows(app: Connection, cron: Connection, here: Values) -> ClockRows:
    jobs, stray, place, lost = cron.execute(query("sum_up_clock_rows"), here).fetchone() or (0, 0, None, [])
    for group in lost:
        # A neighbour of the same role may have lost a database as well, with slots of the same names.
        ids = {"ids": group["ids"] or [], "slots": group["slots"] or []}
        known, slots = app.execute(query("count_jobs_by_id"), ids).fetchone() or (0, 0)
        if known or (slots and not jobs):
            return ClockRows(jobs, stray, place or "", group["jobs"], group["database"])
    return ClockRows(jobs, stray, place or "")


def _unstarted(
    app: Connection, cron: Connection, here: Values, started: datetime, due_before: datetime
) -> list[datetime]:
    """The due minutes of clock jobs that are as they should be, and that pg_cron has not begun since."""
    since = max(due_before - LOOK_BACK, started)
    moments = {
        schedule: moment
        for (schedule,) in app.execute(query("list_raw_schedules")).fetchall()
        if (moment := _last_due(schedule, due_before)) is not None and moment > since
    }
    values = {
        "schedules": list(moments),
        "moments": list(moments.values()),
        "since": since,
        "due_before": due_before,
    }
    jobs = app.execute(query("list_unfired_jobs"), values).fetchall()
    if not jobs:
        return []
    # Each has a clock job of its own or, with its schedule, a slot's.
    due = [(job_id, schedule or pg_cron_for(moment), moment) for job_id, schedule, moment in jobs]
    own = [(clock_job_name(here["database"], job_id), schedule, moment) for job_id, schedule, moment in due]
    slots = [
        (clock_job_name(here["database"], slot_id(schedule), SLOT_PREFIX), schedule, moment)
        for _, schedule, moment in due
    ]
    names, schedules, dues = zip(*dict.fromkeys([*own, *slots]), strict=True)
    wanted = {**here, "names": list(names), "schedules": list(schedules), "moments": list(dues)}
    return [due for _, due in cron.execute(query("list_unstarted_clock_jobs"), wanted).fetchall()]


def _last_due(schedule: str, due_before: datetime) -> datetime | None:
    try:
        # "N seconds" fires at least once a minute.
        return previous_utc(schedule, due_before) or due_before - SECONDS_BACK
    except SumaclockError:
        return None


def _without_role(superuser: Connection | None) -> Mapping[str, tuple[int, ...]] | None:
    if superuser is None:
        return None
    rows = superuser.execute(query("list_clock_jobs_without_role")).fetchall()
    return {str(role): tuple(ids) for role, ids in rows}


def _row(conn: Connection, name: str) -> dict[str, Any]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query(name)).fetchall()[0]


def _value(conn: Connection, name: str, **values: Any) -> Any:
    row = conn.execute(query(name), values or None).fetchone()
    return row[0] if row else None
