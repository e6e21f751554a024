"""Pictures of reports as PNG bytes, drawn without a display and without matplotlib's global state."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

KINDS_SHOWN = 8
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#000000", "#999999")


def draw_failures(by_hour: pd.DataFrame) -> bytes:
    """Stacked bars of `by_hour` (index: hours in UTC; one column of counts a kind), 900 by 380 pixels.

    The kinds with most failures are drawn apart, the rest together as "other".
    """
    table = _most_frequent(by_hour)
    figure = Figure(figsize=(9, 3.8), dpi=100, layout="constrained")
    axes = figure.subplots()
    positions = range(len(table))
    bottom = pd.Series(0, index=table.index)
    for kind, colour in zip(table.columns, COLOURS, strict=False):
        axes.bar(positions, table[kind], bottom=bottom, width=0.85, color=colour, label=f"{kind} ({table[kind].sum()})")
        bottom = bottom + table[kind]

    total = int(by_hour.to_numpy().sum())
    axes.set_title(f"{total} failed run{'' if total == 1 else 's'} by hour and kind", fontsize=13, loc="left")
    axes.set_xlabel("hour in which the run failed (UTC)", fontsize=11)
    axes.set_ylabel("failed runs per hour", fontsize=11)
    axes.set_xticks(list(positions)[::3], _hour_labels(table.index)[::3], fontsize=10)
    axes.set_xlim(-0.6, len(table) - 0.4)
    axes.set_ylim(0, max(1, int(bottom.max()) if len(bottom) else 1) * 1.08)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    without_frame(axes)
    if total:
        figure.legend(loc="outside right upper", fontsize=10, frameon=False, title="kind (failed runs)")
    else:
        axes.text(0.5, 0.5, "No failed runs", transform=axes.transAxes, ha="center", va="center", fontsize=13)

    return png_of(figure)


def without_frame(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def png_of(figure: Figure) -> bytes:
    png = BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    return png.getvalue()


def _hour_labels(hours: pd.Index[Any]) -> list[str]:
    """ "16:00", with the date below at the left edge and in the first three hours of a day, whichever is labelled."""
    return [f"{hour:%H:00\n%a %d %b}" if n == 0 or hour.hour < 3 else f"{hour:%H:00}" for n, hour in enumerate(hours)]


def _most_frequent(by_hour: pd.DataFrame) -> pd.DataFrame:
    kinds = list(by_hour.sum().sort_values(ascending=False, kind="stable").index)
    if len(kinds) <= KINDS_SHOWN + 1:
        return by_hour[kinds]
    return by_hour[kinds[:KINDS_SHOWN]].assign(other=by_hour[kinds[KINDS_SHOWN:]].sum(axis=1))
