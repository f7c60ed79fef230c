"""Page of staleness budgets: score, share kept, budget and slowdown per method and environment, from all bundles."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from staleharness.base.table_formatting import markdown_table
from staleharness.errors import UserError
from staleharness.statistics.advice import Advice, advise
from staleharness.statistics.advice_per_method import MethodAdvice
from staleharness.statistics.method_labels import display_label
from staleharness.statistics.results import Results, load
from staleharness.statistics.scores import learning_curve
from staleharness.statistics.slowdown import LEVEL, Slowdown, slowdowns
from staleharness.statistics.staleness_budget import KEEP, Limit
from staleharness.statistics.table_notes import on_starts
from staleharness.store.bundle_reader import is_packed
from staleharness.store.bundle_writer import STUDY
from staleharness.store.results_folder_checks import folders_of_results
from staleharness.store.study_runs import read_study_runs
from staleharness.study import read_study

HIGH = 0.9  # the level where runs begin above `LEVEL`
StaleSetting = tuple[int, float]  # K and mean lag; several settings may share a K
BASELINE = "ppo_clip"
LEARNED = 0.5  # share of the baseline's synchronous gain that a method has to reach to be in a table
SETTINGS = ("num_envs", "num_steps", "prompts", "completions", "epochs", "minibatches", "learning_rate", "lag")
HEAD = f"""<!-- Made by docs/generate.py (`make docs`) from the bundles of results/reference. -->

# Staleness budgets

