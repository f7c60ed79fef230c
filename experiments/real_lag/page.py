"""The study's page in the gallery: what was run, what came of it in numbers, and what that says in words. All of it
follows from the runs; nothing is written by hand but the questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd
from compare import MARGIN, PAIRS, Difference, comparisons, gain, lags
from design import METHODS, ON_POLICY, VARIANTS, Task

from staleharness.pages.paper_summary import picture
from staleharness.statistics.labels import display_label

LABELS = {
    "recorded": "recorded",
    "same seed": "replayed, same seed",
    "fresh seed": "replayed, fresh seed",
    "pipeline": "fitted pipeline",
    "uniform": "uniform, equal mean",
    ON_POLICY: "without lag",
}
NOTHING = "No two seeds have runs to compare yet, so nothing is tested."
MODEL_NAMES = {"pipeline": "the fitted pipeline", "uniform": "the uniform buffer"}


def page(frame: pd.DataFrame, tasks: Sequence[Task], seeds: int) -> str:
    """Markdown, with the pictures `lags` and `scores` beside it, wide and narrow."""
    total = len(METHODS) * seeds * sum(1 + len(VARIANTS) * len(task.loads) for task in tasks)
    results = list(comparisons(frame))
    parts = [
        "<!-- Made by `python experiments/real_lag --publish`: edit experiments/real_lag/page.py. -->",
        "# Is a simulated lag the real one?",
        "*Actors and learner race as processes, and the lag is whatever results. Does a simulation reach the same "
        "scores under the recorded lag, under a pipeline fitted to it, or under a uniform buffer of the same mean? Is "
        "the mean lag enough, or does its distribution matter?*",
        "## What was run",
        _design(frame, tasks, total),
        "## Lag",
        picture("Lag, recorded and modelled", "lags"),
        _lag_words(frame),
        _lag_table(frame),
        "## Scores",
        picture("Final scores", "scores"),
        _score_words(frame, results),
        _score_table(results),
        "## Is mean lag enough?",
        _answer(results),
        "## What it does not say",
        "The study has two tasks and three methods, at one learning rate each, and other work shared its machines. A "
        "pair is a seed, and with so few of them differences much smaller than the margin cannot be seen. The real "
        "actors are paced by stated seconds (`delay`, `train`), so that the load decides the lag, not the machine. Lag "
        "that swings with the load of a cluster is not covered. The pipeline is fitted with a few numbers from a "
        "recording: the mean and deviation of a row's time and, with slow actors, how many are slow and by what "
        "factor. It knows nothing else about how actors differ.",
    ]
    return "\n\n".join(parts) + "\n"


def _design(frame: pd.DataFrame, tasks: Sequence[Task], total: int) -> str:
    lines = [
        f"{len(frame)} of {total} runs: {', '.join(map(display_label, METHODS))} under three loads on each task"
        + (", the rest still to be made." if len(frame) < total else ".")
        + " Every recorded run is made again in four ways: from its trace with the same seed and with a fresh one, "
        "under the pipeline model `LAG=queue[...]` with the times of its trace, and under `LAG=uniform` with the K "
        "whose mean lag is nearest (two loads with the same K share one run). Runs without lag have K = 1 and fresh "
        "seeds.",
        "",
        "| task | load | lag model |",
        "|---|---|---|",
    ]
    lines += [f"| {task.env} | {load} | `{text}` |" for task in tasks for load, text in task.loads.items()]
    lines += [
        "",
        "The traces are in `results/reference/real_lag/traces`, and "
        "`LAG=trace:results/reference/real_lag/traces/<run>.parquet` replays one under any method and "
        "seed. `python experiments/real_lag` makes the runs that are missing, and "
        "`python experiments/real_lag --publish` packs and draws what there is.",
    ]
    return "\n".join(lines)


def _lag_words(frame: pd.DataFrame) -> str:
    results = lags(frame).set_index(["task", "load", "way"])
    sentences = list(_replays(frame))
    for way in ("pipeline", "uniform"):
        some = results.xs(way, level="way") if way in results.index.get_level_values("way") else None
        if some is not None:
            task, load = some["distance"].idxmax()
            least, most = some["distance"].min(), some["distance"].max()
            sentences.append(
                f"The histogram of {MODEL_NAMES[way]} is {least:.2f} to {most:.2f} phases away from the recorded one "
                f"(Wasserstein distance, averaged over the runs of a load); it is furthest away for {load} on {task}."
            )
    return " ".join(sentences)


def _replays(frame: pd.DataFrame) -> Iterator[str]:
    """Results of replays with the recorded seed."""
    same = frame[frame["way"] == "same seed"]
    alike, other = same[same["alike"]], same[~same["alike"]]
    yield (
        f"Replayed with the same seed on the same kind of machine, {int(alike['bits'].sum())} of {len(alike)} runs had "
        "the recorded metrics bit for bit, in every phase."
    )
    if len(other):
        yield (
            f"Another {len(other)} were recorded on one kind of processor and replayed on another. There every row has "
            "its recorded lag, but arithmetic rounds differently, and the differences grow."
        )


def _lag_table(frame: pd.DataFrame) -> str:
    lines = ["| task | load | " + " | ".join(LABELS[w] for w in ("recorded", "pipeline", "uniform")) + " |"]
    lines.append("|---|---|---|---|---|")
    results = lags(frame)
    for (task, load), part in results.groupby(["task", "load"], sort=False):
        variants = part.set_index("way")
        cells = []
        for way in ("recorded", "pipeline", "uniform"):
            if way not in variants.index:
                cells.append("–")
                continue
            row = variants.loc[way]
            spread = f" ± {row['spread']:.2f}" if row["n"] > 1 else ""
            distance = "" if way == "recorded" else f", {row['distance']:.2f} away"
            cells.append(f"{row['mean']:.2f}{spread}{distance}")
        lines.append(f"| {task} | {load} | {' | '.join(cells)} |")
    return "\n".join(
        [
            *lines,
            "",
            "Mean lag in phases ± its standard deviation over runs; *away*: how far the histogram is from the recorded "
            "one.",
        ]
    )


def _score_words(frame: pd.DataFrame, results: Sequence[tuple[str, str, str, str, Difference]]) -> str:
    sentences = []
    for task, part in frame.groupby("task", sort=False):
        plain = part[part["way"] == ON_POLICY]
        if plain.empty:
            continue
        line = (
            f"On {task} learning gains {gain(part):.3g} without lag ({plain['untrained'].mean():.3g} to "
            f"{plain['score'].mean():.3g})"
        )
        cost = {load: d for t, load, a, b, d in results if (t, a, b) == (task, "recorded", ON_POLICY) and load != "all"}
        if cost:
            line += "; real lag changes that by " + ", ".join(
                f"{_minus(f'{d.mean:+z.0%}')} ({load}: {d.words})" for load, d in cost.items()
            )
        sentences.append(line + ".")
    return " ".join(sentences)


def _minus(text: str) -> str:
    return text.replace("-", "−")


def _score_table(results: Sequence[tuple[str, str, str, str, Difference]]) -> str:
    if not results:
        return NOTHING
    lines = [
        "| task | load | difference | mean [95 %] | seeds | smallest margin | in words |",
        "|---|---|---|---|---|---|---|",
    ]
    for task, load, first, second, d in results:
        low, high = d.wide
        mean = _minus(f"{d.mean:+z.0%} [{low:+z.0%}, {high:+z.0%}]")
        lines.append(
            f"| {task} | {load} | {LABELS[first]} − {LABELS[second]} | {mean} | {d.n} | {d.margin:.0%} | {d.words} |"
        )
    note = (
        "Differences of final scores are given as shares of what learning gains without lag. The intervals are "
        "Student's, over seeds, each the mean over methods. *The same within the margin*: the 90 % interval lies "
        f"within ± {MARGIN:.0%} (two one-sided tests at 5 %); the smallest margin is the one at which the tests would "
        f"pass. The intervals are not corrected for their number: of {len(results)}, about {len(results) / 20:.0f} "
        "would exclude zero by chance."
    )
    return "\n".join([*lines, "", note])


def _answer(results: Sequence[tuple[str, str, str, str, Difference]]) -> str:
    """Results of the tests, comparison by comparison."""
    return "\n".join(f"- {line}" for line in _answers(results)) or NOTHING


def _answers(results: Sequence[tuple[str, str, str, str, Difference]]) -> Iterator[str]:
    for first, second, effect in PAIRS[1:]:
        mine = [(task, load, d) for task, load, a, b, d in results if (a, b) == (first, second) and load != "all"]
        if not mine:
            continue
        words: dict[str, list[str]] = {}
        for task, load, d in mine:
            words.setdefault(d.words, []).append(f"{load} on {task}")
        sentences = "; ".join(f"{word}: {_enumerate(places, len(mine))}" for word, places in words.items())
        yield f"**{LABELS[first]} against {LABELS[second]}** ({effect}): {sentences}."


def _enumerate(places: Sequence[str], of: int) -> str:
    return f"all {of} loads" if len(places) == of else ", ".join(places)
