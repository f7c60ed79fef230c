"""docs/corrections.md: every correction at K = 16 on tokens and on control, with what the runs tell apart."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..statistics.claims.measured import Evidence
from ..statistics.claims.quoted import filled
from ..statistics.display import display
from ..statistics.results import Results, load
from ..statistics.told_apart import Difference, against, every_pair, scores_at
from ..store.stored_run import StoredRun

BASELINE = "ppo_clip"
WIDTH = 130  # characters of a line
ESS = ("ess_sequence", "ess_data")  # of completions where runs have it, otherwise of decisions
HEAD = """<!-- Made by docs/generate.py (`make docs`) from the bundles of results/reference. -->

# Which corrections survive a high lag?

Every method that is defined on a task, at K = 16 (mean lag 7 phases once the buffer is full), with the published
defaults of each. Nothing was tuned, so this compares defaults, not methods at their best. **Two seeds a method**:
both stand in the tables, no interval does; the difference from PPO-clip has Student's, over the two pairs of equal
seeds.
"""
TOKENS = """## On tokens: word-problems

    make sweep SPEC=experiments/corrections_word_problems.toml

{runs} of 96 optimiser steps (16 prompts × 8 completions, learning rate 5e-4), 2026-11-20; greedy accuracy on 256
problems; before RL the model solves 43 %. VCPO's two runs are of 2026-11-21, after its gradient of groups with
equal rewards was mended.
"""
TOKENS_SAID = """What it says: most methods learn from data that are seven rounds old at this learning rate, and
{told}. Which of them ends highest two seeds do not say. GePPO collapses in both ({score geppo}, TV {tv_data geppo
plain}) and TBA ends where it began ({score tba}); neither was looked into. SPO, which moves least but for PPO-KL
(TV {tv_data spo plain digits=3} and {tv_data ppo_kl plain digits=3}), ends at {score spo}. The geometric mask at
its published window leaves {clipped mis_geo plain} of all tokens without a gradient. VACO with δ = 0.2, the control
setting, never filters here; its published language setting is 0.05. Where a method anchors on a recomputed policy
and there is one gradient step per round, its clip never acts, and the run says so. A setting that does tell methods
apart is the preset `stress` ([language](language.md)); at lags of 4, 12 and 32 training steps the [lesson's
table](gallery/lesson.md) has five seeds.
"""
CONTROL = """## On control: Hopper-v5

    make sweep SPEC=experiments/corrections_hopper.toml

{runs} of 45 phases (92,160 steps), 2026-11-21; sampled returns of the final policy. VCPO, OTB and TBA need groups
of completions, a distribution over all actions or a reference policy and are not defined here.
"""
CONTROL_SAID = """What it says: {told}. The order of the means is another one than on tokens: explicit weights
without a trust region (TIS {return tis}, sequence IS {return seq_is}) move far from the data (TV {tv_data tis
plain} and {tv_data seq_is plain}, against {tv_data ppo_clip plain} of PPO-clip, which ends at {return ppo_clip}).
DPPO and the DeepSeek mask are PPO-clip here run by run ({same dppo} and {same deepseek_mask} pairs score the same
to the last bit): at these settings their rules touch nothing that the clip does not. GSPO's published window (3e-4)
is made for long completions and stops control altogether ({return gspo}). With 45 phases, two seeds and untuned
defaults this says which methods *move* under lag; longer studies with five seeds are in [the
gallery](gallery/vaco.md).
"""


def corrections(folder: Path) -> str:
    """The page, from the two bundles in a folder."""
    parts = [HEAD]
    for name, before, after in (
        ("corrections_word_problems", TOKENS, TOKENS_SAID),
        ("corrections_hopper", CONTROL, CONTROL_SAID),
    ):
        results = load(folder / name)
        evidence = Evidence(results, results.table(reps=50, engine="quick"))
        text = after.replace("{told}", _told(results, evidence))
        of = {"": evidence}.__getitem__
        said = textwrap.fill(filled(text, of), WIDTH, break_on_hyphens=False, break_long_words=False)
        parts += [filled(before, of), _table(results, evidence), f"{said}\n"]
    return "\n".join(parts)


def _differences(results: Results, evidence: Evidence) -> list[Difference]:
    (env,), (k,) = results.grid.envs, results.grid.capacities
    return against(scores_at(results.grid, k, env, evidence.table.settings["score"]), BASELINE)


def _told(results: Results, evidence: Evidence) -> str:
    """How many methods, and pairs, are told apart."""
    (env,), (k,) = results.grid.envs, results.grid.capacities
    made = _differences(results, evidence)
    pairs = every_pair(scores_at(results.grid, k, env, evidence.table.settings["score"]))
    alone = sum(d.low > 0 or d.high < 0 for d in made)
    return (
        f"{sum(d.told for d in made)} of {len(made)} are told from PPO-clip ({alone} before the correction for so many "
        f"comparisons, by Holm), {sum(d.told for d in pairs)} of {len(pairs)} pairs from each other"
    )


def _table(results: Results, evidence: Evidence) -> str:
    """A row per method, the highest mean first."""
    settings = evidence.table.settings
    (env,), (k,) = results.grid.envs, results.grid.capacities
    raw = settings["normalise"] == "raw"
    digits = 2 if raw else 0
    scores = scores_at(results.grid, k, env, settings["score"])
    apart = {d.a: d for d in _differences(results, evidence)}
    ess = ESS[0] if "ess_sequence" in results.stored[0].record["summary"] else ESS[1]
    head = ["method", f"{settings['measure']}: mean (runs)", "less PPO-clip's [95 %]"]
    head += ["training reward"] if raw else []
    head += ["TV of the data", f"ESS of {'completions' if raw else 'decisions'}", "without gradient"]
    lines = [head, ["---"] * len(head)]
    for label in sorted(scores, key=lambda name: (-_mean(scores[name].values()), name)):
        runs = results.grid.members(label, k)

        ends = ", ".join(f"{x:.{digits}f}" for x in scores[label].values())
        d = apart.get(label)
        gap = "" if d is None else f"{d.mean:+.{digits}f} [{d.low:.{digits}f}, {d.high:.{digits}f}]"
        lines.append([
            f"[{display(label)}](methods/{label}.md)", f"{_mean(scores[label].values()):.{digits}f} ({ends})", gap,
            *([f"{_summary(runs, 'reward'):.2f}"] if raw else []), f"{_summary(runs, 'tv_data'):.3f}",
            f"{_summary(runs, ess):.2f}", f"{100 * _summary(runs, 'clipped'):.0f} %",
        ])  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _summary(runs: Iterable[StoredRun], name: str) -> float:
    """Mean over runs of a mean over phases."""
    return _mean(run.record["summary"][name] for run in runs)


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
