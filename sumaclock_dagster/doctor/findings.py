"""What a check finds and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import psycopg

from sumaclock_dagster.doctor.context import Context
from sumaclock_dagster.doctor.phrases import one_line
from sumaclock_dagster.model import SumaclockError


class CheckOutcome(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check. `problem` and `remedy` are one sentence each, set where the outcome is failed or warning.

    found: what was seen (a version, a list, a reason for skipping); it never holds a secret.
    """

    name: str
    outcome: CheckOutcome
    found: str
    problem: str | None = None
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check function returns: all well, unless it names a problem and the remedy."""

    found: str
    problem: str | None = None
    remedy: str | None = None
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """A named check and the checks that must have passed for it to make sense."""

    name: str
    look: Callable[[Context], Finding]
    after: tuple[str, ...] = ()


def has_failed(results: Iterable[CheckResult]) -> bool:
    return any(result.outcome is CheckOutcome.FAILED for result in results)


def perform(checks: Sequence[Check], context: Context) -> list[CheckResult]:
    """Each check in turn; one whose ground failed is skipped, one that breaks is a failed check and stops no other."""
    results: dict[str, CheckResult] = {}
    for check in checks:
        broken = [name for name in check.after if results[name].outcome in (CheckOutcome.FAILED, CheckOutcome.SKIPPED)]
        results[check.name] = skipped(check.name, broken[0]) if broken else _perform_one(check, context)
    return list(results.values())


def skipped(name: str, because: str) -> CheckResult:
    return CheckResult(name, CheckOutcome.SKIPPED, f"not looked at, because '{because}' did not pass")


def _perform_one(check: Check, context: Context) -> CheckResult:
    try:
        finding = check.look(context)
    except (psycopg.Error, SumaclockError) as error:
        finding = Finding(
            type(error).__name__,
            f"This check could not be made: {one_line(error).replace('. ', ', ')}.",
            "Mend that, then run `sumaclock doctor` again.",
        )
    return result_of(check.name, finding)


def result_of(name: str, finding: Finding) -> CheckResult:
    return CheckResult(name, _outcome(finding), finding.found, finding.problem, finding.remedy)


def _outcome(finding: Finding) -> CheckOutcome:
    if finding.problem is None:
        return CheckOutcome.OK
    return CheckOutcome.WARNING if finding.warning else CheckOutcome.FAILED
