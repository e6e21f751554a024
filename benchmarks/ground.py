"""The ground of a benchmark: a private cluster of its own, gone afterwards, also after a kill."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sumaclock_dagster.embedded.cluster import PrivateCluster
from sumaclock_dagster.embedded.configuration import ClusterFile


@contextmanager
def private_cluster(
    settings: Mapping[str, str] | None = None, pg_bin: Path | None = None
) -> Iterator[tuple[Path, ClusterFile]]:
    """Its home in a temporary folder, with real pg_cron and else these settings or defaults (durable commits);
    migrated."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    home = Path(tempfile.mkdtemp(prefix="sumaclock-bench-"))
    home.chmod(0o711)
    private = PrivateCluster(home, pg_bin=pg_bin, extra_settings=settings)
    try:
        yield home, private.start()
    finally:
        private.stop(fast_seconds=10)
        shutil.rmtree(home, ignore_errors=True)


def write_down(file: Path | None, benchmark: str, **figures: object) -> None:
    """Append one line of figures, with the day, to a file of results."""
    if file is not None:
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps({"benchmark": benchmark, "at": time.strftime("%F"), **figures}) + "\n")
