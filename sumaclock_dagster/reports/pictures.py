"""Pictures of reports as PNG bytes, drawn without a display and without matplotlib's global state."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

KINDS_SHOWN = 8
LABEL_LENGTH = 24
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


def draw_failure_heat(by_hour: pd.DataFrame) -> bytes:
    """A heat map of `by_hour` (as above, of some days): a row a kind, a cell an hour, 900 pixels wide.

    The kinds with most failures have rows of their own, the most frequent on top, the rest share "other".
    """
    table = _most_frequent(by_hour)
    kinds = list(table.columns)
    figure = Figure(figsize=(9, 1.7 + 0.3 * max(len(kinds), 3)), dpi=100, layout="constrained")
    axes = figure.subplots()
    total, most = int(table.to_numpy().sum()), int(table.to_numpy().max(initial=0))
    axes.set_title(f"{total:,} failed run{'' if total == 1 else 's'} by kind and hour", fontsize=13, loc="left")
    axes.set_xlabel("hour in which the run failed (UTC)", fontsize=11)
    axes.set_ylabel("kind (failed runs)", fontsize=11)
    days = [n for n, hour in enumerate(table.index) if hour.hour == 0]
    axes.set_xticks(days, [f"{table.index[n]:%a\n%d %b}" for n in days], fontsize=10, ha="left")
    axes.set_xlim(0, len(table))
    for day in days:
        axes.axvline(day, color="#999999", linewidth=0.6)
    if total:
        # Nothing stays white; one failure is told from none, and a thousand from a hundred.
        shown = table.to_numpy().T.astype(float)
        shown[shown == 0] = float("nan")
        mesh = axes.pcolormesh(shown, cmap="YlOrRd", norm=LogNorm(0.2, max(10, most)))
        axes.set_yticks(
            [n + 0.5 for n in range(len(kinds))], [_short(kind, int(table[kind].sum())) for kind in kinds], fontsize=10
        )
        axes.invert_yaxis()
        axes.hlines(range(1, len(kinds)), 0, len(table), color="#dddddd", linewidth=0.6)
        bar = figure.colorbar(mesh, ax=axes, pad=0.01)
        bar.set_label("failed runs per hour", fontsize=10)
        bar.set_ticks(_round_counts(most))
        bar.ax.minorticks_off()
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    else:
        axes.set_yticks([])
        axes.text(0.5, 0.5, "No failed runs", transform=axes.transAxes, ha="center", va="center", fontsize=13)
    without_frame(axes)
    return png_of(figure)


def without_frame(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def png_of(figure: Figure) -> bytes:
    png = BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    return png.getvalue()


def _short(kind: str, failed: int) -> str:
    name = kind if len(kind) <= LABEL_LENGTH else f"{kind[: LABEL_LENGTH - 1]}…"
    return f"{name} ({failed:,})"


def _round_counts(most: int) -> list[int]:
    """1, 3, 10, 30 … up to the most, which ends the scale."""
    steps = [step * 10**power for power in range(len(str(most))) for step in (1, 3)]
    return [step for step in steps if step < most * 0.5] + [max(most, 1)]


def _hour_labels(hours: pd.Index[Any]) -> list[str]:
    """ "16:00", with the date below at the left edge and in the first three hours of a day, whichever is labelled."""
    return [f"{hour:%H:00\n%a %d %b}" if n == 0 or hour.hour < 3 else f"{hour:%H:00}" for n, hour in enumerate(hours)]


def _most_frequent(by_hour: pd.DataFrame) -> pd.DataFrame:
    kinds = list(by_hour.sum().sort_values(ascending=False, kind="stable").index)
    if len(kinds) <= KINDS_SHOWN + 1:
        return by_hour[kinds]
    return by_hour[kinds[:KINDS_SHOWN]].assign(other=by_hour[kinds[KINDS_SHOWN:]].sum(axis=1))
