"""A task's clock job follows its row. Done after each settling, so that a crash in between is mended by the next."""

from __future__ import annotations

from uuid import UUID

from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.clock.placing import place_task_job
from sumaclock_dagster.db import Connection, query


def align(conn: Connection, clock: Clock, job_id: UUID) -> None:
    """Let the clock job of a task's job be what the committed row says: at its next occurrence, or gone. By a slot it
    fires without a change of pg_cron, once the slot is there.

    The lock on the job's id lets one session at a time look and act, so what the last of them saw stands. `enabled`
    falls after the clock job is gone, and rises with it: until then a run that a crash left behind is still executed,
    and comes here again. Raises SumaclockError when pg_cron can't be reached.
    """
    with conn.transaction():
        conn.execute(query("lock_job"), {"job_id": job_id})
        row = conn.execute(query("read_task_placement"), {"job": job_id}).fetchone()
        if row is None:
            return
        fires, next_run_at, schedule, in_slot = row
        if not fires:
            if not in_slot:
                clock.unschedule(job_id)
            conn.execute(query("disable_task_job"), {"job": job_id})
        elif next_run_at is not None:
            place_task_job(conn, clock, job_id, schedule, in_slot=in_slot)
            conn.execute(query("confirm_task_placement"), {"job": job_id, "next_run_at": next_run_at})
