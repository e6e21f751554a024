"""Is the app database made and migrated, and has its role exactly the rights that it needs?"""

from __future__ import annotations

from sumaclock_dagster.clock.faults import FaultKind
from sumaclock_dagster.db import query
from sumaclock_dagster.doctor.asking import value
from sumaclock_dagster.doctor.context import Context
from sumaclock_dagster.doctor.findings import Finding
from sumaclock_dagster.doctor.phrases import listed, quoted, two_sentences
from sumaclock_dagster.migrate import load_migrations, pending
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.queue.workers import live_workers


def first_boot(context: Context) -> Finding:
    missing: list[str] = value(context.app, "list_missing_first_boot")
    if not missing:
        return Finding("schema sumaclock and its functions are there")
    database, role = context.app.info.dbname, context.app.info.user
    return Finding(
        f"missing: {listed(missing)}",
        f"Database '{database}' lacks what sql/first_boot.sql makes ({listed(missing)}).",
        f"As a superuser run `psql -X -d postgres -f sql/first_boot.sql -v app_db={database} -v app_role={role}`.",
    )


def migrations(context: Context) -> Finding:
    files = load_migrations()
    try:
        waiting = pending(context.app, files)
    except SumaclockError as refused:
        problem, remedy = two_sentences(refused, "Deploy the code that fits the database.")
        return Finding("the database and this code do not fit", problem, remedy)
    newest = files[-1].name if files else "none"
    if not waiting:
        return Finding(f"migrated up to {newest}")
    names = listed([migration.name for migration in waiting])
    return Finding(
        f"pending: {names}",
        f"Database '{context.app.info.dbname}' lacks {len(waiting)} of {len(files)} migrations ({names}).",
        "Run `sumaclock migrate`, with SUMACLOCK_OWNER_DATABASE_URL naming the owner role.",
    )


def code_locations(context: Context) -> Finding:
    """Each with sumaclock in it would execute the other's runs, without its kinds and targets."""
    names = sorted({worker.code_location for worker in live_workers(context.app) if worker.code_location is not None})
    if len(names) < 2:
        return Finding("workers are of one code location" if names else "no code location's worker lives")
    return Finding(
        f"{len(names)} code locations with workers: {listed(names)}",
        f"The code locations {listed(names)} keep workers in one app database, and each takes the other's runs.",
        "Keep sumaclock in one of them, or give each an app database of its own; after a renaming it passes when the "
        "last worker of the old name has reached SUMACLOCK_WORKER_LIFE_SECONDS.",
    )


def role_limits(context: Context) -> Finding:
    """The app role fires every clock job, so whatever it may do, a clock job may do."""
    role = context.app.info.user
    too_strong = context.app.execute(query("list_excessive_powers")).fetchall()
    if not too_strong:
        return Finding(f"role '{role}' has no power over the cluster")
    powers, statements = [str(row[0]) for row in too_strong], [str(row[1]) for row in too_strong]
    return Finding(
        f"role '{role}' {listed(powers)}",
        f"Role '{role}' can do more than its work: it {listed(powers)}.",
        f"As a superuser run `{' '.join(statements)}`, or use a role made by sql/first_boot.sql.",
    )


def app_rights(context: Context) -> Finding:
    return _rights(context, cron=False)


def cron_rights(context: Context) -> Finding:
    return _rights(context, cron=True)


def _rights(context: Context, *, cron: bool) -> Finding:
    connection = context.cron if cron else context.app
    place = "cron" if cron else "app"
    rows = connection.execute(query(f"compare_{place}_rights")).fetchall()
    lacking = [(str(right), str(statement)) for right, statement, needed in rows if needed]
    beyond = [(str(right), str(statement)) for right, statement, needed in rows if not needed]
    role, database = connection.info.user, connection.info.dbname
    # What is missing breaks the work, so it comes first; the rest shows once that is mended.
    wrong, verb = (lacking, "lacks") if lacking else (beyond, "has more than it needs:")
    if not wrong:
        return Finding(f"role '{role}' has exactly what it needs in database '{database}'")
    rights = listed([right for right, _ in wrong])
    statements = " ".join(dict.fromkeys(statement for _, statement in wrong))
    # Rights that PUBLIC has may be a neighbour's only ones; first_boot.sql gives those to the neighbour by name first.
    boot = "" if lacking else " (sql/first_boot.sql does it too, and keeps what other applications use)"
    return Finding(
        f"{FaultKind.PRIVILEGE_MISSING.value if lacking else 'too much'}: {rights}",
        f"In database '{database}', role '{role}' {verb} {rights}.",
        f"As a superuser run `{statements}` in database {quoted(database)}{boot if cron else ''}.",
    )
