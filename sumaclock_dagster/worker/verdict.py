"""What becomes of a run after its handler: written as ended, or put back for another attempt."""

from __future__ import annotations

from sumaclock_dagster.model import Done, Failed, Handed, Outcome, Policy, RetryLater, RunStatus, Skip
from sumaclock_dagster.queue.claims import Ended, HandedOver, Retried
from sumaclock_dagster.worker.held import HeldRun

RETRIES_LATER_DEFAULT = 3
RAISES_DEFAULT = 1
DONE = RunStatus.DONE.value
Verdict = Ended | Retried | HandedOver


def verdict(held: HeldRun, outcome: Outcome, policy: Policy, started: float, finished: float) -> Verdict:
    """`outcome` is storable already. Times are epoch seconds by the database's clock. Attempts that ended with their
    worker are not the handler's and don't count here."""
    run = held.run
    attempts = run.attempt - run.lost
    match outcome:
        case Done():
            return Ended(run.id, run.attempt, DONE, started, finished, held.result)
        case Handed():
            return HandedOver(run.id, run.attempt)
        case Skip(reason):
            return _ended(held, RunStatus.SKIPPED, started, finished, reason or "The handler gave no reason.")
        case RetryLater(seconds, reason):
            most = policy.max_attempts or RETRIES_LATER_DEFAULT
            text = reason or "The handler asked for another try."
            if attempts < most:
                return Retried(run.id, run.attempt, seconds, text)
            return _ended(held, RunStatus.FAILED, started, finished, f"Given up after {attempts} attempts: {text}")
        case Failed(error):
            text = error or "The handler gave no error."
            if held.raised and attempts < (policy.max_attempts or RAISES_DEFAULT):
                return Retried(run.id, run.attempt, backoff_seconds(policy, attempts), text)
            return _ended(held, RunStatus.FAILED, started, finished, text)


def backoff_seconds(policy: Policy, attempts: int) -> float:
    """The delay after the given number of attempts: doubled with each, up to the policy's longest."""
    return min(policy.backoff_seconds * 2.0 ** min(attempts - 1, 60), policy.backoff_max_seconds)


def _ended(held: HeldRun, status: RunStatus, started: float, finished: float, error: str) -> Ended:
    return Ended(held.run.id, held.run.attempt, status.value, started, finished, None, error)
