"""A process that dies by SIGKILL in the middle of a change: before its clock call, or right after it.

python -m tests.clock_crash <app url> <cron url> <database> <before|after> <change> <job id>
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from uuid import UUID

from sumaclock_dagster.clock.jobs import change_job, create_job, delete_job, pause_job, resume_job
from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.db import Connection, connect

OLD, NEW = "0 0 1 1 *", "5 4 1 1 *"


class DyingClock(Clock):
    point = ""

    def schedule(self, job_id: UUID, schedule: str, *, careful: bool = False) -> None:
        self._die_around(lambda: super(DyingClock, self).schedule(job_id, schedule, careful=careful))

    def unschedule(self, job_id: UUID) -> None:
        self._die_around(lambda: super(DyingClock, self).unschedule(job_id))

    def _die_around(self, call: Callable[[], None]) -> None:
        if self.point == "after":
            call()
        os.kill(os.getpid(), signal.SIGKILL)


def create(app: Connection, clock: Clock, job_id: UUID) -> None:
    create_job(
        app, clock, kind="k", organization_id="o", user_id="u", payload={}, schedule=OLD, enabled=True, job_id=job_id
    )


CHANGES: dict[str, Callable[[Connection, Clock, UUID], object]] = {
    "create": create,
    "change": lambda app, clock, job_id: change_job(app, clock, job_id, schedule=NEW),
    "pause": pause_job,
    "resume": resume_job,
    "delete": delete_job,
}


def main() -> None:
    app_url, cron_url, database, point, change, job_id = sys.argv[1:]
    clock = DyingClock(cron_url, database)
    clock.point = point
    CHANGES[change](connect(app_url, "test crash"), clock, UUID(job_id))


if __name__ == "__main__":
    main()
