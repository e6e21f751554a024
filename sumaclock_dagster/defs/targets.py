"""Sensors that launch what runs of kind dagster ask for, and that note how their Dagster runs end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import dagster as dg

from sumaclock_dagster.db import Connection
from sumaclock_dagster.defs.following import find, follow, give_up, give_up_lost
from sumaclock_dagster.defs.resources import Sumaclock, location_of
from sumaclock_dagster.defs.target_requests import Unfit, add_named_partitions, in_dagsters_words, to_run_request
from sumaclock_dagster.defs.ticks import WATCH_SECONDS
from sumaclock_dagster.launches import progress
from sumaclock_dagster.launches.graphql import DagsterApi, Refused, UnknownPartition, Unreachable
from sumaclock_dagster.launches.progress import End, Offered, Sought
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.settings import Settings

JOBS_SENSOR = "dagster_targets"
ASSETS_SENSOR = "dagster_asset_targets"
# Dagster says nothing when a run ends, so whoever waits for one looks.
LOOK_SECONDS = 1.0
# A tick submits them one after another, some seconds' worth.
REQUESTS_MOST = 25
# More than a tick takes. Nobody asks again before, and then only where no Dagster run carries the launch's tag.
LEASE_SECONDS = 60.0
OFFERS_MOST = 6
AGAIN_SECONDS = 15.0
# With three calls of the last one and the wait before, within the 60 s that a tick may take.
ELSEWHERE_SECONDS = 8.0
NOT_LAUNCHED = (
    "Dagster was asked {offers} times and did not launch it: the failed ticks of the sensor {sensor} say why."
)
NO_URL = (
    "Code location '{there}' is not the one that sumaclock is in ('{here}'), and others are reached through Dagster's "
    "GraphQL API only: set SUMACLOCK_DAGSTER_GRAPHQL_URL, for example to http://127.0.0.1:3000/graphql."
)

Evaluation = dg.SensorEvaluationContext


def make_target_sensors(jobs: Sequence[Any], assets: Any) -> list[dg.SensorDefinition]:
    """The sensor `dagster_targets`, whose targets are `jobs` (anything that a sensor takes as a job), and, where there
    are `assets` (anything that Dagster takes for a selection), `dagster_asset_targets` for them. A Dagster sensor
    targets either. Each is to be in the same Definitions as its targets and the resource "sumaclock"."""
    sensors = [
        dg.SensorDefinition(
            name=JOBS_SENSOR,
            evaluation_fn=_launch_jobs,
            jobs=list(jobs) or None,
            required_resource_keys={"sumaclock"},
            minimum_interval_seconds=1,
            default_status=dg.DefaultSensorStatus.RUNNING,
            description="Launches what runs of kind dagster ask for: jobs of this code location, and all of others; "
            "and notes how the Dagster runs of all of them end. It waits for news from the database, so one tick takes "
            "up to 20 s. Without it they wait; nothing is lost.",
        )
    ]
    if assets:
        sensors.append(
            dg.SensorDefinition(
                name=ASSETS_SENSOR,
                evaluation_fn=_launch_assets,
                asset_selection=assets,
                required_resource_keys={"sumaclock"},
                minimum_interval_seconds=1,
                default_status=dg.DefaultSensorStatus.RUNNING,
                description="Launches what runs of kind dagster ask for: assets of this code location. It waits as "
                f"{JOBS_SENSOR} does, which notes how they end.",
            )
        )
    return sensors


def _launch_jobs(context: Evaluation) -> list[dg.RunRequest] | dg.SkipReason:
    sumaclock: Sumaclock = context.resources.sumaclock
    with sumaclock.connect("targets") as conn:
        given_up = give_up(context.instance, conn, sumaclock.settings.dagster_start_seconds)
        given_up += give_up_lost(context.instance, conn, location_of(context) or "", sumaclock.settings)
        if given_up:
            context.log.warning(f"{given_up} Dagster runs are gone or never began; their runs failed.")

        def look() -> float:
            find(context.instance, conn, progress.sought(conn))
            under_way = follow(context.instance, conn)
            return LOOK_SECONDS if under_way or progress.any_open(conn) else WATCH_SECONDS

        return _watch(context, conn, sumaclock.settings, look, assets=False)


def _launch_assets(context: Evaluation) -> list[dg.RunRequest] | dg.SkipReason:
    sumaclock: Sumaclock = context.resources.sumaclock
    with sumaclock.connect("targets") as conn:
        return _watch(context, conn, sumaclock.settings, lambda: WATCH_SECONDS, assets=True)


def _watch(
    context: Evaluation, conn: Connection, settings: Settings, look: Callable[[], float], *, assets: bool
) -> list[dg.RunRequest] | dg.SkipReason:
    """Look until there is something to launch, for WATCH_SECONDS at most. `look` says how long to wait after it."""
    progress.listen(conn)
    until = monotonic() + WATCH_SECONDS
    while True:
        wait = look()
        requests = _ask(context, conn, settings, assets=assets)
        if requests:
            return requests
        left = until - monotonic()
        if left <= 0:
            return dg.SkipReason("Nothing was to be launched.")
        progress.wait(conn, min(wait, left))


def _ask(context: Evaluation, conn: Connection, settings: Settings, *, assets: bool) -> list[dg.RunRequest]:
    """Requests for what is to be launched here and now; what Dagster would refuse fails, what is elsewhere is launched
    on the spot."""
    here = location_of(context) or ""
    offers = progress.offer(conn, location=here, assets=assets, most=REQUESTS_MOST, lease_seconds=LEASE_SECONDS)
    if not offers:
        return []
    # A tick that died may have launched it, and so may another daemon.
    found = find(context.instance, conn, [Sought(one.id, one.cron_run_id, one.launch_key) for one in offers])
    wanted = [one for one in offers if one.id not in found]
    name = ASSETS_SENSOR if assets else JOBS_SENSOR
    ends = [
        End(one.id, NOT_LAUNCHED.format(offers=OFFERS_MOST, sensor=name)) for one in wanted if one.offers > OFFERS_MOST
    ]
    wanted = [one for one in wanted if one.offers <= OFFERS_MOST]
    requests, elsewhere = [], []
    for one in wanted:
        try:
            add_named_partitions(context.instance, one.parsed())
            if one.parsed().location in (None, here):
                requests.append(to_run_request(context, _own_definition(context), one))
            else:
                elsewhere.append(one)
        except (Unfit, SumaclockError) as error:
            ends.append(End(one.id, str(error)))
    # Before the other locations are asked, which takes time that the tick may not have.
    progress.end(conn, ends)
    if elsewhere:
        _launch_elsewhere(context, conn, settings, elsewhere, here)
    return requests


def _launch_elsewhere(
    context: Evaluation, conn: Connection, settings: Settings, wanted: list[Offered], here: str
) -> None:
    url = settings.dagster_graphql_url
    if url is None:
        progress.end(conn, [End(one.id, NO_URL.format(there=one.parsed().location, here=here)) for one in wanted])
        return
    api = DagsterApi(url)
    until = monotonic() + ELSEWHERE_SECONDS
    try:
        for place, one in enumerate(wanted):
            if monotonic() > until:
                progress.postpone(conn, [late.id for late in wanted[place:]], 0)
                return
            try:
                progress.note_launched(conn, {one.id: api.launch(one.parsed(), one.tags())})
            except UnknownPartition as error:
                progress.end(conn, [End(one.id, in_dagsters_words(error))])
            except Refused as error:
                progress.end(conn, [End(one.id, str(error))])
            except Unreachable as error:
                context.log.warning(f"{error} What is to be launched elsewhere waits.")
                progress.postpone(conn, [late.id for late in wanted[place:]], AGAIN_SECONDS)
                return
    finally:
        api.close()


def _own_definition(context: Evaluation) -> dg.SensorDefinition:
    assert context.repository_def is not None  # noqa: S101  (a sensor is evaluated with the repository that it is in)
    return context.repository_def.get_sensor_def(context.sensor_name)
