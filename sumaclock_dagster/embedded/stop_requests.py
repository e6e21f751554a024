"""Ctrl-C, SIGTERM and SIGHUP, counted instead of raised: nothing is interrupted half way."""

from __future__ import annotations

import signal
import time
from types import TracebackType

from sumaclock_dagster.embedded.processes import POLL_SECONDS

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """A stop was asked for while things were starting."""


class StopRequests:
    """Within its context the first signal asks for a stop in good order and each further one for a fast stop."""

    def __init__(self) -> None:
        self._count = 0

    def __enter__(self) -> StopRequests:
        # Under nohup a hang-up is to be ignored.
        counted = [n for n in SIGNALS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._note) for number in counted}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, *_: object) -> None:
        self._count += 1

    @property
    def stop(self) -> bool:
        return self._count > 0

    def hurry(self) -> bool:
        return self._count > 1

    def check(self) -> None:
        """Raises Stopped when a stop was asked for."""
        if self.stop:
            raise Stopped

    def wait(self, seconds: float) -> bool:
        """Whether a stop was asked for, after `seconds` at most."""
        deadline = time.monotonic() + seconds
        while not self.stop and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return self.stop
