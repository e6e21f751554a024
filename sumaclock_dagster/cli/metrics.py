"""`sumaclock metrics`: an exporter for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import click

from sumaclock_dagster.clock.pg_cron import open_clock
from sumaclock_dagster.db import connect
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.reconcile.drift import DriftKind, count_by_kind, find_drift
from sumaclock_dagster.settings import Settings


@click.command()
@click.option("--port", type=click.IntRange(0, 65_535), default=9467, show_default=True, help="0: any free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at; anybody there may read.")
def metrics(port: int, host: str) -> None:
    """Serve metrics for Prometheus at /metrics until interrupted; each scrape asks the database."""
    # Of no use to the other commands, and slow to import.
    from prometheus_client import start_http_server

    from sumaclock_dagster.reports.metrics import make_registry

    settings = Settings()
    registry = make_registry(
        settings.app_url, settings.cron_url, settings.retention_days, partial(count_drift, settings)
    )
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise SumaclockError(
            f"Cannot listen at {host} port {port}: {error.strerror or error}. Choose another --port."
        ) from None
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"Metrics are at http://{shown}:{server.server_port}/metrics; Ctrl-C ends this.")
    try:
        thread.join()
    except KeyboardInterrupt:
        server.shutdown()
    finally:
        server.server_close()


def count_drift(settings: Settings) -> Mapping[str, int]:
    """How much drift there is now, by kind, zeros included. Raises SumaclockError, or psycopg.Error."""
    with connect(settings.app_url, "sumaclock metrics") as app, open_clock(app, settings.cron_url) as clock:
        found = count_by_kind(find_drift(app, clock))
    return {kind.value: found.get(kind.value, 0) for kind in DriftKind}
