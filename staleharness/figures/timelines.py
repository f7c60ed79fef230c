"""Timelines of who works and who waits: in a simulated pipeline, and among real actors and their trainer."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from ..pipeline.pipeline_event_log import PipelineRecord, segment_lengths
from ..pipeline.pipeline_summary import summary
from ..statistics.results import Results
from ..statistics.table import Table
from ..store.stored_run import SECONDS, StoredRun
from ..trace import read_trace
from .captions import seeds
from .palette import looks_of
from .plot_layout import FAINT, PAGE, panels, plot_settings
from .registry import FIGURES, Section

if TYPE_CHECKING:
    import pandas as pd


STEPS = 6  # shown
MAX_SLOTS, MAX_ACTORS = 32, 8  # shown
VERSIONS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")  # of Okabe and Ito; colours repeat after four versions
STATES = {"syncing": "#444444", "down": "#B3261E"}
TRAINER = -1  # its lane, beside those of actors
MIXTURE, GREY = -1, "#7A8FA6"  # in place of a version where several act, and its colour


def timeline(record: PipelineRecord, name: str, width: float = PAGE) -> Figure:
    """`STEPS` steps from the middle of the run: the trainer, some of the slots, and the rows that wait in the queue.

    Segments of a row and training steps have the colour of their version, four in turn. Blank: waiting.
    """
    begin, end = _window(record)
    result = summary(record)
    lag = result["lag"]
    facts = (
        f"{result['step_seconds']:.1f} s a step, mean lag {lag['start_mean']:.2f}, "
        f"trainer works {result['trainer'].get('training', 0):.0%} and slots {result['slots'].get('working', 0):.0%} "
        f"of the time; {result['binds']} binds: {result['why']}. Colour: version of the weights, four in turn; "
        "blank: waiting"
    )
    lines = textwrap.wrap(facts, int(width * 19))
    with plot_settings():
        figure = Figure(figsize=(width, 3.3 + 0.14 * len(lines)))
        figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.03)
        grid = figure.add_gridspec(3, 1, height_ratios=(0.35, 2.6, 0.8))
        top = figure.add_subplot(grid[0])
        lanes, queue = figure.add_subplot(grid[1], sharex=top), figure.add_subplot(grid[2], sharex=top)
        _trainer(top, record)
        _slots(lanes, record, begin, end)
        _queue(queue, record, begin, end)
        for ax in (top, lanes):
            ax.tick_params(labelbottom=False)
        top.set_xlim(begin, end)
        queue.set_xlabel("seconds")
        figure.suptitle("\n".join(["", *lines]), x=0.005, ha="left", fontsize=7, color=FAINT, linespacing=1.35)
        title, top_edge = f"A pipeline at work: {name}", 1 - 0.03 / figure.get_figheight()
        font: dict[str, Any] = {"fontsize": 9, "fontweight": "bold", "gid": "figure-title"}
        figure.text(0.005, top_edge, title, ha="left", va="top", **font)
        states = {state for b, e, state in record.trainer if state in STATES and e > begin and b < end}
        if states:
            handles = [Patch(color=STATES[s], label=s) for s in sorted(states)]
            figure.legend(handles=handles, loc="outside lower left", frameon=False, ncols=2)
        figure.align_ylabels([lanes, queue])
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    return figure


def _window(record: PipelineRecord) -> tuple[float, float]:
    first = max(0, min(len(record.step_start) // 2, len(record.step_start) - STEPS))
    last = min(first + STEPS, len(record.step_end)) - 1
    begin, end = float(record.step_start[first]), float(record.step_end[last])
    return begin, max(end, begin + 1e-9)


def _trainer(ax: Axes, record: PipelineRecord) -> None:
    for version, (begin, end) in enumerate(zip(record.step_start, record.step_end, strict=True)):
        ax.barh(0, end - begin, left=begin, height=0.8, color=VERSIONS[version % 4], linewidth=0)
    for begin, end, state in record.trainer:
        if state in STATES:
            ax.barh(0, end - begin, left=begin, height=0.8, color=STATES[state], linewidth=0)
    ax.set_yticks([0], labels=["trainer"])
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False)


def _slots(ax: Axes, record: PipelineRecord, begin: float, end: float) -> None:
    slots = record.pipeline.slots
    visible = np.unique(np.linspace(0, slots - 1, min(MAX_SLOTS, slots)).astype(int))
    lane = {int(slot): at for at, slot in enumerate(visible)}
    end_of_row = np.where(np.isnan(record.finish_time), record.seconds, record.finish_time)
    row = record.segment_row
    segment_begin = record.segment_end - segment_lengths(record)
    length = np.maximum(record.done[row], 1)
    span = end_of_row - record.start_time
    left = record.start_time[row] + span[row] * segment_begin / length
    right = record.start_time[row] + span[row] * record.segment_end / length
    visible_segments = np.isin(record.slot[row], visible) & (right > begin) & (left < end)
    for colour in range(4):
        mask = visible_segments & (record.segment_version % 4 == colour)
        y = [lane[int(s)] for s in record.slot[row[mask]]]
        ax.barh(y, (right - left)[mask], left=left[mask], height=0.8, color=VERSIONS[colour], linewidth=0)
    ends = record.finish_time[np.isin(record.slot, visible)]
    owners = record.slot[np.isin(record.slot, visible)]
    inside = (ends > begin) & (ends < end)
    ax.plot(ends[inside], [lane[int(s)] for s in owners[inside]], "|", color="white", markersize=3, markeredgewidth=0.8)
    for sync_begin, sync_end, state in record.trainer:
        if state == "syncing" and record.pipeline.in_flight != "drain":  # generation stops too
            ax.axvspan(sync_begin, sync_end, color=STATES[state], alpha=0.55, linewidth=0)
    ax.set_ylim(len(visible) - 0.4, -0.6)
    ax.set_yticks([])
    ax.set_ylabel(f"slots ({len(visible)} of {slots})" if len(visible) < slots else f"slots ({slots})")
    ax.grid(visible=False)


def _queue(ax: Axes, record: PipelineRecord, begin: float, end: float) -> None:
    """Draw the number of waiting rows of finished groups, counting only those that will be trained on."""
    trained = ~np.isnan(record.queue_time) & (record.step >= 0)
    entry_times, exit_times = np.sort(record.queue_time[trained]), np.sort(record.step_start[record.step[trained]])
    at = np.unique(np.concatenate([entry_times, exit_times, [begin, end]]))
    waiting = np.searchsorted(entry_times, at, side="right") - np.searchsorted(exit_times, at, side="right")
    ax.fill_between(at, waiting, step="post", color="#7A8FA6", linewidth=0)
    ax.set_ylabel("rows in queue")
    ax.set_ylim(bottom=0)


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


@FIGURES.register(
    "actors_and_trainer",
    Section(
        75,
        "Actors and trainer",
        "Blank: waiting. A trainer that waits gains from more actors, an actor from fewer.",
        lambda results: any(run.trace is not None for run in results),
    ),
)
def actors_and_trainer(results: Results, table: Table, width: float = PAGE) -> Figure:
    """Draw an equal time from the middle of a run of each method, six phases of the fastest: actors above, the trainer
    below; a bar has the colour of its version, four in turn."""
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
    lanes = [*actors[:MAX_ACTORS].tolist(), TRAINER]
    for at, lane in enumerate(lanes):
        spans = work.of(lane)
        near = (spans.end > start) & (spans.begin < start + duration)
        colours = [GREY if v == MIXTURE else VERSIONS[v % len(VERSIONS)] for v in spans.version[near]]
        left, length = (spans.begin - start)[near], (spans.end - spans.begin)[near]
        ax.barh(np.full(len(left), at), length, left=left, color=colours, edgecolor="white", linewidth=0.3)
    names = {TRAINER: "trainer"} | {actor: f"actor {actor}" if len(actors) > 1 else "actor" for actor in actors}
    shares = [work.share(lane, trainer.begin[0], trainer.end[-1]) for lane in lanes]
    ax.set_yticks(range(len(lanes)), labels=[f"{names[n]}, {s:.0%}" for n, s in zip(lanes, shares, strict=True)])
    part = f", {MAX_ACTORS} of {len(actors)} actors" if len(actors) > MAX_ACTORS else ""
    ax.set_title(f"{name}: {work.seconds_a_phase:.2g} s a phase{part}", loc="left")
    ax.set_ylim(len(lanes) - 0.4, -0.6)
    ax.set_xlim(0, duration)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False)
