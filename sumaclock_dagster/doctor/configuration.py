"""Are the settings valid, do they fit together, and do the handlers load?"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sumaclock_dagster.doctor.context import Context
from sumaclock_dagster.doctor.findings import Finding
from sumaclock_dagster.doctor.phrases import listed, one_line
from sumaclock_dagster.handlers import load_handlers
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.own_handlers import own_handlers
from sumaclock_dagster.settings import Settings

PREFIX = "SUMACLOCK_"
UNITS = {"seconds": "seconds", "days": "days", "bytes": "bytes"}
# (the smaller, the greater): settings that make no sense the other way round.
PAIRS = (
    ("claim_batch", "claim_batch_max"),
    ("min_workers", "max_workers"),
    ("replace_ahead_seconds", "worker_life_seconds"),
)


def invalid_settings(error: ValidationError) -> list[Finding]:
    """One finding for each variable at fault: its name, its bounds and its unit, never its value where it is a URL."""
    return [_invalid(details) for details in error.errors(include_url=False, include_context=False)]


def _invalid(details: ErrorDetails) -> Finding:
    name = str(details["loc"][0]) if details["loc"] else "settings"
    variable = PREFIX + name.upper()
    field = Settings.model_fields.get(name)
    secret = name.endswith(("_url", "_token")) or field is None
    given = "" if secret else f", not {str(details['input'])[:40]!r}"
    return Finding(
        f"{variable} is not valid",
        f"{variable} must be {allowed(name)}{given}.",
        f"Set {variable} to such a value, or unset it for its default{'' if secret else f' ({_default(name)})'}.",
    )


def allowed(name: str) -> str:
    """What a setting takes, in words: 'a whole number from 1 to 500', 'a number of seconds above 0 and up to 300',
    'jobs or slots'."""
    field = Settings.model_fields.get(name)
    if field is not None and get_origin(field.annotation) is Literal:
        return " or ".join(map(str, get_args(field.annotation)))
    if field is None or field.annotation not in (int, float):
        return "a URL" if name.endswith("_url") else "text"
    unit = next((f" of {word}" for suffix, word in UNITS.items() if name.endswith(f"_{suffix}")), "")
    number = f"a {'whole ' if field.annotation is int else ''}number{unit}"
    low, high = "", ""
    for bound in field.metadata:
        if isinstance(bound, Ge):
            low = f"from {bound.ge:,}"
        elif isinstance(bound, Gt):
            low = f"above {bound.gt:,}"
        elif isinstance(bound, Le):
            high = f"up to {bound.le:,}"
        elif isinstance(bound, Lt):
            high = f"below {bound.lt:,}"
    between = " and " if low.startswith("above") and high else " "
    return f"{number} {low}{between}{high}".strip()


def _default(name: str) -> str:
    return f"{Settings.model_fields[name].default!s}" or "nothing"


def settings_fit(context: Context) -> Finding:
    settings = context.settings
    for smaller, greater in PAIRS:
        low, high = getattr(settings, smaller), getattr(settings, greater)
        if low > high:
            one, other = PREFIX + smaller.upper(), PREFIX + greater.upper()
            return Finding(
                f"{one} = {low}, {other} = {high}",
                f"{one} ({low}) is greater than {other} ({high}).",
                f"Lower {one} or raise {other}.",
            )
    try:
        settings.no_handler_message.format(kind="x")
    except (LookupError, ValueError, AttributeError):
        return Finding(
            "a broken message template",
            f"{PREFIX}NO_HANDLER_MESSAGE is a template with another place-holder than {{kind}}.",
            "Write {kind} where the kind is to stand, and {{ and }} for braces.",
        )
    return Finding("all within their bounds")


def unknown_variables(environment: Mapping[str, str]) -> Finding:
    """A misspelt variable has no effect and no error; one that nearly is a setting's name is most likely that."""
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    likely = {}
    for name in environment:
        if name.startswith(PREFIX) and name not in known:
            near = [match for match in get_close_matches(name, known, n=1, cutoff=0.9) if match not in environment]
            likely.update(dict.fromkeys([name], near[0]) if near else {})
    if not likely:
        return Finding("no variable that looks misspelt")
    return Finding(
        listed(sorted(likely)),
        f"No setting is named {listed(sorted(likely))}.",
        f"Rename it to {listed([likely[name] for name in sorted(likely)])}, or unset it.",
        warning=True,
    )


@contextmanager
def _current_folder_importable() -> Iterator[None]:
    """Dagster's code server, started by `python -m`, finds modules of the current folder; a console script does not."""
    sys.path.insert(0, "")
    try:
        yield
    finally:
        sys.path.remove("")


def handlers_load(context: Context) -> Finding:
    """Handlers, task kinds and the access check: all of somebody else's code that workers run."""
    settings = context.settings
    try:
        with _current_folder_importable():
            loaded = load_handlers(settings.handlers, own_handlers(settings))
    except SumaclockError as refused:
        return Finding(
            "handlers that do not load",
            f"{one_line(refused).replace('. ', ', ')}.",
            "Correct that setting or the module that it names, and see that the module can be imported from here.",
        )
    except Exception as error:  # noqa: BLE001 - somebody else's module may raise anything when it is imported
        return Finding(
            "handlers that do not load",
            f"What the settings name ('{settings.loaded_code}') could not be loaded, because its code raised "
            f"{type(error).__name__}: "
            f"{one_line(error).replace('. ', ', ')}.",
            "Correct the module at fault; importing it in a Python shell shows the line.",
        )
    return Finding(f"kinds: {listed(sorted(loaded))}" if loaded else "no handlers")
