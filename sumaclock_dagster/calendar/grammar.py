"""The grammar of local crons: that of raw schedules, `L` and `LW` as day of month, `5L` and `MON#2` as day of week.

What cronsim would read otherwise than it looks is refused.
"""

from __future__ import annotations

import re

from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.raw_schedule import DAY, FIELDS, MACROS, TERM, WEEKDAY, Field, field_value, unwrapped

MAX_LENGTH = 255
EXAMPLE = "0 9 * * MON-FRI"
WEEKDAY_OF_MONTH = re.compile(r"(?P<day>[0-9]+|[A-Za-z]{3})(?:#(?P<nth>[0-9]+)|[Ll])")
FOREIGN = {
    "$": "'$' is not known here, and 'L' as day of month is the last day",
    "?": "'?' is not known here, and '*' says the same",
    "~": "'~' (random) is not known here",
    "#": "'#' (n-th weekday) is for the day of week, as in 'MON#2'",
}
FOREIGN_LETTERS = {
    "L": "'L' (last) stands alone as day of month, or behind a weekday as day of week",
    "W": "'W' (nearest weekday) is not known here",
    "LW": "'LW' (last weekday of the month) stands alone as day of month",
    "H": "'H' (hashed) is not known here",
}


def split_fields(cron: str) -> list[str]:
    """The five fields of a local cron, each of them well-formed.

    Raises SumaclockError that names the field, the reason and a valid example.
    """
    if len(cron) > MAX_LENGTH:
        raise SumaclockError(
            f"cron has {len(cron)} characters and may have {MAX_LENGTH}; write ranges and steps instead of lists, "
            "for example '*/15 9-17 * * MON-FRI'."
        )
    texts = cron.split()
    if not texts:
        raise SumaclockError(f"cron is empty; write five fields in local time, for example '{EXAMPLE}'.")
    if texts[0].startswith("@"):
        spelled = MACROS.get(texts[0].lower(), EXAMPLE)
        raise SumaclockError(f"cron {cron!r}: macros are not allowed; write for example '{spelled}'.")
    if len(texts) != len(FIELDS):
        raise SumaclockError(
            f"cron {cron!r} has {len(texts)} fields and takes exactly five: minute, hour, day of month, month, day of "
            f"week (no seconds or year); write for example '{EXAMPLE}'."
        )
    for field, text in zip(FIELDS, texts, strict=True):
        for term in text.split(","):
            _check_term(cron, field, text, term)
    return texts


def refusal(cron: str, field: Field, text: str, reason: str, example: str | None = None) -> SumaclockError:
    shown = f"cron {cron!r}, {field.name} {text!r}"
    return SumaclockError(f"{shown}: {reason}; write for example '{example or field.example}'.")


def _check_term(cron: str, field: Field, text: str, term: str) -> None:
    if field is DAY and term.upper() in ("L", "LW"):
        return
    of_month = WEEKDAY_OF_MONTH.fullmatch(term) if field is WEEKDAY else None
    if of_month:
        _check_weekday_of_month(cron, text, of_month)
        return
    parts = TERM.fullmatch(term)
    if parts is None or (parts["first"] == "*" and parts["last"]):
        raise refusal(cron, field, text, _syntax_reason(field, term))
    first = field.low if parts["first"] == "*" else field_value(cron, field, text, parts["first"], refusal)
    last = field_value(cron, field, text, parts["last"], refusal) if parts["last"] else None
    if last is not None and first > last:
        raise refusal(cron, field, text, f"the range '{term}' runs backwards", unwrapped(field, first, last))
    if parts["step"]:
        _check_step(cron, field, text, term, None if parts["first"] == "*" else first, last)


def _check_step(cron: str, field: Field, text: str, term: str, first: int | None, last: int | None) -> None:
    """cronsim runs a step behind one value, or a range of one, on to the field's end."""
    step = int(term.partition("/")[2])
    if first is not None and last is None:
        example = f"{first}-{field.high}/{step}" if first < field.high else None
        raise refusal(cron, field, text, f"the step in '{term}' needs a range before it", example)
    if first is not None and first == last:
        raise refusal(cron, field, text, f"the step in '{term}' needs a range of more than one value", str(first))
    if not 1 <= step <= field.high:
        raise refusal(cron, field, text, f"the step in '{term}' must be 1 to {field.high}")


def _check_weekday_of_month(cron: str, text: str, term: re.Match[str]) -> None:
    day = field_value(cron, WEEKDAY, text, term["day"], refusal)
    if term["nth"] is None and not term["day"].isdigit():
        raise refusal(cron, WEEKDAY, text, f"before 'L' the weekday is a number, in '{term[0]}'", f"{day}L")
    if term["nth"] is not None and not 1 <= int(term["nth"]) <= 5:
        raise refusal(cron, WEEKDAY, text, f"'{term[0]}' is none of a month's first to fifth", f"{term['day']}#1")


def _syntax_reason(field: Field, term: str) -> str:
    if not term:
        return "the list has an empty entry"
    letters = re.sub("[^A-Za-z]", "", term)
    foreign = next((reason for sign, reason in FOREIGN.items() if sign in term), FOREIGN_LETTERS.get(letters.upper()))
    if foreign:
        return foreign
    if len(letters) > 3 and field.names:
        return f"names have three letters ({', '.join(field.names)})"
    return f"{term!r} is none of '*', '*/n', 'a', 'a-b', 'a-b/n' or a list of them"
