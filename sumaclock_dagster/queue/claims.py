"""What a worker does with the runs it claimed. Each write names the claim: run id, attempt and worker (rule 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

from sumaclock_dagster.arrays import float8_array, int2_array, int8_array, text_array
from sumaclock_dagster.db import Connection, query


class Claimed(NamedTuple):
    """A claimed run with its job. `payload` is JSON text: whether Python can read it is the run's own concern.
    `wanted` is False when the job was paused after its clock had fired."""

    id: int
    job_id: UUID
    scheduled_at: datetime
    attempt: int
    lost: int
    kind: str
    organization_id: str
    user_id: str
    payload: str
    trigger: str
    wanted: bool


class Ended(NamedTuple):
    """How a claimed run ended. Times are seconds since the epoch by the database's clock; `result` is JSON text."""

    id: int
    attempt: int
    status: str
    started: float
    finished: float
    result: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Retried:
    """A claimed run that goes back to pending, due again in `delay_seconds`; its attempt counts."""

    id: int
    attempt: int
    delay_seconds: float
    error: str


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A run that goes on in a Dagster run. Its handler wrote so; nothing is left to write."""

    id: int
    attempt: int
    status: str = "handed over"
    error: str | None = None


class Claim:
    """Claims runs over one connection, oldest first.

    libpq itself executes the statement: a worker that waited wakes up to cold caches, in which the way through the
    driver's cursor takes as long as the claim.
    """

    NAME = b"sumaclock_claim"

    def __init__(self, conn: Connection) -> None:
        """Prepare the claim on `conn`, once in its life. Raises psycopg.Error."""
        self._pgconn = conn.pgconn
        self._rows = Transformer.from_context(conn)
        self._checked(self._pgconn.prepare(self.NAME, query("claim_runs")))

    def __call__(self, worker_id: int, dagster_run_id: UUID | None, batch: int) -> list[Claimed]:
        """Claim up to `batch` due runs and count the attempt in the same transaction (rule 3). Raises psycopg.Error."""
        run = None if dagster_run_id is None else str(dagster_run_id).encode()
        parameters: Any = [b"%d" % worker_id, run, b"%d" % batch]
        result = self._checked(self._pgconn.exec_prepared(self.NAME, parameters, result_format=Format.BINARY))
        self._rows.set_pgresult(result)
        return sorted(self._rows.load_rows(0, result.ntuples, Claimed._make))

    def _checked(self, result: PGresult) -> PGresult:
        if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            raise error_from_result(result)
        return result


def finish(conn: Connection, worker_id: int, ended: Sequence[Ended]) -> set[int]:
    """Write outcomes. Returns the ids that have theirs, also from a commit whose answer was lost; a missing one had
    lost its claim and is left as it is.

    Raises psycopg.DataError when PostgreSQL can't store one of the results; none is written then.
    """
    if not ended:
        return set()
    ids, attempts, statuses, started, finished, results, errors = zip(*ended, strict=True)
    parameters = {
        "worker": worker_id,
        "ids": int8_array(ids),
        "attempts": int2_array(attempts),
        "statuses": text_array(statuses),
        "started": float8_array(started),
        "finished": float8_array(finished),
        "results": text_array(results),
        "errors": text_array(errors),
    }
    if conn.execute(query("finish_runs"), parameters, prepare=True).rowcount == len(ended):
        return set(ids)
    return _ids(conn, "list_written_runs", _claims(worker_id, list(zip(ids, attempts, strict=True))))


def retry(conn: Connection, worker_id: int, retried: Sequence[Retried]) -> set[int]:
    """Put runs back for another attempt. Returns the ids that were written, as `finish` does."""
    parameters = {
        "worker": worker_id,
        "ids": [r.id for r in retried],
        "attempts": [r.attempt for r in retried],
        "delays": [r.delay_seconds for r in retried],
        "errors": [r.error for r in retried],
    }
    return _ids(conn, "retry_runs", parameters)


def give_back(conn: Connection, worker_id: int, claims: Sequence[tuple[int, int]]) -> set[int]:
    """Put (run id, attempt) claims back to pending without counting the attempt. Returns the ids given back."""
    return _ids(conn, "give_back_runs", _claims(worker_id, claims))


def give_back_unknown(conn: Connection, worker_id: int, known: Sequence[tuple[int, int]]) -> set[int]:
    """Give back what the database holds for this worker and the worker doesn't know as a (run id, attempt) claim: the
    answer to a claim that a broken connection swallowed. Returns the ids given back."""
    return _ids(conn, "give_back_unknown_runs", _claims(worker_id, known))


def take_up(
    conn: Connection, worker_id: int, dagster_run_id: UUID | None, claims: Sequence[tuple[int, int]]
) -> set[int]:
    """Claim again what a crash of the server forgot of the (run id, attempt) claims, as long as nobody else did.
    Returns the ids taken up."""
    return _ids(conn, "take_up_runs", _claims(worker_id, claims) | {"dagster_run": dagster_run_id})


def renew(conn: Connection, worker_id: int, claims: Sequence[tuple[int, int]]) -> set[int]:
    """Renew the heartbeat of (run id, attempt) claims. Returns the ids still held; the others' claims are lost."""
    return _ids(conn, "renew_runs", _claims(worker_id, claims))


def next_due_seconds(conn: Connection) -> float | None:
    """Seconds until the first pending run may be claimed (0 or less: now), or None without a pending run."""
    row = conn.execute(query("next_due"), prepare=True).fetchone()
    return None if row is None else float(row[0])


def _claims(worker_id: int, claims: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """In the order of ids, in which every statement locks runs: two orders could wait for each other for ever."""
    ordered = sorted(claims)
    return {"worker": worker_id, "ids": [c[0] for c in ordered], "attempts": [c[1] for c in ordered]}


def _ids(conn: Connection, name: str, parameters: dict[str, Any]) -> set[int]:
    return {row[0] for row in conn.execute(query(name), parameters, prepare=True).fetchall()}
