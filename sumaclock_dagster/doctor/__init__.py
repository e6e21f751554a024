"""Checks of settings and servers: what is wrong, in one sentence, and what to do about it, in one more."""

from sumaclock_dagster.doctor.checkup import check_environment, run_checks
from sumaclock_dagster.doctor.findings import CheckOutcome, CheckResult, has_failed

__all__ = ["CheckOutcome", "CheckResult", "check_environment", "has_failed", "run_checks"]
