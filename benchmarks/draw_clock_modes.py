"""The picture and the table of the clock's two modes, from what `clock_modes.py --json` wrote.

What was not waited for to the end is told by its rate, and drawn hatched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

MODES = {"jobs": "#9db4c0", "slots": "#253237"}
TITLES = {"jobs": "jobs: a clock job each", "slots": "slots: one clock job a schedule"}
HEAD = (
    "| tasks | clock | clock jobs | launcher idle, % of a core | its memory, MB "
    "| placed/s: minutes of others | own minutes | all runs written | first / median / last start |"
)

Row = dict[str, Any]
# A value, and whether it is calculated from a rate.
Value = tuple[float, bool]


def table(rows: Sequence[Row]) -> str:
    lines = [HEAD, "|" + "---|" * 9]
    for row in rows:
        cells = [f"{row['tasks']:,}", f"`{row['clock']}`", f"{row['clock_jobs']:,}"]
        cells += [f"{row['launcher_core_percent']:.2f}", f"{row['launcher_mb']:.1f}"]
        cells += [f"{row['placed_known']:,.0f}", f"{row['placed_new']:,.0f}", _fired(row), _started(row)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(rows: Sequence[Row], day: str) -> Figure:
    sizes = sorted({row["tasks"] for row in rows})
    figure, axes = plt.subplots(2, 2, figsize=(11, 7.4), layout="constrained")
    panels: list[tuple[str, str, Callable[[Row], Value], bool]] = [
        ("All runs written, tasks due in one minute", "seconds after the minute (shorter is better)", written, True),
        ("Last task started, two workers", "seconds after the minute (shorter is better)", last_start, True),
        ("pg_cron's launcher, nothing due", "% of a core (shorter is better)", _plain("launcher_core_percent"), False),
        ("Placing a task, two workers", "tasks per second (longer is better)", _plain("placed_known"), False),
    ]
    for ax, (title, unit, value, is_log) in zip(axes.flat, panels, strict=True):
        _panel(ax, rows, sizes, value)
        ax.set(title=title, ylabel=unit, xlabel="tasks due in that minute" if is_log else "tasks in all")
        if is_log:
            ax.set_yscale("log")
        ax.margins(y=0.15)
    axes.flat[0].legend(frameon=False)
    figure.suptitle(
        f"PostgreSQL 15, pg_cron 1.4, two shared cores, {day}; hatched: calculated from the rate", fontsize=10
    )
    return figure


def written(row: Row) -> Value:
    """Seconds until the runs of all tasks are written."""
    if row["written"] is not None and row["due"] == row["tasks"]:
        return row["written"], False
    return row["tasks"] / rate(row["fired"], row["fired_last"]), True


def last_start(row: Row) -> Value:
    """Seconds until all tasks have started."""
    if row["started"] == row["tasks"]:
        return row["start_last"], False
    return row["tasks"] / rate(row["started"], row["start_last"]), True


def rate(done: int, seconds: float) -> float:
    """A second, since the minute."""
    return done / max(seconds, 0.001)


def _panel(ax: Axes, rows: Sequence[Row], sizes: list[int], value: Callable[[Row], Value]) -> None:
    width = 0.38
    for offset, (mode, color) in zip((-width / 2, width / 2), MODES.items(), strict=True):
        these = [row for row in rows if row["clock"] == mode]
        places = [sizes.index(row["tasks"]) + offset for row in these]
        values = [value(row) for row in these]
        bars = ax.bar(places, [number for number, _ in values], width, color=color, label=TITLES[mode])
        for bar, (_, is_calculated) in zip(bars, values, strict=True):
            if is_calculated:
                bar.set(hatch="///", edgecolor="white")
        ax.bar_label(bars, [_short(*one) for one in values], fontsize=8, padding=2)
    ax.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes])
    ax.spines[["top", "right"]].set_visible(False)


def _plain(name: str) -> Callable[[Row], Value]:
    return lambda row: (row[name], False)


def _short(number: float, is_calculated: bool) -> str:
    text = f"{number:,.0f}" if number >= 10 else f"{number:.1f}" if number >= 1 else f"{number:.2f}"
    return f"≈ {text}" if is_calculated else text


def _fired(row: Row) -> str:
    seconds, is_calculated = written(row)
    if not is_calculated:
        return f"{seconds:.2f} s"
    return f"{row['fired']:,} in {row['fired_last']:.0f} s, so all in about {_in_words(seconds)}"


def _started(row: Row) -> str:
    times = f"{row['start_first']:.2f} / {row['start_median']:.2f} / {row['start_last']:.2f} s"
    if row["started"] == row["tasks"]:
        return times
    return f"{times} for {row['started']:,}, so all in about {_in_words(last_start(row)[0])}"


def _in_words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
