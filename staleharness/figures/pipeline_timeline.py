"""Timeline of a simulated pipeline: trainer, slots and queue at work and waiting."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..pipeline.pipeline_record import PipelineRecord, stretch_lengths
from ..pipeline.pipeline_summary import summary
from .plot_layout import FAINT, PAGE, plot_settings

STEPS, LANES = 6, 32  # shown
VERSIONS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")  # of Okabe and Ito; a version's colour comes back after four
STATES = {"syncing": "#444444", "down": "#B3261E"}


def timeline(record: PipelineRecord, name: str, width: float = PAGE) -> Figure:
    """`STEPS` steps from the middle of the run: the trainer, some of the slots, and the rows that wait in the queue.

    A stretch of a row and the step that trains have the colour of their version, of four in turn. What is blank waits.
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
    visible = np.unique(np.linspace(0, slots - 1, min(LANES, slots)).astype(int))
    lane = {int(slot): at for at, slot in enumerate(visible)}
    end_of_row = np.where(np.isnan(record.finish_time), record.seconds, record.finish_time)
    row = record.stretch_row
    stretch_begin = record.stretch_end - stretch_lengths(record)
    length = np.maximum(record.done[row], 1)
    span = end_of_row - record.start_time
    left = record.start_time[row] + span[row] * stretch_begin / length
    right = record.start_time[row] + span[row] * record.stretch_end / length
    visible_stretches = np.isin(record.slot[row], visible) & (right > begin) & (left < end)
    for colour in range(4):
        mask = visible_stretches & (record.stretch_version % 4 == colour)
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
    """Draw the number of rows of finished groups that wait, of those that will be trained on."""
    trained = ~np.isnan(record.queue_time) & (record.step >= 0)
    entry_times, exit_times = np.sort(record.queue_time[trained]), np.sort(record.step_start[record.step[trained]])
    at = np.unique(np.concatenate([entry_times, exit_times, [begin, end]]))
    waiting = np.searchsorted(entry_times, at, side="right") - np.searchsorted(exit_times, at, side="right")
    ax.fill_between(at, waiting, step="post", color="#7A8FA6", linewidth=0)
    ax.set_ylabel("rows in queue")
    ax.set_ylim(bottom=0)
