"""Timeline of real actors and the trainer: who works, with which version, and who waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..statistics.results import Results
from ..statistics.table import Table
from ..store.stored_run import SECONDS, StoredRun
from ..trace import read_trace
from .captions import seeds
from .palette import looks_of
from .pipeline_timeline import STEPS, VERSIONS
from .plot_layout import PAGE, panels
from .registry import FIGURES, Section

if TYPE_CHECKING:
    import pandas as pd

LANES = 8  # of actors that are drawn
TRAINER = -1  # its lane
MIXTURE = -1  # in place of a version where several act
GREY = "#7A8FA6"


@dataclass(frozen=True)
class Work:
    """Spans of work, [N] each: lane (an actor, or `TRAINER`), begin and end [s], version of the weights."""

    lane: NDArray[np.int64]
    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    version: NDArray[np.int64]

    def of(self, lane: int) -> Work:
        mask = self.lane == lane
        return Work(self.lane[mask], self.begin[mask], self.end[mask], self.version[mask])

    @property
    def seconds_a_phase(self) -> float:
        """Mean seconds from one training phase to the next."""
        begin = self.of(TRAINER).begin
        return float((begin[-1] - begin[0]) / (len(begin) - 1))

    def share(self, lane: int, begin: float, end: float) -> float:
        """Share of the time from `begin` to `end` in which a lane works."""
        spans = self.of(lane)
        inside = np.minimum(spans.end, end) - np.maximum(spans.begin, begin)
        return float(np.maximum(inside, 0).sum() / (end - begin))


def work_of(run: StoredRun) -> Work | None:
    """Return the spans of work of a run: by its trace, where actors and trainer run at once, otherwise by the times of
    its phases, where they take turns as actor 0 and trainer. None where neither is stored."""
    if run.trace is not None:
        header, rows = read_trace(str(run.trace))
        times = header.get("published_at")  # early traces lack it
        return None if times is None else _work_of_trace(rows, np.asarray(times, float))
    collect, learn, evaluate = (run.column(SECONDS + part) for part in ("collect", "learn", "evaluate"))
    if collect is None or learn is None or evaluate is None:
        return None
    phase = np.arange(len(collect))
    end = np.cumsum(collect + learn + evaluate) - evaluate
    begin = np.stack([end - learn - collect, end - learn])
    lane = np.repeat([0, TRAINER], len(phase))
    acting = phase if set(run.record["lag_histogram"]) == {"0"} else np.full(len(phase), MIXTURE)
    return Work(lane, begin.ravel(), np.concatenate([end - learn, end]), np.concatenate([acting, phase]))


def _work_of_trace(rows: pd.DataFrame, published_at: NDArray[np.float64]) -> Work:
    """published_at: seconds at which each version from 1 on was published, which ends the step that trained it."""
    complete = rows[rows["made_at"].notna()]
    groups = complete.groupby("group").agg(
        {"actor": "first", "began_at": "min", "made_at": "max", "versions": lambda lists: lists.iloc[0][0]}
    )
    steps = rows[rows["phase"] >= 0].groupby("phase")["trained_at"].min()
    steps = steps[steps.index < len(published_at)]
    phase = steps.index.to_numpy()
    return Work(
        np.concatenate([groups["actor"], np.full(len(phase), TRAINER)]).astype(int),
        np.concatenate([groups["began_at"], steps]),
        np.concatenate([groups["made_at"], published_at[phase]]),
        np.concatenate([groups["versions"], phase]).astype(int),
    )


def _has_actors(results: Results) -> bool:
    return any(run.trace is not None for run in results)


@FIGURES.register(
    "actors_and_trainer",
    Section(
        75,
        "Actors and trainer",
        "Blank: waiting. A trainer that waits gains from more actors, an actor from fewer.",
        _has_actors,
    ),
)
def actors_and_trainer(results: Results, table: Table, width: float = PAGE) -> Figure:
    """Draw an equal time from the middle of a run of each method, six phases of the fastest: actors above, the trainer
    below; a bar has the colour of its version, of four in turn."""
    work_by_label: dict[str, Work] = {}
    for run in sorted(results, key=lambda run: (-int(run.spec["capacity"]), run.seed, run.id)):
        if run.label not in work_by_label and (work := work_of(run)) is not None and len(work.of(TRAINER).begin) > 1:
            work_by_label[run.label] = work
    looks = {label: look for label, look in looks_of(table).items() if label in work_by_label}
    duration = min((STEPS * work.seconds_a_phase for work in work_by_label.values()), default=1.0)
    subtitle = (
        f"{duration:.2g} s from the middle of a run of each method, and the share of that run in which each works "
        f"(the first of {seeds(results.grid)} at its largest K, so no interval); colour: version of the weights, four "
        "in turn, grey where several act; blank: waiting, or evaluating"
    )
    with panels("Actors and trainer", subtitle, list(looks) or [""], table, width, 1.25, 1) as (figure, axes):
        for ax, (label, look) in zip(axes, looks.items(), strict=False):
            _draw_lanes(ax, work_by_label[label], look.name or label, duration)
        axes[-1].set_xlabel("seconds")
    return figure


def _draw_lanes(ax: Axes, work: Work, name: str, duration: float) -> None:
    trainer = work.of(TRAINER)
    start = max(0.0, min(trainer.begin[len(trainer.begin) // 2], trainer.end[-1] - duration))
    actors = np.unique(work.lane[work.lane != TRAINER])
    lanes = [*actors[:LANES].tolist(), TRAINER]
    for at, lane in enumerate(lanes):
        spans = work.of(lane)
        near = (spans.end > start) & (spans.begin < start + duration)
        colours = [GREY if v == MIXTURE else VERSIONS[v % len(VERSIONS)] for v in spans.version[near]]
        left, length = (spans.begin - start)[near], (spans.end - spans.begin)[near]
        ax.barh(np.full(len(left), at), length, left=left, color=colours, edgecolor="white", linewidth=0.3)
    names = {TRAINER: "trainer"} | {actor: f"actor {actor}" if len(actors) > 1 else "actor" for actor in actors}
    shares = [work.share(lane, trainer.begin[0], trainer.end[-1]) for lane in lanes]
    ax.set_yticks(range(len(lanes)), labels=[f"{names[n]}, {s:.0%}" for n, s in zip(lanes, shares, strict=True)])
    part = f", {LANES} of {len(actors)} actors" if len(actors) > LANES else ""
    ax.set_title(f"{name}: {work.seconds_a_phase:.2g} s a phase{part}", loc="left")
    ax.set_ylim(len(lanes) - 0.4, -0.6)
    ax.set_xlim(0, duration)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False)
