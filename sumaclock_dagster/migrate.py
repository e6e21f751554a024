"""The migration runner: forward only, one transaction a file, one runner at a time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import class_row

from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import SumaclockError

FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of sql/migrations. `name` is the file's name without `.sql`; `number` its first four digits."""

    number: int
    name: str
    sql: bytes

    @property
    def checksum(self) -> str:
        """SHA-256 of the text; line ends don't count, since a checkout may change them."""
        return hashlib.sha256(self.sql.replace(b"\r\n", b"\n")).hexdigest()


@dataclass(frozen=True, slots=True)
class Applied:
    """A row of the ledger."""

    number: int
    name: str
    checksum: str


def sql_file(name: str) -> Path:
    """The path of `name` below the wheel's `sumaclock_dagster/sql`, or else below the checkout's `sql`.

    Raises SumaclockError where neither has it."""
    package = Path(str(package_files("sumaclock_dagster")))
    places = [package / "sql" / name, package.parent / "sql" / name]
    for place in places:
        if place.exists():
            return place
    raise SumaclockError(
        f"The file sql/{name} is missing from this installation: looked for {places[0]} and {places[1]}. Install again."
    )


def load_migrations(folder: Path | None = None) -> list[Migration]:
    """All migrations in order, from `folder` or this installation's own. Raises SumaclockError for a file name that is
    no NNNN_name.sql, and for a gap or a double in the numbers (they start at 0001)."""
    folder = folder or sql_file("migrations")
    found: list[Migration] = []
    for path in sorted(folder.glob("*.sql")):
        match = FILE_NAME.fullmatch(path.name)
        if match is None:
            raise SumaclockError(f"{path} is not named like a migration: NNNN_what_it_does.sql, in lower case.")
        found.append(Migration(int(match[1]), path.stem, path.read_bytes()))
    for expected, migration in enumerate(found, start=1):
        if migration.number != expected:
            raise SumaclockError(
                f"Migration {migration.name} stands where number {expected:04} should: a file in {folder} is missing "
                "or its number is used twice."
            )
    return found


def pending(conn: Connection, files: Sequence[Migration]) -> list[Migration]:
    """The migrations of `files` that this database has not got yet, in order. The app role may ask, too.

    Raises SumaclockError when an applied file was edited or is gone, or when the database is ahead of `files`."""
    return _compare(_read_ledger(conn), files)


def migrate(conn: Connection, files: Sequence[Migration]) -> list[str]:
    """Apply what is pending, as the owner role, on an autocommit connection of its own. Returns the applied names. A
    member of that role, or a superuser, acts as it.

    Waits up to ten minutes for another runner on the same database; when that one did the work, returns []. A file
    that fails is rolled back whole, and those before it stay. Raises SumaclockError."""
    _check_ground(conn)
    _lock(conn)
    try:
        with conn.transaction():
            conn.execute(query("prepare_migration"))
            conn.execute(query("create_migration_ledger"), prepare=False)
        todo = pending(conn, files)
        for migration in todo:
            _apply(conn, migration)
        return [migration.name for migration in todo]
    finally:
        # A closed or broken connection has given its lock back already.
        if not conn.broken and not conn.closed:
            conn.execute(query("unlock_migrations"))


def _check_ground(conn: Connection) -> None:
    database, role, owner, is_owner, app_role = conn.execute(query("read_migration_ground")).fetchall()[0]
    if owner is None:
        raise SumaclockError(
            f"Database '{database}' has no schema sumaclock. Run sql/first_boot.sql there first, as a superuser."
        )
    if not is_owner:
        raise SumaclockError(
            f"Migrations of database '{database}' run as its owner role '{owner}', not as '{role}'. "
            "Set SUMACLOCK_OWNER_DATABASE_URL."
        )
    if not app_role:
        raise SumaclockError(
            f"Database '{database}' does not say which role is the app role. Run sql/first_boot.sql again, or "
            "`alter database ... set sumaclock.app_role = '...'`, as a superuser."
        )


def _lock(conn: Connection) -> None:
    try:
        conn.execute(query("lock_migrations"), prepare=False)
    except psycopg.errors.LockNotAvailable:
        raise SumaclockError(
            f"Another migration of database '{conn.info.dbname}' has been running for ten minutes. "
            "Look at it in pg_stat_activity, and try again."
        ) from None


def _read_ledger(conn: Connection) -> list[Applied]:
    with conn.cursor(row_factory=class_row(Applied)) as cursor:
        try:
            return cursor.execute(query("list_applied_migrations")).fetchall()
        except psycopg.errors.UndefinedTable:
            return []
        except psycopg.errors.InsufficientPrivilege:
            raise SumaclockError(
                f"Role '{conn.info.user}' may not read which migrations database '{conn.info.dbname}' has got: it is "
                "neither its owner role nor its app role. Look at SUMACLOCK_DATABASE_URL."
            ) from None


def _compare(ledger: Sequence[Applied], files: Sequence[Migration]) -> list[Migration]:
    by_number = {migration.number: migration for migration in files}
    newest = max(by_number, default=0)
    for applied in ledger:
        migration = by_number.get(applied.number)
        if applied.number > newest:
            raise SumaclockError(
                f"The database is ahead of this code: it has migration {applied.name}, and the newest here is "
                f"{by_number[newest].name if newest else 'none'}. Deploy the newer code; there is no way back down."
            )
        if migration is None or migration.name != applied.name:
            raise SumaclockError(
                f"The database has migration {applied.name}, but its file is missing here"
                f"{f' ({migration.name} has its number)' if migration else ''}. Restore the file as it was applied."
            )
        if migration.checksum != applied.checksum:
            raise SumaclockError(
                f"Migration {applied.name} was edited after it was applied. Restore the file, and put the change into "
                "a migration of its own."
            )
    last = max((applied.number for applied in ledger), default=0)
    numbers = {applied.number for applied in ledger}
    skipped = [migration.name for migration in files if migration.number < last and migration.number not in numbers]
    if skipped:
        raise SumaclockError(
            f"Migration {skipped[0]} was never applied, although later ones were. Give it the next free number."
        )
    return [migration for migration in files if migration.number > last]


def _apply(conn: Connection, migration: Migration) -> None:
    try:
        with conn.transaction():
            conn.execute(query("prepare_migration"))
            conn.execute(migration.sql, prepare=False)
            if conn.info.transaction_status is not TransactionStatus.INTRANS:
                raise SumaclockError(
                    f"Migration {migration.name} ended its own transaction, so it may stand half applied. "
                    "Take COMMIT and ROLLBACK out of the file, and undo by hand what it did."
                )
            conn.execute(
                query("record_migration"),
                {"number": migration.number, "name": migration.name, "checksum": migration.checksum},
            )
    except psycopg.Error as error:
        raise SumaclockError(
            f"Migration {migration.name} failed{_line(migration, error)} and was rolled back whole: "
            f"{error.diag.message_primary or error}"
        ) from error


def _line(migration: Migration, error: psycopg.Error) -> str:
    position = error.diag.statement_position
    if position is None or not position.isdigit():
        return ""
    before = migration.sql.decode(errors="replace")[: int(position) - 1]
    return f" at line {before.count(chr(10)) + 1}"
