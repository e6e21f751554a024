"""How often a process that handles many small values looks for garbage in cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# Python's 700, 10, 10 looks through what a claim holds several times a batch: 40 % of the CPU of a run. What makes no
# cycles is freed at once all the same.
THRESHOLDS = (20_000, 20, 20)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for cycles less often meanwhile: in the whole process, which a worker or a sync has to itself."""
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
