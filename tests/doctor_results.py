"""Looking things up in what the doctor found."""

from __future__ import annotations

from collections.abc import Iterable

from sumaclock_dagster.doctor import CheckOutcome, CheckResult


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
