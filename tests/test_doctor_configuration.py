"""Settings, spelling and handlers: what a person gets wrong in the environment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from annotated_types import Ge, Gt, Le

from sumaclock_dagster.doctor import CheckOutcome, check_environment, run_checks
from sumaclock_dagster.doctor.configuration import PAIRS, allowed, unknown_variables
from sumaclock_dagster.settings import Settings
from tests.conftest import AppDatabase, TestCluster
from tests.doctor_results import by_name, problem_of, sentences, shared_app_database


@pytest.fixture(scope="module")
def app_db(cluster: TestCluster) -> Iterator[AppDatabase]:
    """One for all tests here: they only look at it."""
    with shared_app_database(cluster) as app_db:
        yield app_db


NUMBERS = sorted(name for name, field in Settings.model_fields.items() if field.annotation in (int, float))


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_out_of_bounds_is_named_with_bounds_and_unit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = f"SUMACLOCK_{name.upper()}"
    monkeypatch.setenv(variable, "-1")
    (failed,) = (result for result in check_environment(Settings, {}) if result.outcome is CheckOutcome.FAILED)
    problem, remedy = sentences(failed)
    assert failed.name == "settings"
    assert problem.startswith(f"{variable} must be ")
    assert problem.endswith(", not '-1'.")
    for bound in Settings.model_fields[name].metadata:
        for value in (getattr(bound, kind, None) for kind in ("ge", "gt", "le")):
            assert value is None or f"{value:,}" in problem
    for unit in ("seconds", "days", "bytes"):
        assert (f"number of {unit}" in problem) == name.endswith(unit)
    assert variable in remedy
    assert str(Settings.model_fields[name].default) in remedy


def test_every_number_has_a_lower_bound() -> None:
    assert NUMBERS
    for name in NUMBERS:
        assert any(isinstance(bound, (Ge, Gt)) for bound in Settings.model_fields[name].metadata), name


def test_bounds_in_words() -> None:
    assert allowed("claim_batch") == "a whole number from 1 up to 500"
    assert allowed("poll_seconds") == "a number of seconds above 0 and up to 300"
    assert any(isinstance(bound, Le) for bound in Settings.model_fields["poll_seconds"].metadata)


def test_text_where_a_number_belongs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMACLOCK_CLAIM_BATCH", "ten")
    monkeypatch.setenv("SUMACLOCK_POLL_SECONDS", "often")
    failed = [result for result in check_environment(Settings, {}) if result.outcome is CheckOutcome.FAILED]
    assert [result.name for result in failed] == ["settings", "settings"]
    assert "SUMACLOCK_CLAIM_BATCH must be a whole number" in sentences(failed[0])[0]
    assert "SUMACLOCK_POLL_SECONDS must be a number of seconds" in sentences(failed[1])[0]


def test_nothing_is_looked_at_with_invalid_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMACLOCK_CLAIM_BATCH", "0")
    results = by_name(check_environment(Settings, {}))
    assert results["app database"].outcome is CheckOutcome.SKIPPED
    assert results["app database"].found == "not looked at, because 'settings' did not pass"


@pytest.mark.parametrize(("smaller", "greater"), PAIRS)
def test_settings_that_contradict_each_other(app_db: AppDatabase, smaller: str, greater: str) -> None:
    high = getattr(app_db.settings, greater)
    settings = app_db.settings.model_copy(update={smaller: high + 1})
    problem, remedy = problem_of(by_name(run_checks(settings)), "settings")
    assert f"SUMACLOCK_{smaller.upper()} ({high + 1})" in problem
    assert f"SUMACLOCK_{greater.upper()}" in problem
    assert "Lower" in remedy


@pytest.mark.parametrize("template", ["No {sort}", "Brace {", "{kind.nothing}", "{}"])
def test_a_broken_message_template(app_db: AppDatabase, template: str) -> None:
    settings = app_db.settings.model_copy(update={"no_handler_message": template})
    problem, remedy = problem_of(by_name(run_checks(settings)), "settings")
    assert "SUMACLOCK_NO_HANDLER_MESSAGE" in problem
    assert "{kind}" in remedy


def test_a_misspelt_variable_is_a_warning() -> None:
    finding = unknown_variables({"SUMACLOCK_CLIAM_BATCH": "5", "SUMACLOCK_UI_PORT": "1", "OTHER_CLIAM_BATCH": "1"})
    assert finding.warning
    assert finding.found == "SUMACLOCK_CLIAM_BATCH"
    assert "SUMACLOCK_CLAIM_BATCH" in (finding.remedy or "")
    assert unknown_variables({"SUMACLOCK_CLAIM_BATCH": "5", "SUMACLOCK_UI_PORT": "1"}).problem is None


GOOD = """
from sumaclock_dagster.handlers import Handlers
handlers = Handlers()
@handlers.register("doctor_good")
def good(run): ...
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that can be imported as `doctor_user_handlers`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("doctor_user_handlers", None)
    return tmp_path / "doctor_user_handlers.py"


def test_handlers_that_load_are_listed(app_db: AppDatabase, module: Path) -> None:
    module.write_text(GOOD)
    settings = app_db.settings.model_copy(update={"handlers": "doctor_user_handlers:handlers"})
    found = by_name(run_checks(settings))["handlers"]
    assert found.outcome is CheckOutcome.OK
    assert "doctor_good" in found.found
    assert "demo" in found.found


@pytest.mark.parametrize(
    ("spec", "text", "named"),
    [
        ("no_such_module_here:handlers", "", "no_such_module_here"),
        ("doctor_user_handlers", "", "package.module:attribute"),
        ("doctor_user_handlers:nothing", GOOD, "no attribute 'nothing'"),
        ("doctor_user_handlers:good", GOOD, "doctor_user_handlers"),
        ("doctor_user_handlers:handlers", "handlers = 5", "int"),
        ("doctor_user_handlers:handlers", "def broken(:", "SyntaxError"),
        ("doctor_user_handlers:handlers", "raise RuntimeError('Not today. Nor tomorrow.\\nAt all.')", "RuntimeError"),
        ("doctor_user_handlers:handlers", GOOD.replace("doctor_good", "demo"), "'demo' has two handlers"),
    ],
)
def test_handlers_that_do_not_load(app_db: AppDatabase, module: Path, spec: str, text: str, named: str) -> None:
    module.write_text(text)
    settings = app_db.settings.model_copy(update={"handlers": spec})
    results = by_name(run_checks(settings))
    problem, remedy = problem_of(results, "handlers")
    assert named in problem
    assert "SUMACLOCK_HANDLERS" in problem + remedy or "module" in remedy
    assert results["app database"].outcome is CheckOutcome.OK


def test_handlers_in_the_current_folder_load_as_in_dagster_s_code_server(
    app_db: AppDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "doctor_folder_handlers.py").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    settings = app_db.settings.model_copy(update={"handlers": "doctor_folder_handlers:handlers"})
    assert "doctor_good" in by_name(run_checks(settings))["handlers"].found
    assert sys.path == before


def test_a_setting_of_few_words_is_named_with_all_of_them() -> None:
    assert allowed("clock") == "jobs or slots"
