"""The reward and what may warn of its fall, over the same steps: which of them falls first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..statistics.claims.early_warning import falls
from ..statistics.results import Results
from ..statistics.table import Table
from .bins import binned
from .canvas import PAGE, gid, legend, panels, shown, steps_axis
from .captions import looks_of, seeds
from .palette import Style
from .registry import FIGURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


BINS = 40  # of a column over training


@FIGURES.register("warning_before_fall")
def warning_before_fall(
    results: Results,
    table: Table,
    width: float = PAGE,
    *,
    metric: str,
    name: str,
    share: float = 2 / 3,
    after: int = 0,
    window: int = 8,
) -> Figure:
    """Training reward, a column that may warn of its fall, and, run by run, when each of the two fell.

    Either has fallen when its mean over the last `window` phases is below `share` of its best so far. The first
    `after` steps do not count: a column may owe its best to data that are not stale yet. All capacities of the table
    are in the same panels.
    """
    looks = looks_of(table)
    subtitle = (
        f"above: mean over environments and seeds ({seeds(results.grid)}) in at most {BINS} bins, no interval; below: "
        f"each run; ring: its {name}, disc: its reward is first below {share:.0%} of the best so far (means of "
        f"{window} phases, from step {after} on)"
    )
    with panels(
        f"{name} before the reward falls",
        subtitle,
        ["reward", "column", "runs"],
        table=table,
        columns=1,
        height=1.65,
        width=width,
    ) as (figure, (reward, column, events)):
        for ax, what, said in ((reward, "reward", "training reward"), (column, metric, name)):
            mean_lines(ax, looks, results, what)
            ax.set_title(said, loc="left")
            ax.set_ylim(0)
        for at, (label, look) in enumerate(looks.items()):
            members = [r for r in results if r.label == label]
            for i, run in enumerate(sorted(members, key=lambda r: int(r.spec["seed"]))):
                height = at + 0.6 * ((i + 0.5) / len(members) - 0.5)
                _event_line(events, look, height, falls(run, metric, share, after, window))
        events.set_ylim(len(looks) - 0.4, -0.6)
        if width < PAGE:  # names beside the rows would take half of the panels' width
            events.set_yticks([])
            legend(figure, looks)
        else:
            names = [shown(look.name or label, width) for label, look in looks.items()]
            ticks = events.set_yticks(range(len(looks)), labels=names)
            for tick, look in zip(ticks, looks.values(), strict=True):
                tick.label1.set(color=look.colour, fontweight="bold", gid=gid(look))
        events.tick_params(axis="y", length=0)
        events.set_title("when they fell, run by run", loc="left")
        events.set_xlim(reward.get_xlim())
        steps_axis(events)
        events.set_xlabel(table.settings["unit"])
    return figure


def mean_lines(ax: Axes, looks: dict[str, Style], results: Results, metric: str) -> None:
    """A line per algorithm, mean over its runs, none where the column is not measured."""
    for label, look in looks.items():
        x, y = binned([r for r in results if r.label == label], metric, BINS)
        ax.plot(x, y, color=look.colour, dashes=look.dashes, linewidth=1.1, gid=gid(look))
    steps_axis(ax)
    ax.yaxis.set_major_locator(MaxNLocator(4))


def _event_line(ax: Axes, look: Style, height: float, when: tuple[float, float]) -> None:
    """A ring and a disc at two steps, joined; whatever did not happen is left out."""
    ax.plot(when, [height] * 2, color=look.colour, linewidth=0.8, gid=gid(look))
    for x, face in zip(when, ("white", look.colour), strict=True):
        ax.plot(
            [x],
            [height],
            "o",
            color=look.colour,
            markerfacecolor=face,
            markersize=3.2,
            markeredgewidth=0.9,
            gid=gid(look),
        )
