"""docs/corrections.md: every correction at K = 16 on tokens and on control, with what the runs tell apart."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from staleharness.base.parsing import parse_choice
from staleharness.base.table_formatting import markdown_table
from staleharness.statistics.claims.claim_evaluation import fill_numbers
from staleharness.statistics.claims.study_evidence import Evidence
from staleharness.statistics.method_labels import display_label
from staleharness.statistics.results import load
from staleharness.statistics.scores import Array
from staleharness.statistics.significance_and_power import (
    ALPHA,
    MethodDifference,
    compare_all_pairs,
    compare_with_baseline,
    f_ratio,
    final_scores,
)
from staleharness.store.stored_run import StoredRun

BASELINE = "ppo_clip"
FRESH = "ppo_clip[lag=fixed:0]"  # the baseline without lag: in a table, and no method of its own
MAX_LISTED = 3  # runs of a cell whose scores a table lists one by one
WIDTH = 130  # characters of a line
ESS = ("ess_sequence", "ess_data")  # of completions where runs have it, otherwise of decisions
HEAD = """<!-- Made by docs/generate.py (`make docs`) from the bundles of results/reference. -->

# Which corrections survive a high lag?

Three studies at K = 16 of the methods that existed when they were run, each with its published defaults. Nothing was
tuned, so this compares defaults, not methods at their best; the [leaderboard](leaderboard.md) ranks methods, newer ones
included. *Minus PPO-clip's*: difference of means with Welch's 95 % interval, bold where Welch's t-test distinguishes
the two at 5 % after Holm's correction for all rows of the table. The columns to its right are means over a run's
phases; *without gradient* is the share of decisions that had a non-zero advantage but got no gradient through log π; on
Hopper the closed-form KL of PPO-KL acts on such decisions, too.
"""
STRESS = """## On tokens: word-problems

    make sweep SPEC=experiments/stress_word_problems.toml

