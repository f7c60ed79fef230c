"""docs/time_per_step.png and its table in docs/pipeline.md: seconds a step over the length of rows, under several caps.

    python docs/time_per_step.py

Simulated anew each time, in about ten seconds. A test asserts that the committed table is what this writes.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from marks import between_marks
from matplotlib.figure import Figure
from pictures import write_both

from staleharness.figures.palette import MARKERS
from staleharness.figures.plot_layout import FAINT, INK, PAGE, TITLE, plot_settings
from staleharness.pipeline.pipeline_settings import Pipeline
from staleharness.pipeline.pipeline_summary import CapResult, over_caps

HERE = Path(__file__).resolve().parent
LENGTHS = (250, 500, 1000, 2000, 4000)  # decisions of a row, in the mean
SPREADS = {"light": 0.3, "heavy": 1.0}  # standard deviation over mean
CAPS = (0.0, 1.0, 2.0, 4.0, 8.0, None)
COLOURS = ("#8FBDDD", "#6D96B5", "#4A6E8C", "#284764", "#06203C", INK)  # light to dark; black: no cap
BEGIN, END = (f"<!-- {edge} of the table that docs/time_per_step.py writes -->" for edge in ("Begin", "End"))


def pipeline(length: int, spread: float) -> Pipeline:
    """1,024 slots at 50 tokens a second, a batch of 256 in groups of 8; a trainer that takes 2 s and 5.5 ms more for
    each token of a mean row, so that without a cap it is the trainer that binds."""
    return Pipeline(
        slots=1024,
        workers=4,
        group=8,
        batch=256,
        token_seconds=0.02,
        train_seconds=2.0,
        train_token_seconds=0.0055 / 256,
        lengths=f"lognormal[mean={length},cv={spread}]",
        steps=150,
    )


def simulate_caps(spread: float, lengths: tuple[int, ...] = LENGTHS) -> dict[int, list[CapResult]]:
    """Return length -> results under each of `CAPS`."""
    return {length: over_caps(pipeline(length, spread), CAPS) for length in lengths}


def row(name: str, length: int, results: list[CapResult]) -> str:
    floor = results[-1].step_seconds
    cells = [f"{floor:.1f} s", *(f"{cap.step_seconds / floor:.2f}" for cap in results[:-1])]
    return f"| {name} | {length:,} | {' | '.join(cells)} |"


def table(results: dict[str, dict[int, list[CapResult]]]) -> str:
    heads = ["tail", "mean length", "no cap", *(f"cap {cap:g}" for cap in CAPS if cap is not None)]
    lines = [f"| {' | '.join(heads)} |", "|---|---:|---:|" + "---:|" * (len(CAPS) - 1)]
    return "\n".join(
        [*lines, *(row(name, n, caps) for name, by_length in results.items() for n, caps in by_length.items())]
    )


def figure(results: dict[str, dict[int, list[CapResult]]], width: float = PAGE) -> Figure:
    """A panel for each spread, below each other where `width` (inches) is small: seconds a step over mean length, a
    line for each cap."""
    subtitle = (
        "Pipelines simulated, seed 0, 150 steps each (the first fifth left out): 1,024 slots, batches of 256 rows in "
        "groups of 8, trained on in the order in which they are complete. Without a cap the trainer binds."
    )
    with plot_settings():
        side_by_side = width >= PAGE
        fig = Figure(figsize=(width, 3.4 if side_by_side else 6.0), layout="constrained")
        axes = fig.subplots(*((1, len(results)) if side_by_side else (len(results), 1)), sharex=True, sharey=True)
        for ax, (name, by_length) in zip(axes, results.items(), strict=True):
            for i, (cap, colour) in enumerate(zip(CAPS, COLOURS, strict=True)):
                seconds = [caps[i].step_seconds for caps in by_length.values()]
                ax.plot(
                    list(by_length),
                    seconds,
                    color=colour,
                    marker=MARKERS[i],
                    markersize=3.5,
                    dashes=(3, 1.5) if cap is None else (),
                    label="no cap" if cap is None else f"cap {cap:g}",
                )
            ax.set(
                xscale="log",
                yscale="log",
                xlabel="mean length of a row (tokens)" if side_by_side or ax is axes[-1] else "",
            )
            ax.set_xticks(list(by_length), [f"{n:,}" for n in by_length])
            ax.minorticks_off()
            ax.set_title(f"{name} tail: cv = {SPREADS[name]:g}", loc="left")
        axes[0].set_ylabel("seconds a step")
        axes[0].set_yticks([3, 10, 30, 100, 300], ["3", "10", "30", "100", "300"])
        handles, names = axes[0].get_legend_handles_labels()
        fig.legend(handles, names, loc="outside lower left", ncols=len(CAPS) if side_by_side else 3, frameon=False)
        fig.suptitle(
            "\n".join(["", *textwrap.wrap(subtitle, int(width * 19))]), x=0.005, ha="left", fontsize=7, color=FAINT
        )
        title = "What a cap costs: time per step over length"
        fig.text(0.005, 1 - 0.034 / fig.get_figheight(), title, ha="left", va="top", fontweight="bold", fontsize=TITLE)
    return fig


def with_table(text: str, new: str) -> str:
    """The page with the table between its two marks."""
    return between_marks(text, BEGIN, END, f"\n\n{new}\n\n")


if __name__ == "__main__":
    results = {name: simulate_caps(spread) for name, spread in SPREADS.items()}
    page = HERE / "pipeline.md"
    page.write_text(with_table(page.read_text(encoding="utf-8"), table(results)), encoding="utf-8")
    write_both(HERE, "time_per_step", lambda width: figure(results, width))
