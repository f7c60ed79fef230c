"""Where the time of language runs goes, what the proximal policy takes of it, and what is reached for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..statistics.table import Table
from ..store.cells import grid
from ..store.store import StoredRun
from .canvas import FAINT, INK, PAGE, panels, shown
from .captions import axis, iqm_axis, labels, seeds, size

RULE = "#E4E4E4"  # between the lines of a table
Cells = Callable[[str, int], tuple[str, str]]  # (method, K) -> a value, and what stands below it
PARTS = {  # columns of timing.parquet in the order of a phase, and their colours
    "generate": "#3B6FA0",
    "score": "#8FB4D6",
    "proximal": "#B3261E",
    "loss": "#E6A23C",
    "train": "#4E8F5B",
    "evaluate": "#B9B9B9",
}


def timed(runs: Sequence[StoredRun]) -> bool:
    """Whether the time of every run is known by these parts: that of language runs is."""
    return bool(runs) and all(set(PARTS) <= set(run.record["seconds"]) for run in runs)


def where_the_time_goes(runs: Sequence[StoredRun], table: Table, width: float = PAGE) -> Figure:
    """Mean seconds of a phase by what they were spent on: a bar per algorithm, over all its runs.

    At the end of a bar: the proximal step, and the whole loss, which is an upper bound for a method that
    interpolates its proximal policy inside it (A-3PO's claim, arXiv 2512.06547).
    """
    found, names = grid(runs), labels(table)
    spent = {
        label: _mean_seconds([r for c, rs in found.cells.items() if c.label == label for r in rs])
        for label in names
    }
    subtitle = (
        f"mean seconds per generation round over buffer capacities, environments and runs ({seeds(found)}); right: the "
        "proximal step alone and the whole loss, which bounds it for methods that interpolate inside the loss"
    )
    height = 0.55 + 0.24 * len(names)
    with panels("Where the time goes", subtitle, [0], table=table, columns=1, height=height, width=width) as (
        figure,
        (ax,),
    ):
        longest = max(sum(s.values()) for s in spent.values())
        for at, label in enumerate(names):
            left = 0.0
            for part, colour in PARTS.items():
                ax.barh(at, spent[label][part], left=left, height=0.7, color=colour)
                left += spent[label][part]
            words = "{}, {}" if width < 5 else "proximal {}, loss {}"
            text = words.format(_short(spent[label]["proximal"]), _short(spent[label]["loss"]))
            ax.text(left + 0.01 * longest, at, text, va="center", fontsize=6.5, color=INK)
        ax.set_yticks(range(len(names)), labels=[shown(label) for label in names])
        ax.set_ylim(len(names) - 0.4, -0.6)
        bars = width - 1.4  # inches of the panel, about; the words take 1 or 1.8 of them
        ax.set_xlim(0, longest * bars / (bars - (1.0 if width < 5 else 1.8)))
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("seconds per generation round")
        handles = [Patch(color=colour, label=part) for part, colour in PARTS.items()]
        figure.legend(
            handles=handles, loc="outside lower left", ncols=6 if width > 5 else 3, frameon=False,
            handlelength=1.0, columnspacing=1.2, labelcolor=FAINT,
        )  # fmt: skip
    return figure


def score_and_time(runs: Sequence[StoredRun], table: Table, width: float = PAGE) -> Figure:
    """Final score of each method by K, the time that its training took, and the share of that time that went into a
    proximal policy's own pass (where runs say so), as a table.

    Time is that of collecting and learning, without evaluation, of one run: mean over runs, and the least and the
    most of them.
    """
    found, names, ks = grid(runs), labels(table), table.settings["capacities"]
    rows = {(r["algorithm"], r["capacity"]): r for r in table.rows if r["iqm"] is not None}
    timings = {run.id: run.timing() for run in runs}
    seconds = {run: float((t["collect"] + t["learn"]).sum()) for run, t in timings.items()}
    unit, short = _clock_unit(max(seconds.values(), default=0.0))

    def over_runs(of: Callable[[str], float], digits: int) -> Cells:
        def cell(label: str, k: int) -> tuple[str, str]:
            values = [of(r.id) for c, rs in found.cells.items() if c[:2] == (label, k) for r in rs]
            several = f"{min(values):.{digits}f} to {max(values):.{digits}f}" if len(values) > 1 else ""
            return f"{np.mean(values):.{digits}f}" if values else "–", several

        return cell

    def score(label: str, k: int) -> tuple[str, str]:
        row = rows.get((label, k))
        if row is None:
            return "–", ""
        there = row["iqm_low"] is not None
        return f"{row['iqm']:.3f}", f"{row['iqm_low']:.3f} to {row['iqm_high']:.3f}" if there else ""

    parts = {
        f"final {axis(table)}": score,
        f"training time, {short}": over_runs(lambda r: seconds[r] / unit, 2),
    }
    if all("proximal" in t for t in timings.values()):
        parts["of it in the proximal step, %"] = over_runs(
            lambda r: 100 * timings[r]["proximal"].sum() / seconds[r], 1
        )
    cores = ", ".join(sorted({str(r.record["fingerprint"].get("cpu")) for r in runs}))
    subtitle = (
        f"final score: {iqm_axis(table)} over {size(table)}, {table.settings['level']:.0%} stratified bootstrap "
        "interval below; time: collecting and learning of one run, without evaluation, mean over runs "
        f"({seeds(found)}), range below. Time is that of the machine ({cores}) and of what else ran on it"
    )
    columns, height = len(parts) if width > 5 else 1, 0.45 + 0.34 * len(names)
    with panels(
        "Score and time", subtitle, [0] * len(parts), table=table, columns=columns, height=height, width=width
    ) as (figure, axes):
        for ax, (heading, cell) in zip(axes, parts.items(), strict=True):
            for y, label in enumerate(names):
                for x, k in enumerate(ks):
                    value, below = cell(label, k)
                    ax.text(x, y - 0.06, value, ha="center", va="bottom" if below else "center", fontsize=8)
                    ax.text(x, y + 0.06, below, ha="center", va="top", fontsize=5, color=FAINT)
                ax.axhline(y + 0.5, color=RULE, linewidth=0.5)
            ax.axhline(-0.5, color=INK, linewidth=0.8)
            ax.set(xlim=(-0.5, len(ks) - 0.5), ylim=(len(names) - 0.45, -0.55))
            ax.set_xticks(range(len(ks)), labels=[f"K = {k}" for k in ks])
            ax.set_yticks(range(len(names)), labels=[shown(label, width) for label in names])
            ax.set_title(heading, loc="left", pad=14)
            ax.xaxis.tick_top()
            ax.tick_params(length=0)
            ax.grid(visible=False)
            ax.spines[["left", "bottom"]].set_visible(False)
    return figure


def _clock_unit(longest: float) -> tuple[float, str]:
    """(seconds, name) of the unit in which a time is said."""
    return (3600.0, "hours") if longest >= 3600 else (60.0, "minutes") if longest >= 60 else (1.0, "seconds")


def _mean_seconds(runs: Sequence[StoredRun]) -> dict[str, float]:
    frames = [run.timing() for run in runs]
    return {
        part: float(np.mean([f[part].mean() if part in f else 0.0 for f in frames] or [0.0]))
        for part in PARTS
    }


def _short(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.1f} s"
    ms = 1000 * seconds
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.2g} ms" if ms >= 0.1 else "< 0.1 ms"
