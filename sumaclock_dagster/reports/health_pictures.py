"""Pictures of the clock's health as PNG bytes, drawn as those of failures are."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from sumaclock_dagster.reports.pictures import png_of, without_frame

PERCENTILES = {"p50": ("#0072B2", "o"), "p95": ("#E69F00", "s"), "p99": ("#D55E00", "^")}
OUTCOMES = {"done": "#009E73", "failed": "#D55E00", "skipped": "#999999", "unfinished": "#56B4E9"}
MEANT = "hour of the minute that was meant (UTC)"


def draw_lateness(by_hour: pd.DataFrame) -> bytes:
    """900 by 380 pixels: lateness p50, p95 and p99 of each hour on a logarithmic axis. Argument: `lateness_by_hour`."""
    figure = Figure(figsize=(9, 3.8), dpi=100, layout="constrained")
    axes = figure.subplots()
    # Down to a millisecond: a logarithm has no place for zero, and early is not late.
    shown = by_hour[list(PERCENTILES)].clip(lower=0.001)
    for name, (colour, marker) in PERCENTILES.items():
        axes.plot(range(len(shown)), shown[name], color=colour, marker=marker, markersize=6, label=name)
    total = int(by_hour["firings"].sum())
    axes.set_title(f"Lateness of {_count(total, 'firing')} by hour", fontsize=13, loc="left")
    axes.set_xlabel(MEANT, fontsize=11)
    axes.set_ylabel("lateness (s)", fontsize=11)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(*((0.001, 100) if not total else (shown.min().min() / 2, max(1.0, shown.max().max()) * 2)))
    hours = list(by_hour["hour"])
    labels = [f"{hour:%H:00\n%a %d %b}" if n == 0 or hour.hour < 3 else f"{hour:%H:00}" for n, hour in enumerate(hours)]
    axes.set_xticks(range(0, len(hours), 3), labels[::3], fontsize=10)
    axes.set_xlim(-0.6, len(hours) - 0.4)
    axes.grid(axis="y", alpha=0.3)
    without_frame(axes)
    if total:
        figure.legend(loc="outside right upper", fontsize=10, frameon=False)
    else:
        axes.text(0.5, 0.5, "No firings", transform=axes.transAxes, ha="center", va="center", fontsize=13)
    return png_of(figure)


def draw_firings(by_outcome: pd.DataFrame) -> bytes:
    """900 by 380 pixels: bars of six hours, stacked by outcome. Argument: `firings_by_outcome`."""
    figure = Figure(figsize=(9, 3.8), dpi=100, layout="constrained")
    axes = figure.subplots()
    bottom = pd.Series(0, index=by_outcome.index)
    for outcome, colour in OUTCOMES.items():
        counts = by_outcome[outcome]
        label = f"{outcome} ({counts.sum():,})"
        axes.bar(range(len(counts)), counts, bottom=bottom, width=0.85, color=colour, label=label)
        bottom = bottom + counts
    total = int(bottom.sum())
    axes.set_title(f"{_count(total, 'firing')} by outcome within 7 days", fontsize=13, loc="left")
    axes.set_xlabel("the minute that was meant (UTC)", fontsize=11)
    axes.set_ylabel("firings per 6 h", fontsize=11)
    midnights = [n for n, bar in enumerate(by_outcome.index) if bar.hour == 0]
    axes.set_xticks(midnights, [f"{by_outcome.index[n]:%a\n%d %b}" for n in midnights], fontsize=10)
    axes.set_xlim(-0.6, len(by_outcome) - 0.4)
    axes.set_ylim(0, max(1, int(bottom.max())) * 1.08)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    without_frame(axes)
    if total:
        figure.legend(loc="outside right upper", fontsize=10, frameon=False, title="outcome (firings)")
    else:
        axes.text(0.5, 0.5, "No firings", transform=axes.transAxes, ha="center", va="center", fontsize=13)
    return png_of(figure)


def _count(total: int, what: str) -> str:
    return f"{total:,} {what}{'' if total == 1 else 's'}"
