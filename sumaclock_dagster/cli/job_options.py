"""Options that several commands of `sumaclock jobs` share."""

from __future__ import annotations

from collections.abc import Callable

import click

from sumaclock_dagster.cli.output import Command


def catch_up_option(default: str | None) -> Callable[[Command], Command]:
    return click.option(
        "--catch-up",
        type=click.Choice(["one", "none"]),
        default=default,
        help="After missed firings: one run for the last of them (as jobs do by default), or none.",
    )


def overlap_option(default: str | None) -> Callable[[Command], Command]:
    return click.option(
        "--overlap",
        type=click.Choice(["skip", "allow", "auto"]),
        default=default,
        help="While one of its last runs is pending or running: fire nothing, or fire all the same. By default (auto) "
        "schedules in seconds skip and all others allow.",
    )
