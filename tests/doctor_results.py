"""What the doctor's tests share: looking things up in its findings, and a database for a whole module."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sumaclock_dagster.doctor import CheckOutcome, CheckResult
from tests.conftest import AppDatabase, TestCluster, drop_app_database, make_app_database


def by_name(results: Iterable[CheckResult]) -> dict[str, CheckResult]:
    return {result.name: result for result in results}


def problem_of(results: dict[str, CheckResult], name: str) -> tuple[str, str]:
    """Problem and remedy of the check `name`, which must have failed: one sentence each, without a traceback."""
    result = results[name]
    assert result.outcome is CheckOutcome.FAILED, result
    return sentences(result)


def sentences(result: CheckResult) -> tuple[str, str]:
    assert result.problem is not None
    assert result.remedy is not None
    for sentence in (result.problem, result.remedy):
        assert sentence.endswith("."), sentence
        assert ". " not in sentence, sentence
        assert "\n" not in sentence, sentence
        assert "Traceback" not in sentence
    return result.problem, result.remedy


@contextmanager
def shared_app_database(cluster: TestCluster) -> Iterator[AppDatabase]:
    name = f"t_{uuid.uuid4().hex[:10]}"
    try:
        yield make_app_database(cluster, name)
    finally:
        drop_app_database(cluster, name)