How much staleness each method tolerates, from the [published runs](../results/reference/README.md), study by study and
environment by environment, never pooled. Brackets hold 95 % bootstrap intervals over seeds, which are too narrow with
three to five seeds ([how much](advise.md#the-staleness-budget)). No method is tested against another here: neither
their order nor overlapping intervals distinguish two methods ([tests](corrections.md)). The
[leaderboard](leaderboard.md) ranks methods by one protocol; these studies, each with its own tasks and settings, came
before it.

- **score** at K, and **kept**: share of its synchronous score that a method keeps at a mean lag, counted from a random
  policy's return or from 0 (accuracies), after a non-increasing fit capped at 100%
  ([why](advise.md#the-staleness-budget)); scores are as measured. A method that scores high without lag has more to
  lose.
- **budget**: the largest mean lag, in phases and in gradient steps, that keeps {KEEP:.0%}; ≥ and < mark where
  the measured lags end.
- **slowdown**: steps at K divided by steps at K = 1 until both reach a share of the best synchronous score of that
  method; `>` where the stale runs never reach it, or take longer than the longest slowdown that they could show.

Studies with more seeds come first; rows are sorted by the score at the largest lag. A method that gains less than
{LEARNED:.0%} of what PPO-clip gains without lag is named below its table: it has little to lose. *To type* is the value
of `ALGO=`.
"""
TAIL = """## A row of your own

    make new NAME=my_idea FOLDER=.
    make sweep SPEC=experiments/vaco_control.toml ALGO=my_idea PLUGIN=my_idea.py OUT=results/mine
    make advise RESULTS=results/mine

The first command starts the file ([plugins](plugins.md)), the second runs the grid of the tables of vaco_control, the
third prints the rows. `make pack OUT=results/mine TO=results/reference/mine` and `make docs` put them on this page.
"""


@dataclass(frozen=True)
class BundleAdvice:
    """Results and advice of one bundle."""

    name: str
    results: Results
    advice: Advice


def staleness_budgets(folder: Path) -> str:
    """Page from every bundle in a folder. A bundle without an answer is named with the reason."""
    bundles, without = [], []
    for path in folders_of_results(folder):
        if path.name.startswith("stalebench_"):  # a learning rate for each cell: its rows are a table of their own
            continue
        if is_packed(path) and not (path / STUDY).is_file():
            without.append(f"- {path.name}: its runs are not a sweep's")
            continue
        if progress := _progress(path):
            without.append(f"- {path.name}: {progress}")
            continue
        results = load(path)
        try:
            bundles.append(BundleAdvice(path.name, results, advise(results)))
        except UserError as error:
            without.append(f"- {path.name}: {str(error).partition(': ')[2]}")
    bundles.sort(key=lambda bundle: (-len({run.seed for run in bundle.results}), -len(bundle.results), bundle.name))
    sections = [_section(bundle, env) for bundle in bundles for env in bundle.advice.envs]
    none = "\n".join(["## No answer", "", "Bundles from which no budget can be read:", "", *without])
    return "\n".join([HEAD, *sections, *([none, ""] if without else []), TAIL])


def _progress(path: Path) -> str:
    """Return `17 of 21 runs` for the bundle of a study that lacks some; empty for a whole one, and without a study."""
    if not (path / STUDY).is_file():
        return ""
    study = read_study_runs(path, read_study(path / STUDY), "small")
    if study is None or study.complete or not study.runs:
        return ""
    return f"{len(study.runs)} of {len(study.requests)} runs"


def _section(bundle: BundleAdvice, env: str) -> str:
    all_methods = bundle.advice.on(env)
    stale_settings = sorted(
        {_setting(p["k"], p["lag"]) for m in all_methods for p in m.row["points"][1:]}, key=lambda x: x[::-1]
    )
    all_methods = sorted(all_methods, key=lambda m: _stale_score(m, stale_settings[-1]), reverse=True)
    level, factors = _slowdowns(bundle.advice, all_methods)
    methods = _those_that_learned(all_methods)
    head = [
        "method",
        "to type",
        "n",
        "score, K = 1",
        *(f"score, K = {k} (lag {lag:g}), and kept" for k, lag in stale_settings),
        "budget, phases",
        "budget, gradient steps",
        *(f"slowdown, K = {k} (lag {lag:g})" for k, lag in stale_settings),
    ]
    digits = 3 if max(abs(m.row["synchronous"]) for m in all_methods) < 10 else 0
    rows = []
    for method in methods:
        row, points = method.row, {_setting(p["k"], p["lag"]): p for p in method.row["points"]}
        rows.append(
            [
                display_label(method.curve.algorithm),
                f"`{method.curve.algorithm}`",
                str(row["n"]),
                _minus(f"{row['synchronous']:z.{digits}f}"),
                *(_score_cell(points.get(setting), digits) for setting in stale_settings),
                _budget_cell(method, 1.0, 1),
                _budget_cell(method, row["gradient_steps_per_phase"], 0),
                *(_slowdown_cell(factors[method.curve.algorithm].get(setting)) for setting in stale_settings),
            ]
        )
    reasons: dict[str, list[str]] = {}
    for r in bundle.advice.refusals:
        if r.env == env:
            reasons.setdefault(r.reason, []).append(display_label(r.algorithm))
    few = [
        f"{display_label(m.curve.algorithm)} ({_minus(format(m.row['synchronous'], f'z.{digits}f'))})"
        for m in all_methods
        if m not in methods
    ]
    note = [f"Learned less than {LEARNED:.0%} of what PPO-clip did at K = 1: {', '.join(few)}.\n"] if few else []
    starts = on_starts([run for run in bundle.results if run.spec["env"] == env])
    note += [f"{line[0].upper()}{line[1:]}.\n" for line in starts]
    refusals = [f"No answer for {', '.join(names)}: {why}.\n" for why, names in reasons.items()]
    refusals = [re.sub(r"(?<= )-(?=[0-9])", "−", line) for line in refusals]
    return "\n".join(
        [f"## {env}, {bundle.name}", "", _about(bundle, level), "", markdown_table(head, rows), "", *note, *refusals]
    )


def _about(bundle: BundleAdvice, level: float) -> str:
    """Facts about the runs, and the level of the slowdown."""
    s = bundle.advice.settings
    sizes = " or ".join(f"{steps:,} steps in {phases} phases" for phases, steps in s["sizes"])
    facts = []
    for name in SETTINGS:
        values = sorted({str(run.spec[name]) for run in bundle.results if name in run.spec}, key=_by_number)
        facts += [f"{name} = {' or '.join(values)}"] if values else []
    dates = " to ".join(dict.fromkeys((s["dates"][0], s["dates"][-1])))
    return (
        f"{sizes.capitalize()}; IQM of {s['measure']}; {', '.join(facts)}; runs of {dates}. "
        f"Slowdown to {level:.0%} of the best synchronous score."
    )


def _minus(numbers: str) -> str:
    return numbers.replace("-", "−")


def _by_number(text: str) -> list[tuple[float, str]]:
    """Sort key: numbers in a text by their size."""
    return [(float(part) if i % 2 else 0.0, part) for i, part in enumerate(re.split(r"([\d.]+(?:e-\d+)?)", text))]


def _slowdowns(
    advice: Advice, methods: Sequence[MethodAdvice]
) -> tuple[float, dict[str, dict[StaleSetting, Slowdown]]]:
    """Level, one for all methods, and slowdowns of each by K; empty if its curves do not allow one."""
    score = advice.settings["score"]

    def at(level: float) -> dict[str, dict[StaleSetting, Slowdown]]:
        by_method: dict[str, dict[StaleSetting, Slowdown]] = {m.curve.algorithm: {} for m in methods}
        for method in methods:
            try:
                by_method[method.curve.algorithm] = {
                    _setting(s.k, s.lag): s for s in slowdowns(method.curve, score, level)
                }
            except UserError:
                continue
        return by_method

    low = at(LEVEL)
    first_steps = {m.curve.algorithm: learning_curve(m.curve.runs[0][0], score)[0] for m in methods}
    at_once = [s.steps <= first_steps[name][0] for name, by_setting in low.items() for s in by_setting.values()]
    # A level that all methods reach by their first evaluation shows no slowdown.
    return (HIGH, at(HIGH)) if at_once and all(at_once) else (LEVEL, low)


def _setting(k: int, lag: float) -> StaleSetting:
    """Key of a setting, with two digits of the lag: drawn lags differ a little between methods."""
    return k, float(f"{lag:.2g}")


def _stale_score(method: MethodAdvice, setting: StaleSetting) -> tuple[float, float]:
    """Sort key: score at the largest lag, then without lag; a method without the former comes last."""
    scores = [p["iqm"] for p in method.row["points"] if _setting(p["k"], p["lag"]) == setting]
    return (scores[0] if scores else -math.inf), method.row["synchronous"]


def _those_that_learned(methods: Sequence[MethodAdvice]) -> list[MethodAdvice]:
    """Methods whose gain without lag is at least `LEARNED` of the baseline's; all where the baseline is absent."""
    gains = {m.curve.algorithm: m.row["synchronous"] - m.row["zero"] for m in methods}
    least = LEARNED * gains.get(BASELINE, -math.inf)
    return [m for m in methods if gains[m.curve.algorithm] >= least]


def _score_cell(point: dict[str, float] | None, digits: int) -> str:
    if point is None:
        return "–"
    share = f"{point['kept']:.0%} [{100 * point['kept_low']:.0f}, {100 * point['kept_high']:.0f}]"
    return _minus(f"{point['iqm']:z.{digits}f}, {share}")


def _budget_cell(method: MethodAdvice, scale: float | None, digits: int) -> str:
    if scale is None:
        return "–"
    limits = [method.row[name] for name in ("budget", "budget_low", "budget_high")]
    middle, low, high = (Limit(end["lag"] * scale, end["kind"]).sign(digits) for end in limits)
    return f"{middle} [{low}, {high}]"


def _slowdown_cell(slowdown: Slowdown | None) -> str:
    if slowdown is None:
        return "–"
    return f"{slowdown.factor.words} [{slowdown.low.words}, {slowdown.high.words}]"
