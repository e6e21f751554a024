"""What the checks share: the settings and the connections that earlier checks opened."""

from __future__ import annotations

from types import TracebackType

from sumaclock_dagster.clock.faults import Fault, FaultKind, diagnose
from sumaclock_dagster.clock.look import read_signs
from sumaclock_dagster.clock.signs import Signs
from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.settings import Settings

APPLICATION = "sumaclock doctor"


class Context:
    """Holds one connection to each database, opened by the check that proves it reachable and closed at the end.

    old_transaction_seconds: from this age on, a transaction is worth a warning.
    """

    def __init__(self, settings: Settings, old_transaction_seconds: float) -> None:
        self.settings = settings
        self.old_transaction_seconds = old_transaction_seconds
        self._app: Connection | None = None
        self._cron: Connection | None = None
        self._signs: Signs | None = None
        self.superuser: Connection | None = None

    @property
    def app(self) -> Connection:
        return _opened(self._app)

    @app.setter
    def app(self, connection: Connection) -> None:
        self._app = connection

    @property
    def cron(self) -> Connection:
        return _opened(self._cron)

    @cron.setter
    def cron(self, connection: Connection) -> None:
        self._cron = connection

    @property
    def signs(self) -> Signs:
        """Of the clock, which is looked at once. Raises psycopg.Error where it can't be."""
        if self._signs is None:
            # On connections of its own: a look limits what its session may do.
            urls = self.settings.app_url, self.settings.cron_url
            with connect(urls[0], APPLICATION) as app, connect(urls[1], APPLICATION) as cron:
                self._signs = read_signs(app, cron, self.superuser)
        return self._signs

    def fault(self, *kinds: FaultKind) -> Fault | None:
        """The first of the clock's faults that is of these kinds."""
        return next((fault for fault in diagnose(self.signs) if fault.kind in kinds), None)

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in (self._app, self._cron, self.superuser):
            if connection is not None:
                connection.close()


def _opened(connection: Connection | None) -> Connection:
    if connection is None:
        raise LookupError("A check used a connection without naming the check that opens it.")
    return connection
