"""Settling many tasks at once: in one transaction, and each as if it were alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from uuid import UUID

import psycopg

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.handlers import HandlerRun
from sumaclock_dagster.model import Outcome, SumaclockError
from sumaclock_dagster.tasks.access import REFUSED, Owner, refused_owners
from sumaclock_dagster.tasks.changes import Change, write
from sumaclock_dagster.tasks.execute import Alone, Executed, TransactionEnded, TryAgain, Work, execute
from sumaclock_dagster.tasks.locked import try_lock_and_read
from sumaclock_dagster.tasks.settle import Case, Rules, decide, settle


def settle_together(conn: Connection, runs: Sequence[HandlerRun], rules: Rules) -> dict[int, Outcome]:
    """Settle the tasks of the runs' jobs, and return the runs' outcomes by run id.

    What is missing there is to be settled by itself: tasks that somebody has locked, the second run of a job, and what
    may not, or can't be known to, go well together. So is everything when this raises; all is rolled back then.
    """
    first_of_job: dict[UUID, HandlerRun] = {}
    for run in runs:
        first_of_job.setdefault(run.job_id, run)
    begun: list[HandlerRun] = []
    try:
        with conn.transaction():
            return _settle_locked(conn, list(first_of_job.values()), rules, begun)
    except TransactionEnded as error:
        with suppress(psycopg.Error):
            conn.rollback()
        # What they did may stand without its record. Executing them again might do it twice.
        failed = Executed("failed", error=str(error))
        return {run.id: settle(conn, run, rules, failed) for run in begun}


def _settle_locked(
    conn: Connection, runs: Sequence[HandlerRun], rules: Rules, begun: list[HandlerRun]
) -> dict[int, Outcome]:
    conn.execute(query("wait_briefly"))
    tasks = try_lock_and_read(conn, runs)
    read_at = monotonic()
    refused = refused_owners(conn, {task.owner for task in tasks.values()}) if tasks else set()

    def refusal(owner: Owner) -> str | None:
        if rules.access_check is not None:
            # Nobody knows how long it takes.
            raise Alone
        return REFUSED if owner in refused else None

    def executed(run: HandlerRun, work: Work) -> Executed:
        begun.append(run)
        return execute(conn, run, work, rules.kinds, rules.result_max_bytes, together=True)

    outcomes: dict[int, Outcome] = {}
    changes: list[Change] = []
    for run in runs:
        task = tasks.get(run.job_id)
        if task is None:
            continue
        try:
            settled = decide(Case(run, task, read_at, refusal, executed))
        except TransactionEnded:
            raise
        except TryAgain as again:
            outcomes[run.id] = again.outcome
            continue
        except (Alone, SumaclockError):
            # Its kind was not executed.
            continue
        outcomes[run.id] = settled.outcome
        changes += settled.changes
    write(conn, changes)
    return outcomes
