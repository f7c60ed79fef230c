"""The table of docs/corrections.md on tokens, from results/reference/stress_word_problems.

    python docs/generate_corrections.py

It stands between two comments of the page; a test asserts that the committed table is what this writes.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np

from staleharness.base.parsing import parse_algorithm
from staleharness.statistics.results import load
from staleharness.statistics.told_apart import Difference, against, every_pair, f_ratio, scores_at

PAGE = Path(__file__).resolve().parent / "corrections.md"
BUNDLE = PAGE.parents[1] / "results" / "reference" / "stress_word_problems"
BASELINE, FRESH = "ppo_clip", "ppo_clip[lag=fixed:0]"
BEGIN, END = "<!-- Made by docs/generate_corrections.py from here ... -->\n", "<!-- ... to here. -->\n"
HEAD = (
    "method", "accuracy", "− PPO-clip [95 %]", "p, after Holm", "training reward", "TV of the data",
    "ESS of completions", "without gradient", "n",
)  # fmt: skip


def page() -> str:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{section()}\n\n{END}{after}"


def section() -> str:
    """The table, best method first, and what is told apart."""
    results = load(BUNDLE).select(k=16)
    scores = scores_at(results.grid, 16, "word-problems", "deterministic")
    means = results.runs.groupby("algorithm").mean(numeric_only=True)
    made = {d.a: d for d in against(scores, BASELINE)}
    rows = []
    for label in sorted(scores, key=lambda name: (-float(np.mean(list(scores[name].values()))), name)):
        runs, mean = list(scores[label].values()), means.loc[label]
        rows.append([
            link(label), f"{np.mean(runs):.2f}", *compared(made.get(label)), f"{mean['reward']:.2f}",
            f"{mean['tv_data']:.3f}", f"{mean['ess_sequence']:.2f}", f"{mean['clipped']:.0%}", str(len(runs)),
        ])  # fmt: skip
    lines = [HEAD, ["---"] * len(HEAD), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    begun = f"Before RL the model solves {means['untrained/deterministic'].mean():.0%} of the problems."
    return f"{table}\n\n{begun}\n\n{counted(scores, list(made.values()))}"


def link(label: str) -> str:
    name = parse_algorithm(label).name
    return f"`{label}`" if label == FRESH else f"[`{label}`](methods/{name}.md)"


def compared(d: Difference | None) -> tuple[str, str]:
    """The difference with its interval and its p, both bold where they tell the two apart."""
    if d is None:
        return "–", "–"
    bold = "**" if d.told else ""
    gap = f"{d.mean:+.2f} [{d.low:+.2f}, {d.high:+.2f}]".replace("-", "−")
    p = "< 0.001" if d.holm < 0.001 else f"{d.holm:.3f}"
    return f"{bold}{gap}{bold}", f"{bold}{p}{bold}"


def counted(scores: dict[str, dict[int, float]], made: list[Difference]) -> str:
    """Who is told from the baseline, and how far methods lie apart, in words."""
    stale = {label: runs for label, runs in scores.items() if label != FRESH}
    told = {
        "Above PPO-clip": [d for d in made if d.told and d.mean > 0],
        "below it": [d for d in made if d.told and d.mean < 0],
        "not told from it": [d for d in made if not d.told],
    }
    lists = "; ".join(
        f"{where}: {', '.join(f'`{d.a}`' for d in sorted(found, key=lambda d: -d.mean)) or 'none'}"
        for where, found in told.items()
    )
    pairs = every_pair(stale)
    ratio = f_ratio([np.array(list(runs.values())) for runs in stale.values()])
    apart = (
        f"Of all {len(pairs)} pairs of methods under lag, {sum(d.told for d in pairs)} are told apart after Holm's "
        f"correction for all of them; the mean square between methods is {ratio:.1f} times that between seeds (F)."
    )
    return "\n\n".join(textwrap.fill(text, 120, break_on_hyphens=False) for text in (f"{lists}.", apart))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
