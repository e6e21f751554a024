"""Rule 14, history ends too: what prune deletes, what it keeps, and that it never deletes much at once."""

from __future__ import annotations

from sumaclock_dagster.db import Connection
from sumaclock_dagster.prune import prune_core_api_jobs, prune_runs, prune_workers

INSERT_RUNS = """
insert into sumaclock.cron_runs (job_id, status, scheduled_at, finished_at, error, attempts, claimed_by)
select %(job)s, %(status)s::sumaclock.run_status, now() - %(ago)s::interval, now() - %(ago)s::interval,
       case when %(status)s::text in ('failed', 'skipped') then 'E' end, 1, 1
from generate_series(1, %(count)s)
"""


def add_job(app: Connection) -> str:
    row = app.execute(
        "insert into sumaclock.cron_jobs (kind, organization_id, user_id, schedule)"
        " values ('demo', 'acme', 'ana', '* * * * *') returning id"
    ).fetchone()
    assert row is not None
    return str(row[0])


def add_runs(app: Connection, job: str, status: str, ago: str, count: int) -> None:
    app.execute(INSERT_RUNS, {"job": job, "status": status, "ago": ago, "count": count})


def count(app: Connection, table: str) -> int:
    row = app.execute(f"select count(*) from sumaclock.{table}").fetchone()
    assert row is not None
    return int(row[0])


def test_rule_14_history_ends_too(app: Connection) -> None:
    job = add_job(app)
    for status in ("done", "failed", "skipped"):
        add_runs(app, job, status, "31 days", 20)
        add_runs(app, job, status, "29 days", 5)

    assert sum(prune_runs(app, 30)) == 60

    kept = app.execute("select status::text, count(*) from sumaclock.cron_runs group by 1 order by 1").fetchall()
    assert kept == [("done", 5), ("failed", 5), ("skipped", 5)]


def test_unfinished_runs_stay_however_old_they_are(app: Connection) -> None:
    job = add_job(app)
    app.execute(
        "insert into sumaclock.cron_runs (job_id, scheduled_at, due_at) select %s, now() - interval '1 year',"
        " now() - interval '1 year' from generate_series(1, 30)",
        [job],
    )
    app.execute(
        "insert into sumaclock.cron_runs (job_id, scheduled_at, status, attempts, claimed_by, started_at, heartbeat_at)"
        " select %s, now() - interval '1 year', 'running', 1, 7, now() - interval '1 year', now()"
        " from generate_series(1, 30)",
        [job],
    )
    add_runs(app, job, "done", "40 days", 10)

    assert sum(prune_runs(app, 30, batch=8)) == 10, "the unfinished ones before them do not end the walk"
    assert count(app, "cron_runs") == 60


def test_prune_walks_in_small_batches_and_stops_at_young_runs(app: Connection) -> None:
    job = add_job(app)
    add_runs(app, job, "done", "31 days", 2500)
    add_runs(app, job, "done", "1 day", 5000)

    assert list(prune_runs(app, 30)) == [1000, 1000, 500, 0], "and then one look at young runs, not five"


def test_each_batch_is_a_transaction_of_its_own(app: Connection) -> None:
    job = add_job(app)
    add_runs(app, job, "done", "31 days", 30)

    deleted = 0
    for batch in prune_runs(app, 30, batch=10):
        deleted += batch
        assert not app.info.transaction_status, "nothing is open between batches"
        assert count(app, "cron_runs") == 30 - deleted
    assert deleted == 30


def test_an_empty_queue_is_one_look(app: Connection) -> None:
    assert list(prune_runs(app, 30)) == [0]
    assert list(prune_workers(app, 30)) == [0]


def test_core_api_jobs_that_ended_long_ago_go_and_waiting_ones_stay(app: Connection) -> None:
    app.execute(
        "insert into sumaclock.core_api_jobs (idempotency_key, organization_id, user_id, path, status, attempts,"
        " created_at, finished_at, last_error) select 'k' || row_number() over (), 'o', 'u', '/x',"
        " status::sumaclock.core_api_status, 1, now() - interval '40 days', now() - ended, 'E' from (values"
        " ('pending', null), ('sending', null), ('done', interval '31 days'), ('failed', interval '31 days'),"
        " ('done', interval '1 day'), ('failed', interval '1 day')) v (status, ended)"
    )

    assert sum(prune_core_api_jobs(app, 30, batch=2)) == 2
    kept = app.execute("select status::text, count(*) from sumaclock.core_api_jobs group by 1 order by 1").fetchall()
    assert kept == [("done", 1), ("failed", 1), ("pending", 1), ("sending", 1)]


def test_workers_that_stopped_long_ago_go_and_living_ones_stay(app: Connection) -> None:
    app.execute(
        "insert into sumaclock.workers (code_version, requested_at, started_at, heartbeat_at, retires_at, stopped_at)"
        " select 'v', t, t, t, t, s from (values (now() - interval '40 days', now() - interval '31 days'),"
        " (now() - interval '40 days', now() - interval '1 day'), (now() - interval '40 days', null)) v (t, s)"
    )

    assert sum(prune_workers(app, 30)) == 1
    assert count(app, "workers") == 2