{runs} of [`PRESET=stress`](language.md#a-benchmark-that-tells-methods-apart), {seeds}: 64 optimiser steps of 16
prompts × 8 completions, two a round, at a learning rate of 3e-4. All data are the oldest in the buffer: 15 rounds old
once it is full, 11 on average over a run. Greedy accuracy on 256 problems after the last step; the untrained model
solves {untrained/deterministic ppo_clip plain as=%} (43 % on an Intel processor, 45 % on an AMD one, which made seeds
0 to 3 of all methods). "PPO-clip, lag 0" is training without lag. [The
figures](gallery/stress.md).
"""
STRESS_RESULTS = """{lists}

**Findings:** {told}. The order of methods that cannot be distinguished from PPO-clip means nothing. The DeepSeek
mask is nearly PPO-clip here, run by run ({score deepseek_mask over=ppo_clip seeds=paired}): it masks completions that
drift far, and few do. Apart from TBA, methods that move least from the data learn least: TV
{tv_data ppo_clip plain digits=3} for PPO-clip, {tv_data ppo_kl plain digits=3} for PPO-KL and
{tv_data spo plain digits=3} for SPO, where TOPR has {tv_data topr plain digits=3} and sequence MIS
{tv_data mis_seq plain digits=3}; but TIS moves further still ({tv_data tis plain digits=3}) and ends between them.

**Limits:** one task, a model of 90k parameters, one lag, one learning rate, nothing tuned. Another lag or rate gives
another order, as the next table shows."""
TOKENS = """## On tokens, with less lag and larger steps

    make sweep SPEC=experiments/corrections_word_problems.toml

{runs} of 96 optimiser steps (16 prompts × 8 completions, learning rate 5e-4), {seeds}, 2026-11-20 to 30, mean lag 7
rounds once the buffer is full; greedy accuracy on 256 problems; before RL the model solves 43 %, or 45 % where "VACO,
δ = 0.05" and GePPO were run, on a processor of another kind, whose warm start differs. VCPO's first two runs are of
2026-11-21, after its gradient of groups with equal rewards was fixed.
"""
TOKENS_RESULTS = """{lists}

**Findings:** {told}. Most methods learn from data that are seven rounds old at this learning rate: PPO-clip ends at
{score ppo_clip}, without lag at {score ppo_clip[lag=fixed:0]}, so a correction has little to gain. TBA ends at
{score tba}; the cause was not investigated. GePPO ends at {score geppo}; in its first five runs, replaced on
2026-11-30, its step size, with one step a phase and so no feedback, grew 17-fold, and it ended at 0. SPO,
which moves least after PPO-KL (TV {tv_data spo plain digits=3} and {tv_data ppo_kl plain digits=3}), ends at
{score spo}. The
geometric mask at its published window leaves {clipped mis_geo plain} of all tokens without a gradient. VACO with δ =
0.2, the control setting, filters in 2 of 480 phases; with 0.05, published for language, it filters
{clipped vaco[delta=0.05] plain} of all tokens and ends at {score vaco[delta=0.05]}. Where a method anchors on a
recomputed policy and there is one gradient step per round, its clip is never active, and the run warns of it.
"""
CONTROL = """## On control: Hopper-v5

    make sweep SPEC=experiments/corrections_hopper.toml

{runs} of 45 phases (92,160 steps), {seeds}, 2026-11-21 and 23; sampled returns of the final policy. VCPO, OTB and TBA
need groups of completions, a distribution over all actions or a reference policy and are not defined here.
"""
CONTROL_RESULTS = """{lists}

**Findings:** {told}. PPO-clip ends at {return ppo_clip}, without lag at {return ppo_clip[lag=fixed:0]}. Explicit
weights without a trust region have the highest means under lag (TIS {return tis}, sequence IS {return seq_is}). They
move far from the data (TV {tv_data tis plain} and {tv_data seq_is plain}, against {tv_data ppo_clip plain}), and their
runs, like those without lag, spread too widely for five seeds to distinguish them from PPO-clip after Holm's
correction. DPPO and the DeepSeek mask equal PPO-clip here, run by run ({same dppo} and {same deepseek_mask} pairs
score the same to the last bit): at these settings their rules touch nothing that the clip does not. GSPO's published
window (3e-4) is made for long completions and stops learning on control ({return gspo}).

**Limits:** 45 phases are few, nothing is tuned, and only PPO-clip was run without lag. Longer studies, with
every method at K = 1, are in [the gallery](gallery/vaco.md).
"""


def corrections(folder: Path) -> str:
    """Page from the three bundles in a folder."""
    parts = [HEAD]
    for name, before, after in (
        ("stress_word_problems", STRESS, STRESS_RESULTS),
        ("corrections_word_problems", TOKENS, TOKENS_RESULTS),
        ("corrections_hopper", CONTROL, CONTROL_RESULTS),
    ):
        results = load(folder / name)
        evidence = Evidence(results, results.table(reps=50, engine="quick"))
        (env,), (k,), score = results.grid.envs, results.grid.capacities, evidence.table.settings["score"]
        scores = final_scores(results.grid, k, env, score)
        differences = compare_with_baseline(scores, BASELINE)
        text = after.replace("{told}", _significance_text(scores, differences))
        text = text.replace("{lists}", _lists(differences))
        evidence_of = {"": evidence}.__getitem__
        parts += [fill_numbers(before, evidence_of), _table(evidence, scores, differences)]
        parts += [f"{_wrap(paragraph)}\n" for paragraph in fill_numbers(text, evidence_of).split("\n\n")]
    return "\n".join(parts)


def _wrap(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_on_hyphens=False, break_long_words=False)


def _significance_text(scores: Mapping[str, Array], differences: Sequence[MethodDifference]) -> str:
    """Numbers of methods and pairs that differ significantly, in words."""
    differences = [d for d in differences if d.a != FRESH]
    methods = {label: runs for label, runs in scores.items() if label != FRESH}
    pairs, n_uncorrected = compare_all_pairs(methods), sum(d.p < ALPHA for d in differences)
    ratio = f_ratio(list(methods.values()))
    n_methods, n_pairs = (sum(d.significant for d in tests) for tests in (differences, pairs))
    return (
        f"{n_methods} of {len(differences)} methods differ significantly from PPO-clip ({n_uncorrected} before Holm's "
        f"correction for so many comparisons), and {n_pairs} of {len(pairs)} pairs of methods from each other; the "
        f"mean square between methods is {ratio:.1f} times that between seeds (F)"
    )


def _lists(differences: Sequence[MethodDifference]) -> str:
    """Lists of the methods above, below and not significantly different from the baseline."""
    differences = sorted(differences, key=lambda d: -d.mean)
    groups = {
        "Above PPO-clip": [d for d in differences if d.significant and d.mean > 0],
        "below it": [d for d in differences if d.significant and d.mean < 0],
        "not significantly different": [d for d in differences if not d.significant],
    }
    lists = (f"{where}: {' · '.join(display_label(d.a) for d in ds) or 'none'}" for where, ds in groups.items())
    return f"{'; '.join(lists)}."


def _table(evidence: Evidence, scores: Mapping[str, Array], differences: Sequence[MethodDifference]) -> str:
    """Table with a row per method, the highest mean first."""
    settings, results = evidence.table.settings, evidence.results
    (k,) = results.grid.capacities
    raw = settings["normalise"] == "raw"
    digits = 2 if raw else 0
    by_method = {d.a: d for d in differences}
    ess = ESS[0] if "ess_sequence" in results.stored_runs[0].record["summary"] else ESS[1]
    head = ["method", f"{settings['measure']}: mean (runs)", "minus PPO-clip's [95 %]"]
    head += ["training reward"] if raw else []
    head += ["TV of the data", f"ESS of {'completions' if raw else 'decisions'}", "without gradient"]
    rows = []
    for label in sorted(scores, key=lambda name: (-scores[name].mean(), name)):
        runs, run_scores = results.grid.members(label, k), scores[label].tolist()
        few = len(run_scores) <= MAX_LISTED
        span = (", " if few else " to ").join(
            f"{x:.{digits}f}" for x in (run_scores if few else (min(run_scores), max(run_scores)))
        )
        gap, name = _gap(by_method.get(label), digits), parse_choice(label).name
        rows.append(
            [
                f"[{display_label(label)}](methods/{name}.md)",
                f"{scores[label].mean():.{digits}f} ({span})",
                gap,
                *([f"{_summary(runs, 'reward'):.2f}"] if raw else []),
                f"{_summary(runs, 'tv_data'):.3f}",
                f"{_summary(runs, ess):.2f}",
                f"{100 * _summary(runs, 'clipped'):.0f} %",
            ]
        )
    return markdown_table(head, rows) + "\n"


def _gap(d: MethodDifference | None, digits: int) -> str:
    """Difference with its interval, bold if significant; empty for the baseline's own."""
    if d is None:
        return ""
    bold = "**" if d.significant else ""
    ends = "–" if d.low is None or d.high is None else f"{d.low:z.{digits}f}, {d.high:z.{digits}f}"
    return f"{bold}{d.mean:+z.{digits}f} [{ends}]{bold}".replace("-", "−")


def _summary(runs: Iterable[StoredRun], name: str) -> float:
    """Mean over runs of a mean over phases."""
    return float(np.mean([run.record["summary"][name] for run in runs]))
