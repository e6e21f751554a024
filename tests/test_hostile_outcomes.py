"""Rule 2: every run ends, whatever its handler returns or raises, and nobody else's outcome is lost for it."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sumaclock_dagster.db import Connection
from sumaclock_dagster.handlers import HandlerRun, Handlers
from sumaclock_dagster.model import Done, Failed, RetryLater, RunStatus, Skip
from sumaclock_dagster.queue import claims, runs
from sumaclock_dagster.storable import clean_text, error_text, result_json
from tests.conftest import AppDatabase
from tests.workers import add_job, add_runs, await_ended, claim, running


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def nested(depth: int) -> Any:
    value: Any = "core"
    for _ in range(depth):
        value = [value]
    return value


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def exhausted() -> None:
    sys.exit(3)


def recursion() -> None:
    recursion()


RETURNED: dict[str, Callable[[], Any]] = {
    "nul": lambda: {"a\0b": "c\0d"},
    "lone surrogate": lambda: {"x": "\ud800", "\udfff": 1},
    "emoji": lambda: "😀 ñ",
    "nan": lambda: [math.nan, math.inf, -math.inf],
    "ten megabytes": lambda: "x" * 10_000_000,
    "object": lambda: object(),
    "mute object": lambda: Mute(),
    "set": lambda: {1, 2},
    "bytes": lambda: b"\x00\xff",
    "decimal": lambda: Decimal("1.10"),
    "huge integer": lambda: 10**5000,
    "large integer": lambda: 10**900,
    "nested": lambda: nested(90),
    "nested deeply": lambda: nested(50_000),
    "cyclic": lambda: cyclic(),
    "keys that are no strings": lambda: {(1, 2): 3, None: 4, Mute(): 5},
    "generator": lambda: (i for i in range(3)),
    "class": lambda: Mute,
    "done with nul": lambda: Done("\0"),
}
RAISED: dict[str, Callable[[], Any]] = {
    "nul": lambda: ValueError("a\0b"),
    "lone surrogate": lambda: ValueError("\udc80"),
    "mute": lambda: MuteError(),
    "mute argument": lambda: ValueError(Mute()),
    "huge": lambda: ValueError("x" * 10_000_000),
    "exit": lambda: SystemExit(3),
    "interrupt": lambda: KeyboardInterrupt(),
    "generator exit": lambda: GeneratorExit(),
    "memory": lambda: MemoryError(),
    "group": lambda: ExceptionGroup("many", [ValueError("\0")]),
    "base": lambda: BaseException("bare"),
}
VALUES: dict[str, tuple[Callable[[], Any], RunStatus]] = {
    "failed with nul": (lambda: Failed("a\0b"), RunStatus.FAILED),
    "failed without text": (lambda: Failed(""), RunStatus.FAILED),
    "failed with no text": (lambda: Failed(None), RunStatus.FAILED),  # type: ignore[arg-type]
    "skip with surrogate": (lambda: Skip("\ud800"), RunStatus.SKIPPED),
    "skip without reason": (lambda: Skip(""), RunStatus.SKIPPED),
    "retry at nan": (lambda: RetryLater(math.nan), RunStatus.FAILED),
    "retry before": (lambda: RetryLater(-5), RunStatus.FAILED),
    "retry at words": (lambda: RetryLater("soon"), RunStatus.FAILED),  # type: ignore[arg-type]
}


def test_rule_2_every_run_ends_and_every_row_is_stored(app_db: AppDatabase, app: Connection) -> None:
    handlers = Handlers()

    @handlers.register("returns")
    def returns(run: HandlerRun) -> Any:
        return RETURNED[run.payload["name"]]()

    @handlers.register("raises")
    def raises(run: HandlerRun) -> Any:
        raise RAISED[run.payload["name"]]()

    @handlers.register("values")
    def values(run: HandlerRun) -> Any:
        return VALUES[run.payload["name"]][0]()

    @handlers.register("calls")
    def calls(run: HandlerRun) -> Any:
        return {"exhausted": exhausted, "recursion": recursion}[run.payload["name"]]()

    handlers.register("good")(lambda run: "good")
    wanted: dict[int, tuple[str, RunStatus]] = {}

    def add(kind: str, name: str, status: RunStatus) -> None:
        (run_id,) = add_runs(app, add_job(app, kind, {"name": name}))
        wanted[run_id] = (f"{kind} {name}", status)

    for name in RETURNED:
        add("returns", name, RunStatus.DONE)
        add("good", name, RunStatus.DONE)
    for name in RAISED:
        add("raises", name, RunStatus.FAILED)
        add("good", name, RunStatus.DONE)
    for name, (_, status) in VALUES.items():
        add("values", name, status)
    add("calls", "exhausted", RunStatus.FAILED)
    add("calls", "recursion", RunStatus.FAILED)

    with running(app_db, handlers):
        await_ended(app, list(wanted), 60)
    got = {run_id: runs.get_run(app, run_id) for run_id in wanted}
    assert {wanted[i][0]: run.status for i, run in got.items()} == dict(wanted.values())
    by_name = {wanted[i][0]: run for i, run in got.items()}
    assert by_name["returns nul"].result == {"a\ufffdb": "c\ufffdd"}
    assert by_name["returns emoji"].result == "😀 ñ"
    assert by_name["returns nan"].result == ["nan", "inf", "-inf"]
    assert by_name["returns large integer"].result == 10**900
    assert by_name["returns ten megabytes"].result["truncated"] is True
    assert by_name["returns ten megabytes"].result["bytes"] > 10_000_000
    assert by_name["returns nested"].result == nested(90)
    assert all(run.result == "good" for name, run in by_name.items() if name.startswith("good"))
    assert by_name["raises exit"].error is not None
    assert by_name["raises exit"].error.startswith("SystemExit: 3")
    assert by_name["raises nul"].error is not None
    assert by_name["raises nul"].error.startswith("ValueError: a\ufffdb")
    assert by_name["values failed without text"].error == "The handler gave no error."


def test_an_outcome_that_postgresql_refuses_costs_only_itself(
    app_db: AppDatabase, app: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line of defence: were a text to slip through, the batch is written one by one."""
    monkeypatch.setattr(
        "sumaclock_dagster.worker.hands.result_json", lambda value, _: '"\\u0000"' if value == "bad" else '"ok"'
    )
    handlers = Handlers()
    handlers.register("given")(lambda run: run.payload["value"])
    bad = add_runs(app, add_job(app, "given", {"value": "bad"}))
    good = add_runs(app, add_job(app, "given", {"value": "good"}), 5)
    with running(app_db, handlers):
        await_ended(app, bad + good)
    refused = runs.get_run(app, bad[0])
    assert refused.status is RunStatus.DONE
    assert refused.result["unstorable"] == "result"
    assert [runs.get_run(app, i).result for i in good] == ["ok"] * 5


