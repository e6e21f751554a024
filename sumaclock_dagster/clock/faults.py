"""What can be wrong with the clock, by name. Pure: from signs that were read to faults with their remedies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from sumaclock_dagster.clock.signs import Launcher, Signs

# pg_cron waits for the time to catch up from a whole minute on.
SET_BACK_SECONDS = 60.0


class FaultKind(StrEnum):
    """The names are those of metrics and checks: settled."""

    LAUNCHER_GONE = "launcher_gone"
    LAUNCHER_CRASHES = "launcher_crashes"
    LOGINS_REFUSED = "logins_refused"
    PRIVILEGE_MISSING = "privilege_missing"
    RENAMED = "renamed"
    STANDBY = "standby"
    FIRES_ELSEWHERE = "fires_elsewhere"
    CLOCK_SET_BACK = "clock_set_back"
    WORKER_SLOTS_SHORT = "worker_slots_short"
    CHANGE_MISSED = "change_missed"
    QUEUE_FULL = "queue_full"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Fault:
    """problem: what is wrong. remedy: what to do. One sentence each, without secrets."""

    kind: FaultKind
    problem: str
    remedy: str


def diagnose(signs: Signs) -> list[Fault]:
    """Every fault that the signs show, causes before effects. What one fault explains is not told as another."""
    if signs.is_standby:
        return [_standby()]
    found = [
        *_renamed(signs),
        *_privileges(signs),
        *_launcher(signs),
        *_elsewhere(signs),
        *_set_back(signs),
        *_slots(signs),
        *_logins(signs),
    ]
    # These three leave due clock jobs unbegun, too, and so does a clock that cannot be read.
    stopped = {
        FaultKind.PRIVILEGE_MISSING,
        FaultKind.LAUNCHER_GONE,
        FaultKind.LAUNCHER_CRASHES,
        FaultKind.CLOCK_SET_BACK,
        FaultKind.WORKER_SLOTS_SHORT,
    }
    return found if stopped & {fault.kind for fault in found} else [*found, *_unstarted(signs)]


def quoted(identifier: str) -> str:
    """An identifier as SQL writes it, for statements that a person is to run."""
    return '"' + identifier.replace('"', '""') + '"'


def _standby() -> Fault:
    return Fault(
        FaultKind.STANDBY,
        "The server is a standby, where nothing can be written and pg_cron does not run.",
        "Point SUMACLOCK_DATABASE_URL and SUMACLOCK_CRON_DATABASE_URL at the primary, or promote this server.",
    )


def _renamed(signs: Signs) -> Iterator[Fault]:
    if signs.first_boot_role and signs.first_boot_role != signs.role:
        yield Fault(
            FaultKind.RENAMED,
            f"Database '{signs.database}' was made for app role '{signs.first_boot_role}', and role '{signs.role}' "
            "works in it.",
            f"Rename the role back (`alter role {quoted(signs.role)} rename to {quoted(signs.first_boot_role)};`), or "
            "as a superuser run sql/first_boot.sql with the new name (-v app_role=...), delete the rows of cron.job "
            "that name the old one, and run `sumaclock drift --fix`.",
        )
    if signs.rows.lost:
        old = signs.rows.lost_database
        yield Fault(
            FaultKind.RENAMED,
            f"{signs.rows.lost} clock jobs of ours fire into database '{old}', which does not exist: database "
            f"'{signs.database}' has been renamed.",
            f"Run `sumaclock drift --fix`, which makes them anew, and remove the old ones: as role '{signs.role}' run "  # noqa: S608  (read by people)
            f"`select cron.unschedule(jobid) from cron.job where database = '{_literal(old)}';` in database "
            f"{quoted(signs.cron_database)}.",
        )


def _privileges(signs: Signs) -> Iterator[Fault]:
    for database in sorted({lack.database for lack in signs.lacking}):
        here = [lack for lack in signs.lacking if lack.database == database]
        statements = " ".join(dict.fromkeys(lack.statement for lack in here))
        yield Fault(
            FaultKind.PRIVILEGE_MISSING,
            f"In database '{database}', role '{signs.role}' lacks {', '.join(lack.right for lack in here)}.",
            f"As a superuser run `{statements}` in database {quoted(database)}, or sql/first_boot.sql.",
        )


def _launcher(signs: Signs) -> Iterator[Fault]:
    renamed = signs.first_boot_role not in ("", signs.role)
    # An old name of ours in cron.job is such a row, and is told as what it is.
    dropped = {role: ids for role, ids in (signs.without_role or {}).items() if role != signs.first_boot_role}
    if dropped:
        rows = "; ".join(f"{_numbers(ids)} of role '{role}'" for role, ids in dropped.items())
        ids = ", ".join(str(jobid) for ids in dropped.values() for jobid in ids[:100])
        now = "crashes" if signs.launcher is not Launcher.ALIVE else "will crash at the next change of cron.job"
        yield Fault(
            FaultKind.LAUNCHER_CRASHES,
            f"cron.job has rows whose role does not exist ({rows}), on which pg_cron's launcher {now}.",
            f"As a superuser run `delete from cron.job where jobid in ({ids});` in database "  # noqa: S608  (for people)
            f"{quoted(signs.cron_database)}.",
        )
    elif signs.launcher is Launcher.CRASHING:
        if not renamed:
            yield Fault(
                FaultKind.LAUNCHER_CRASHES,
                "pg_cron's launcher starts and crashes again and again, so nothing fires in the whole cluster: most "
                "likely a row of cron.job has a role that was dropped.",
                "As a superuser, who alone sees such rows, run `delete from cron.job where username not in (select "  # noqa: S608  (for people)
                f"rolname from pg_catalog.pg_roles);` in database {quoted(signs.cron_database)}; if it crashes still, "
                "the server's log says why.",
            )
    elif signs.settings == {}:
        yield Fault(
            FaultKind.LAUNCHER_GONE,
            "pg_cron is not loaded, so nothing fires.",
            "Set shared_preload_libraries = 'pg_cron' in postgresql.conf (after any others) and restart PostgreSQL.",
        )
    elif signs.launcher is Launcher.GONE:
        yield Fault(
            FaultKind.LAUNCHER_GONE,
            "pg_cron's launcher is gone, so nothing fires.",
            "Somebody ended it, or it could not start: restart PostgreSQL, and look for pg_cron in its log if the "
            "launcher does not come back.",
        )


def _elsewhere(signs: Signs) -> Iterator[Fault]:
    rows = signs.rows
    if rows.stray and not signs.uses_workers:
        yield Fault(
            FaultKind.FIRES_ELSEWHERE,
            f"{rows.stray} of {rows.jobs} clock jobs fire at {rows.stray_place} instead of this server ({signs.host}), "
            "as after a promotion, a move or a restored copy.",
            "Run `sumaclock drift --fix`, which makes them anew, or as a superuser update nodename and nodeport in "
            "cron.job.",
        )


def _set_back(signs: Signs) -> Iterator[Fault]:
    if signs.newest is None:
        return
    ahead = (signs.newest - signs.seen_at).total_seconds()
    if ahead >= SET_BACK_SECONDS:
        yield Fault(
            FaultKind.CLOCK_SET_BACK,
            f"The server's clock was set back by at least {timedelta(seconds=round(ahead))} (h:mm:ss), and pg_cron "
            f"starts nothing until it is {signs.newest:%Y-%m-%d %H:%M} UTC again.",
            "Set the clock right; if it is right now, restart PostgreSQL, so that pg_cron counts from now on.",
        )


def _slots(signs: Signs) -> Iterator[Fault]:
    if signs.uses_workers and signs.slot_failures:
        yield Fault(
            FaultKind.WORKER_SLOTS_SHORT,
            f"{signs.slot_failures} firings of the last minutes found no background worker: max_worker_processes = "
            f"{signs.worker_slots} is too low for cron.max_running_jobs = {_most_running(signs)} and what else runs.",
            "Raise max_worker_processes, or set cron.use_background_workers = off, and restart PostgreSQL.",
        )


def _logins(signs: Signs) -> Iterator[Fault]:
    last = signs.last_outcome
    if signs.uses_workers or last is None or last.status != "failed" or not last.message.startswith("connection"):
        return
    yield Fault(
        FaultKind.LOGINS_REFUSED,
        f"The last firing failed ({_first_line(last.message)}), because pg_cron could not log in at {signs.host} as "
        f"role '{signs.role}'.",
        f"Let the server's own user in as {quoted(signs.role)}: a line in pg_hba.conf, or the password in its .pgpass "
        "file.",
    )


def _unstarted(signs: Signs) -> Iterator[Fault]:
    if not signs.unstarted:
        return
    since = f"{signs.due_since:%H:%M} UTC" if signs.due_since else "their minute"
    most = _most_running(signs)
    if signs.running >= most or signs.late_starts:
        yield Fault(
            FaultKind.QUEUE_FULL,
            f"pg_cron has more to start than it can: {signs.unstarted} clock jobs wait since {since}, and "
            f"{signs.running} firings run of at most {most}.",
            "See in pg_stat_activity what the sessions named pg_cron wait for; if nothing holds them, raise "
            "cron.max_running_jobs and restart PostgreSQL, or spread the schedules over more minutes.",
        )
    else:
        yield Fault(
            FaultKind.CHANGE_MISSED,
            f"{signs.unstarted} clock jobs that are right have not fired since {since}, though pg_cron is alive: its "
            "launcher missed a change of cron.job.",
            "Any change of cron.job makes it read all rows again, such as creating a job (`sumaclock jobs create`); "
            "change at most 1,000 rows in one transaction.",
        )


def _most_running(signs: Signs) -> int:
    return int((signs.settings or {}).get("max_running_jobs", "32"))


def _numbers(ids: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ids[:10]))
    return f"jobid {shown} and {len(ids) - 10} more" if len(ids) > 10 else f"jobid {shown}"


def _first_line(message: str) -> str:
    return message.strip().partition("\n")[0].rstrip(".")


def _literal(text: str) -> str:
    return text.replace("'", "''")
