"""What is to be told of failures: each once, grouped, in one message."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from psycopg.rows import class_row

from sumaclock_dagster.db import Connection, query

# A worker that lost its database writes outcomes late, under the time at which they were measured.
OVERLAP_SECONDS = 3600.0
KEPT = 2000
LISTED = 2000
GROUPS_SHOWN = 10
IDS_SHOWN = 5
LINE_LENGTH = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed run or task run (`what`). key: names this failure, also among others of the same run. finished_at:
    seconds since the epoch."""

    key: str
    what: str
    id: int
    kind: str
    organization_id: str
    error: str
    finished_at: float


@dataclass(frozen=True, slots=True)
class Told:
    """What has been told. after: failures that ended until then are done with (seconds since the epoch, by the
    database's clock). keys: of later ones that were told, with their ends. checks: which fail. posted_at: when the last
    message was accepted."""

    after: float
    keys: dict[str, float] = field(default_factory=dict)
    checks: tuple[str, ...] = ()
    posted_at: float = 0.0

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str | None, now: float) -> Told:
        """What `dumps` gave; for anything else, that nothing before `now` is to be told."""
        try:
            values = json.loads(text or "")
            keys = {str(key): float(end) for key, end in values["keys"].items()}
            return cls(float(values["after"]), keys, tuple(map(str, values["checks"])), float(values["posted_at"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls(now)


def new_failures(conn: Connection, told: Told) -> list[Failure]:
    """Those that are not told yet, oldest first; of very many the first LISTED."""
    with conn.cursor(row_factory=class_row(Failure)) as cursor:
        values = {"after": told.after, "told": list(told.keys), "limit": LISTED}
        return cursor.execute(query("list_new_failures"), values).fetchall()


def remember(told: Told, failures: Sequence[Failure], checks: Sequence[str], now: float, *, posted: bool) -> Told:
    """`told` once `failures` and the failing `checks` have been told, too, without what need not be kept."""
    keys = told.keys | {failure.key: failure.finished_at for failure in failures}
    newest = max(keys.values(), default=now)
    # What is listed next may have ended when the newest did, but not before.
    after = max(told.after, min(now, newest if len(failures) == LISTED else now) - OVERLAP_SECONDS)
    ends = sorted(keys.values())
    if len(ends) > KEPT and ends[-KEPT - 1] < newest:
        after = max(after, ends[-KEPT - 1])
    kept = {key: end for key, end in keys.items() if end > after}
    return Told(after, kept, tuple(sorted(checks)), now if posted else told.posted_at)


def compose(failures: Sequence[Failure], checks: Mapping[str, str]) -> str:
    """One message: failures grouped by kind and error with how many there are, and checks with what they said."""
    groups: dict[tuple[str, str, str], list[Failure]] = {}
    for failure in failures:
        groups.setdefault((failure.what, failure.kind, failure.error), []).append(failure)
    biggest = sorted(groups.items(), key=lambda group: -len(group[1]))
    counts = [
        *(_count(sum(f.what == what for f in failures), f"{what}", "failed") for what in ("run", "task run")),
        _count(len(checks), "check", "failed"),
    ]
    lines = [f"sumaclock: {', '.join(filter(None, counts))}"]
    lines += [f"• check {name}: {text}" for name, text in checks.items()]
    lines += [_line(group) for _, group in biggest[:GROUPS_SHOWN]]
    if len(biggest) > GROUPS_SHOWN:
        rest = sum(len(group) for _, group in biggest[GROUPS_SHOWN:])
        lines.append(f"• and {rest} more of {len(biggest) - GROUPS_SHOWN} other kinds or errors")
    return "\n".join(_escaped(line) for line in lines)


def _line(group: Sequence[Failure]) -> str:
    first = group[0]
    ids = ", ".join(str(failure.id) for failure in group[:IDS_SHOWN]) + (", …" if len(group) > IDS_SHOWN else "")
    owners = sorted({failure.organization_id for failure in group})
    owner = owners[0] if len(owners) == 1 else f"{len(owners)} organisations"
    return f"• {len(group)} × {first.what} of kind {first.kind} ({owner}; {ids}): {first.error}"


def _count(number: int, noun: str, verb: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'} {verb}" if number else ""


def _escaped(line: str) -> str:
    """Cut, and without the signs by which Slack tells links and mentions."""
    shown = line if len(line) <= LINE_LENGTH else f"{line[: LINE_LENGTH - 1]}…"
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
