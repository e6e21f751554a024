"""Time zones by name, from the `tzdata` package alone, so that two hosts agree whatever their systems hold."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.resources import files
from zoneinfo import ZoneInfo

from sumaclock_dagster.model import SumaclockError

LONGEST_NAME = 64


@cache
def zone_data_version() -> str:
    """The IANA version of the zone data in use, for example '2026f'."""
    return str(import_module("tzdata").IANA_VERSION)


@cache
def zone_names() -> frozenset[str]:
    """The IANA names that a schedule may use."""
    listed = files("tzdata").joinpath("zones").read_text("utf-8").split()
    # "Factory" is the zone of a machine that nobody set up.
    return frozenset(listed) - {"Factory"}


@cache
def zone_named(name: str) -> ZoneInfo:
    """Raises SumaclockError for a name that is not in the zone data, with the names that come close."""
    if name not in zone_names():
        raise SumaclockError(
            f"timezone {name[:LONGEST_NAME]!r}: no such zone in the zone data {zone_data_version()}; "
            f"write an IANA name, for example {_close_names(name)}."
        )
    with files("tzdata.zoneinfo").joinpath(*name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


def _close_names(name: str) -> str:
    """Names alike as a whole or in their last part ("Madrid"), or the usual one where none is."""
    if len(name) > LONGEST_NAME:
        return "'Europe/Madrid'"
    # The signs of Etc/GMT+2 are turned around: proposing it would put a task four hours off.
    spelled = {listed.lower(): listed for listed in zone_names() if not listed.startswith("Etc/")}
    spelled |= {whole.rpartition("/")[2]: listed for whole, listed in spelled.items() if "/" in whole}
    wanted = name.strip().lower().replace(" ", "_")
    if wanted in spelled:
        return repr(spelled[wanted])
    close = [spelled[match] for match in get_close_matches(wanted, spelled, n=3, cutoff=0.7)]
    return " or ".join(repr(listed) for listed in dict.fromkeys(close)) or "'Europe/Madrid'"
