"""The study's page in the gallery: what was run, what came of it in numbers, and what that says in words. All of it
follows from the runs; nothing is written by hand but the questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd
from compare import MARGIN, PAIRS, Comparison, comparisons, gain, lags
from design import ON_POLICY, Study

from staleharness.pages.figure_provenance import dates_note, figure_dates
from staleharness.pages.page_parts import picture
from staleharness.statistics.method_labels import display_label

LABELS = {
    "recorded": "recorded",
    "same seed": "replayed, same seed",
    "fresh seed": "replayed, fresh seed",
    "pipeline": "fitted pipeline",
    "uniform": "uniform, equal mean",
    ON_POLICY: "without lag",
}
NOTHING = "No two ways have two runs each to compare yet, so nothing is tested."
MODEL_NAMES = {"pipeline": "the fitted pipeline", "uniform": "the uniform buffer"}


def page(frame: pd.DataFrame, study: Study, seeds: int) -> str:
    """Markdown, with the pictures `lags` and `scores` beside it, wide and narrow."""
    results = comparisons(frame)
    parts = [
        f"<!-- Made by `{study.command} --publish`: edit experiments/real_lag/page.py. -->",
        f"# {study.title}",
        "*Actors and learner run concurrently, and lag follows from their timing. Does a simulation reach the same "
        "scores under the recorded lag, under a pipeline fitted to it, or under a uniform buffer of the same mean? Is "
        "the mean lag enough, or does its distribution matter?*",
        "## Runs",
        _design(frame, study, seeds),
        "## Lag",
        picture("Lag, recorded and modelled", "lags"),
        _lag_words(frame),
        _lag_table(frame),
        "## Scores",
        picture("Final scores", "scores"),
        _lag_effects(frame, results),
        _score_tables(results),
        "## Is mean lag enough?",
        _answer(results),
        "## Limits",
        f"The study has {_count(len(study.tasks), 'task')} and {_count(len(study.methods), 'method')}, at one learning "
        f"rate each, and other work shared its machines. {_number(seeds).capitalize()} runs cannot show differences "
        "much smaller than the margin. The real actors are paced by stated seconds (`delay`, `train`), so that the "
        "load decides the lag, not the machine. Lag that swings with the load of a cluster is not covered. The "
        "pipeline is fitted with a few numbers from a recording: the mean and deviation of a row's time and, with slow "
        "actors, how many are slow and by what factor. It contains nothing else about how actors differ.",
    ]
    return "\n\n".join(parts) + "\n"


def _design(frame: pd.DataFrame, study: Study, seeds: int) -> str:
    total, loads = study.runs(seeds), max(len(task.loads) for task in study.tasks)
    lines = [
        f"{len(frame)} of {total} runs: {', '.join(map(display_label, study.methods))} under {_count(loads, 'load')} "
        "on each task"
        + (", the rest still to be made." if len(frame) < total else ".")
        + " Every recorded run is repeated in four ways: from its trace with the same seed and with a fresh one, "
        "under the pipeline model `LAG=queue[...]` with the times of its trace, and under `LAG=uniform` with the K "
        f"whose mean lag is nearest{' (two loads with the same K share one run)' * (loads > 1)}. Runs without lag have "
        f"K = 1, with the recorded seeds and with the fresh ones.{_filter_words(frame)} The question is our "
        "own, not a paper's." + dates_note(figure_dates().get(f"{study.name}/compare")),
        "",
        "| task | load | lag model |",
        "|---|---|---|",
    ]
    lines += [f"| {task.env} | {load} | `{text}` |" for task in study.tasks for load, text in task.loads.items()]
    lines += [
        "",
        f"The traces are in `results/reference/{study.name}/traces`, and "
        f"`LAG=trace:results/reference/{study.name}/traces/<run>.parquet` replays one under any method and "
        f"seed. `{study.command}` makes the missing runs, and "
        f"`{study.command} --publish` packs and draws those that exist.",
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
                f"(Wasserstein distance, averaged over the runs of a load); it is largest for {load} on {task}."
                if len(some) > 1
                else f"The histogram of {MODEL_NAMES[way]} is {most:.2f} phases away from the recorded one "
                "(Wasserstein distance, averaged over the runs)."
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


def _filter_words(frame: pd.DataFrame) -> str:
    """Say with which threshold VACO ran, and how often its filter acted under lag."""
    vaco = next((method for method in frame["method"] if method.startswith("vaco")), "")
    rows = frame[(frame["method"] == vaco) & (frame["load"] != "")]
    if rows.empty:
        return ""
    shares = rows.groupby("task", sort=False)["filtered"].mean()
    places = _and([f"{_percent(share, 1, '')} on {task}" for task, share in shares.items()])
    threshold = (
        "δ = 0.2 throughout, the value published for control (for language it is 0.05)"
        if vaco == "vaco"
        else "the δ published for language"
    )
    return f" VACO uses {threshold}. Its filter acts in this share of the minibatches under lag: {places}."


def _lag_effects(frame: pd.DataFrame, results: Sequence[Comparison]) -> str:
    """Gain of learning on each task, and a sentence a load on whether lag changed it."""
    paragraphs = []
    for task, part in frame.groupby("task", sort=False):
        plain = part[part["way"] == ON_POLICY]
        if plain.empty:
            continue
        of_lag = [c for c in results if (c.task, c.second) == (task, ON_POLICY)]
        sentences = [
            f"On {task} learning gains {gain(part):.3g} without lag ({plain['untrained'].mean():.3g} to "
            f"{plain['score'].mean():.3g}), the mean over methods.",
            *(_load_effect(load, of_lag) for load in dict.fromkeys(c.load for c in of_lag)),
        ]
        if any(c.difference.different_alone and c.difference.mean > 0 for c in of_lag):
            sentences.append("Where lag raises a score, runs without lag, at this learning rate, are no upper bound.")
        paragraphs.append(" ".join(sentences))
    return "\n\n".join(paragraphs)


def _load_effect(load: str, of_lag: Sequence[Comparison]) -> str:
    """Sentences on what real lag changes, method by method, and whether equivalence is about anything."""
    mine = [c for c in of_lag if c.load == load]
    changed = [c for c in mine if c.difference.different]
    alone = [c for c in mine if c.difference.different_alone and not c.difference.different]
    parts = [f"lag changes {_and([_by(c) for c in changed])}"] if changed else []
    if alone:
        of = "" if changed else "lag changes "
        parts.append(f"before Holm's correction {of}{_and([_by(c) for c in alone])}")
    if rest := [c for c in mine if not c.difference.different_alone]:
        parts.append(f"no effect is seen on {_and([f'{_method(c)} ({_mean(c)})' for c in rest])}")
    about = _and([_method(c) for c in changed]) + " alone" * (len(changed) < len(mine)) if changed else "no method"
    effect = f"A significant effect of lag is shown for {about}; without one, equivalence is weak evidence."
    return f"*{load.capitalize()}:* {'; '.join(parts)}. {effect}"


def _by(c: Comparison) -> str:
    return f"{_method(c)} by {_mean(c)}"


def _mean(c: Comparison) -> str:
    """Difference with its interval."""
    return f"{_percent(c.difference.mean)} [{', '.join(map(_percent, c.difference.wide))}]"


def _method(c: Comparison) -> str:
    return display_label(c.method)


def _number(n: int) -> str:
    return {1: "one", 2: "two", 3: "three", 5: "five"}.get(n, str(n))


def _count(n: int, noun: str) -> str:
    return f"{_number(n)} {noun}{'s' * (n > 1)}"


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]][len(words) == 1 :])


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def _percent(share: float, digits: int = 0, sign: str = "+") -> str:
    return f"{share:{sign}z.{digits}%}".replace("-", "−")


def _score_tables(results: Sequence[Comparison]) -> str:
    """A table per method."""
    if not results:
        return NOTHING
    parts = []
    for method in dict.fromkeys(c.method for c in results):
        lines = [
            f"### {display_label(method)}",
            "",
            "| task | load | difference | mean [95 %] | p | p (Holm) | smallest margin | in words |",
            "|---|---|---|---|---|---|---|---|",
        ]
        parts.append("\n".join([*lines, *(_row(c) for c in results if c.method == method)]))
    runs = sorted({n for c in results for n in c.difference.runs})
    note = (
        f"Differences of final scores, n = {' to '.join(map(str, runs[:: max(1, len(runs) - 1)]))} on each side, are "
        "shares of what learning gains without lag on the task. Intervals and p are Welch's; for the last "
        "comparison, whose sides share their seeds, they are Student's over seeds. *The same within the margin*: two "
        f"one-sided tests at 5 % place the difference within ± {MARGIN:.0%}; the smallest margin is the one at which "
        "they would, uncorrected. "
        f"The words follow from p with Holm's correction for all {len(results)} differences of the page, and for its "
        f"{len(results)} tests of equivalence."
    )
    return "\n\n".join([*parts, note])


def _row(c: Comparison) -> str:
    d = c.difference
    cells = [c.task, c.load, f"{LABELS[c.first]} − {LABELS[c.second]}", _mean(c), _p(d.p), _p(d.holm)]
    return f"| {' | '.join([*cells, f'{d.margin:.0%}', d.words])} |"


def _answer(results: Sequence[Comparison]) -> str:
    """Results of the tests, comparison by comparison."""
    return "\n".join(f"- {line}" for line in _answers(results)) or NOTHING


def _answers(results: Sequence[Comparison]) -> Iterator[str]:
    of_lag = [c for c in results if c.second == ON_POLICY]
    changed = {_place(c) for c in of_lag if c.difference.different}
    alone = sum(c.difference.different_alone for c in of_lag)
    if of_lag:
        yield (
            f"**Does lag change the score at all?** In {len(changed)} of {len(of_lag)} combinations of task, load and "
            f"method (marked \\*); before Holm's correction, in {alone}. Elsewhere equivalence says little."
        )
    for first, second, effect in PAIRS[1:]:
        mine = [c for c in results if (c.first, c.second) == (first, second)]
        if not mine:
            continue
        words: dict[str, list[str]] = {}
        for c in mine:
            words.setdefault(c.difference.words, []).append(_place(c) + "\\*" * (_place(c) in changed))
        unclear = words.pop("cannot tell", [])
        parts = [f"{word}: {_enumerate(places, len(mine))}" for word, places in words.items()]
        parts += [f"cannot tell: {len(unclear)} of {len(mine)}"] if unclear else []
        yield f"**{LABELS[first]} against {LABELS[second]}** ({effect}): {'; '.join(parts)}."


def _place(c: Comparison) -> str:
    return f"{_method(c)}, {c.load} on {c.task}"


def _enumerate(places: Sequence[str], of: int) -> str:
    return f"all {of}" if len(places) == of else " · ".join(places)
