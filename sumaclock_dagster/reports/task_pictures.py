"""Pictures of tasks as PNG bytes, drawn as those of failures are."""

from __future__ import annotations

from datetime import datetime, timedelta

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sumaclock_dagster.reports.pictures import png_of, without_frame
from sumaclock_dagster.reports.upcoming import Timeline

OUTCOMES = {"done": "#009E73", "failed": "#D55E00", "skipped": "#999999"}
BLUE = "#0072B2"
ORGANIZATIONS_SHOWN = 8
LABEL_LENGTH = 28
FEW_DOTS = 50


def draw_task_runs(by_organization: pd.DataFrame, by_lateness: pd.Series[int]) -> bytes:
    """900 by 380 pixels: task runs of the first organisations by outcome on the left, by lateness on the right.

    The arguments are those of `reports.task_runs`.
    """
    figure = Figure(figsize=(9, 3.8), dpi=100, layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_outcomes(left, by_organization.head(ORGANIZATIONS_SHOWN))
    right.barh(range(len(by_lateness)), by_lateness, color=BLUE)
    right.set_yticks(range(len(by_lateness)), list(by_lateness.index), fontsize=10)
    right.invert_yaxis()
    right.set_title("How late they began", fontsize=13, loc="left")
    for axes in (left, right):
        axes.set_xlabel("task runs", fontsize=11)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        axes.set_xlim(0, max(1.0, axes.dataLim.x1 * 1.05))
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
        without_frame(axes)
    if len(by_organization):
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower left", ncols=3, fontsize=10, frameon=False)
    return png_of(figure)


def draw_timeline(timeline: Timeline) -> bytes:
    """900 pixels wide: a dot for each firing of the tasks that fire first, and below it bars for all tasks. UTC."""
    rows = len(timeline.tasks)
    figure = Figure(figsize=(9, 3.0 + 0.28 * rows), dpi=100, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[max(rows, 1) * 0.28 + 0.2, 1.8])
    _draw_dots(above, timeline)
    _draw_bars(below, timeline)
    period = "24 hours" if timeline.hours == 24 else f"{timeline.hours // 24} days"
    total = int(timeline.per_bar.sum())
    count = f"{total:,} firing{'' if total == 1 else 's'}" if timeline.complete else f"More than {total:,} firings"
    above.set_title(f"{count} within {period}", fontsize=13, loc="left")
    _label_time(below, timeline)
    return png_of(figure)


def _draw_outcomes(axes: Axes, by_organization: pd.DataFrame) -> None:
    positions = range(len(by_organization))
    offset = pd.Series(0, index=by_organization.index)
    for outcome, colour in OUTCOMES.items():
        counts = by_organization[outcome].astype("int64")
        axes.barh(positions, counts, left=offset, color=colour, label=f"{outcome} ({counts.sum():,})")
        offset = offset + counts
    names = [_cut(name) for name in by_organization["organization_id"]]
    axes.set_yticks(list(positions), names, fontsize=10)
    axes.invert_yaxis()
    axes.set_title("Task runs by organisation", fontsize=13, loc="left")
    if by_organization.empty:
        axes.text(0.5, 0.5, "No task runs", transform=axes.transAxes, ha="center", va="center", fontsize=13)


def _draw_dots(axes: Axes, timeline: Timeline) -> None:
    for row, (_, moments) in enumerate(timeline.tasks):
        hours = [_hours(timeline, moment) for moment in moments]
        axes.plot(hours, [row] * len(hours), "o", color=BLUE, markersize=7 if len(hours) <= FEW_DOTS else 3)
    axes.set_yticks(range(len(timeline.tasks)), [_cut(label) for label, _ in timeline.tasks], fontsize=10)
    axes.set_ylim(max(len(timeline.tasks), 1) - 0.4, -0.6)
    axes.grid(alpha=0.3)
    axes.tick_params(axis="x", labelbottom=False)
    without_frame(axes)
    if not timeline.tasks:
        axes.text(0.5, 0.5, "No firings", transform=axes.transAxes, ha="center", va="center", fontsize=13)


def _draw_bars(axes: Axes, timeline: Timeline) -> None:
    beginnings = [_hours(timeline, bar) for bar in timeline.per_bar.index]
    axes.bar(beginnings, timeline.per_bar, width=timeline.bar_hours * 0.9, align="edge", color=BLUE)
    unit = "hour" if timeline.bar_hours == 1 else f"{timeline.bar_hours} h"
    axes.set_ylabel(f"all firings\nper {unit}", fontsize=11)
    axes.set_ylim(0, max(1, int(timeline.per_bar.max())) * 1.1)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    without_frame(axes)


def _label_time(axes: Axes, timeline: Timeline) -> None:
    """A label every three hours with the date once a day; or one a day."""
    begin: datetime = timeline.per_bar.index[0]
    last = _hours(timeline, timeline.start + timedelta(hours=timeline.hours))
    every = 3 if timeline.hours <= 48 else 24
    first = -begin.hour % every
    at = range(first, int(last) + 1, every)
    moments = [begin + timedelta(hours=hour) for hour in at]
    if every == 24:
        labels = [f"{moment:%a\n%d %b}" for moment in moments]
    else:
        labels = [f"{m:%H:00\n%a %d %b}" if n == 0 or m.hour == 0 else f"{m:%H:00}" for n, m in enumerate(moments)]
    axes.set_xticks(list(at), labels, fontsize=10)
    axes.set_xlim(0, last)
    axes.set_xlabel("UTC", fontsize=11)


def _hours(timeline: Timeline, moment: datetime) -> float:
    """Hours since the left edge."""
    passed: timedelta = moment - timeline.per_bar.index[0]
    return passed / timedelta(hours=1)


def _cut(text: object) -> str:
    # A dollar sign would begin mathematics.
    shown = str(text).replace("$", "\\$")
    return shown if len(shown) <= LABEL_LENGTH else f"{shown[: LABEL_LENGTH - 1]}…"
