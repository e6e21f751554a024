"""The picture and the table of one run of the peers' benchmark, or of the clock's modes.

    python benchmarks/draw.py benchmarks/results/peers-2026-12-01.jsonl docs/images/benchmark.png
    python benchmarks/draw.py benchmarks/results/clock_modes-2026-12-01.jsonl docs/images/clock_modes.png

Reads one JSON line a peer and mode, as the benchmark's driver writes them, or one a number of tasks and clock, as
clock_modes.py does; the last counts where there are several. Prints the table in Markdown.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import draw_clock_modes
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

PEERS = {
    "ours": ("sumaclock", "Python"),
    "graphile": ("graphile-worker", "Node"),
    "pgboss": ("pg-boss", "Node"),
    "pgqueuer": ("pgqueuer", "Python"),
    "oban": ("oban-py", "Python"),
    "awa_qs": ("awa", "Python on Rust"),
    "procrastinate": ("procrastinate", "Python"),
    "raw": ("bare SQL, no framework", "Python"),
}
MODES = {"default": "#9db4c0", "tuned": "#253237"}
HEAD = (
    "| | language | drain, runs/s: default | tuned | commit → start, ms p50 / p99: default | tuned "
    "| WAL bytes, commits per run (tuned) |"
)

Rows = dict[tuple[str, str], dict[str, Any]]


def main() -> None:
    draw_file(Path(sys.argv[1]), Path(sys.argv[2]))


def draw_file(source: Path, picture: Path) -> None:
    """Print the table of a file of results and draw its picture."""
    read = [json.loads(text) for text in source.read_text().splitlines()]
    day = min(row["at"] for row in read)[:10]
    if read[0].get("benchmark") == "clock_modes":
        modes = list({(row["tasks"], row["clock"]): row for row in read}.values())
        print(draw_clock_modes.table(modes))
        draw_clock_modes.draw(modes, day).savefig(picture, dpi=110)
        return
    rows: Rows = {(row["peer"], row["mode"]): row for row in read}
    print(HEAD)
    print("|---|---|---|---|---|---|---|")
    for peer in known(rows):
        print(line(rows, peer))
    draw(rows, day).savefig(picture, dpi=110)


def known(rows: Rows) -> list[str]:
    return [peer for peer in PEERS if (peer, "default") in rows and (peer, "tuned") in rows]


def line(rows: Rows, peer: str) -> str:
    default, tuned = rows[peer, "default"], rows[peer, "tuned"]
    name, language = PEERS[peer]
    cells = [f"**{name}**" if peer == "ours" else name, language, drained(default), drained(tuned)]
    cells += [started(default), started(tuned), f"{tuned['wal_per_job']}, {tuned['commits_per_job']:g}"]
    return f"| {' | '.join(cells)} |"


def drained(row: dict[str, Any]) -> str:
    return f"{row['drain_s']:,}" if row["executed"] >= row["n"] else "–"


def started(row: dict[str, Any]) -> str:
    return f"{row['commit_to_start_ms']['p50']:.2f} / {row['commit_to_start_ms']['p99']:.1f}"


def draw(rows: Rows, day: str) -> Figure:
    """Left the drain, right the time from commit to start: p50 as a bar, p99 as a mark. Longer is better left only."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True, layout="constrained")
    height, peers = 0.38, known(rows)
    for offset, (mode, color) in zip((height / 2, -height / 2), MODES.items(), strict=True):
        places = [-place + offset for place in range(len(peers))]
        these = [rows[peer, mode] for peer in peers]
        left.barh(places, [row["drain_s"] if row["executed"] >= row["n"] else 0 for row in these], height, color=color)
        right.barh(places, [row["commit_to_start_ms"]["p50"] for row in these], height, color=color, label=mode)
        right.plot([row["commit_to_start_ms"]["p99"] for row in these], places, "|", color=color, markersize=9)
    left.set(title="Drain of 10,000 no-op runs", xlabel="runs per second (longer is better)")
    right.set(title="Commit → start, idle worker", xlabel="milliseconds: bar p50, mark p99 (shorter is better)")
    left.set_yticks([-place for place in range(len(peers))], [PEERS[peer][0] for peer in peers])
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"One worker, one PostgreSQL 15, two shared cores, {day}", fontsize=10)
    return figure


if __name__ == "__main__":
    main()
