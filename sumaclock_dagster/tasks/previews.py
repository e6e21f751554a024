"""Answers to request_preview: the calendar's part of a schedule that is no task yet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from sumaclock_dagster.calendar import in_words, parse_schedule, preview
from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.tasks.placement import preview_json


@dataclass(frozen=True, slots=True)
class Request:
    id: int
    cron: str | None
    instant: datetime | None
    timezone: str
    count: int
    language: str
    now: datetime


def answer_previews(conn: Connection) -> int:
    """Answer all open requests, and delete those of yesterday. Returns how many were answered."""
    with conn.transaction():
        requests = [Request(*row) for row in conn.execute(query("take_preview_requests")).fetchall()]
        for request in requests:
            conn.execute(query("answer_preview"), {"id": request.id, "result": Jsonb(_answer(request))})
        conn.execute(query("delete_old_previews"))
    return len(requests)


def _answer(request: Request) -> dict[str, Any]:
    try:
        schedule = parse_schedule(request.cron, request.instant, request.timezone)
        words = in_words(schedule, request.language)
        lines = preview_json(preview(schedule, request.now, request.count))
    except SumaclockError as error:
        return {"status": "failed", "error": str(error)}
    return {"status": "done", "words": words, "lines": lines}
