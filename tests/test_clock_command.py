"""Rule 1: the clock does one thing."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sumaclock_dagster.clock.command import firing_command
from sumaclock_dagster.clock.pg_cron import Clock
from sumaclock_dagster.db import Connection
from tests.conftest import AppDatabase

INJECTION = "'); drop table sumaclock.cron_jobs; --"


class Hostile(UUID):
    def __str__(self) -> str:
        return INJECTION


class Disguised:
    """Claims to be a UUID wherever it is only asked."""

    __class__ = UUID  # type: ignore[assignment]

    def __str__(self) -> str:
        return INJECTION


@given(st.uuids())
def test_rule_1_the_clock_does_one_thing(job_id: UUID) -> None:
    expected = f"insert into sumaclock.cron_runs (job_id) values ('{job_id}'); notify cron_runs;"
    assert firing_command(job_id) == expected


@pytest.mark.parametrize(
    "job_id",
    [str(uuid4()), uuid4().hex, uuid4().bytes, uuid4().int, INJECTION, None, Hostile(int=1), Disguised(), [uuid4()]],
    ids=lambda value: type(value).__name__,
)
def test_rule_1_anything_but_a_uuid_raises_before_sql_exists(job_id: Any) -> None:
    with pytest.raises(TypeError, match="UUID and nothing else"):
        firing_command(job_id)


def test_rule_1_holds_for_the_clock_itself(app_db: AppDatabase, superuser: Connection) -> None:
    with Clock(app_db.cron_url, app_db.name) as clock, pytest.raises(TypeError, match="UUID and nothing else"):
        clock.schedule(Hostile(int=1), "* * * * *")
    with Clock(app_db.cron_url, app_db.name) as clock:
        assert clock.listed() == []