JSON_LIKE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=[]))
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=[])), inner),
    max_leaves=12,
)


def test_whatever_is_made_storable_is_stored(app: Connection) -> None:
    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(JSON_LIKE)
    def check(value: Any) -> None:
        text = result_json(value, 1_000_000)
        stored = app.execute("select %s::jsonb", [text]).fetchone()
        assert stored is not None
        if text is not None:
            # jsonb keeps numbers as decimals and writes 1e16 without its exponent.
            assert json.loads(json.dumps(stored[0]), parse_int=float) == json.loads(text, parse_int=float)

    check()


def test_whatever_is_raised_has_a_text_that_is_stored(app: Connection) -> None:
    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.text(st.characters(exclude_categories=[])))
    def check(message: str) -> None:
        text = error_text(ValueError(message))
        assert app.execute("select %s::text", [text]).fetchone() == (text,)
        assert clean_text(text, 100_000) == text

    check()


def test_finish_writes_none_of_a_batch_that_can_not_be_stored(app: Connection) -> None:
    job = add_job(app, "x")
    ids = add_runs(app, job, 2)
    claim(app, 1, 10)
    ended = [claims.Ended(ids[0], 1, "done", 0, 1, "1"), claims.Ended(ids[1], 1, "done", 0, 1, '"\\u0000"')]
    with pytest.raises(Exception, match="unsupported Unicode"):
        claims.finish(app, 1, ended)
    assert {runs.get_run(app, i).status for i in ids} == {RunStatus.RUNNING}
