"""Wait for a condition instead of for a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    condition: Callable[[], T], timeout_seconds: float = 10, what: str = "the condition", poll_seconds: float = 0.02
) -> T:
    """The first true value of `condition`. Fails with `what` when there is none within `timeout_seconds`."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"Waited {timeout_seconds} s in vain for {what}; the last look gave {value!r}.")
        threading.Event().wait(poll_seconds)
