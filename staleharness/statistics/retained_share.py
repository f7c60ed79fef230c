"""Cost of lag: the share of its score without lag that each method retains, and the answer in one sentence.

A score counts from that of a random policy or, where that is unknown, from that of the policy before training; an
accuracy counts from 0. Intervals of `retained_shares` are Student's, valid for few seeds; `retention`, of one method at
one K, has bootstrap intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from ..base.text_formatting import listing, plural
from ..store.run_grid import Cell, RunGrid
from .bootstrap import REPS, percentiles, resample, stable_seed
from .method_labels import display_label
from .scores import Array, final_score, random_returns, reference_gain, score_before_training
from .significance_and_power import ALPHA, holm_of_results
from .t_tests_and_intervals import Contrast, contrast

MIN_GAIN = 0.1  # share of the best method's gain over random that counts as having learned
MIN_REFERENCE_GAIN = 0.02  # share of the reference's gain, where there is a reference

MAX_METHODS = 8  # methods in a sentence
PAIRS = 3  # pairs in a sentence
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
Shares = Mapping[tuple[str, int], Contrast]  # (algorithm, K)


def zero_score(run_grid: RunGrid, env: str, score: str, accuracy: bool) -> float | None:
    """Score from which shares are counted; None where it is not known."""
    if accuracy:
        return 0.0
    at_start = score_before_training(run_grid, env, score)
    return random_returns([env], score).get(env, None if at_start is None else at_start[0])


def retained_shares(run_grid: RunGrid, score: str, accuracy: bool) -> Shares:
    """Share of its score at K = 1 that each method retains at a larger K, averaged over environments. Left out: methods
    without runs at K = 1 in one of their environments, or that did not learn there (`has_learned`).
    """
    shares = {}
    for label, k in run_grid.rows:
        gains = _gains(run_grid, label, k, score, accuracy) if k > 1 else {}
        if gains and len(gains) == len(run_grid.tasks(label, k)):
            shares[label, k] = contrast(gains, lambda means: float(means[0] / means[1]))
    return shares


def note_on_shares(run_grid: RunGrid, score: str, accuracy: bool) -> list[str]:
    """Note methods without a share because they did not learn at K = 1."""
    labels = {
        cell.label
        for cell, runs in run_grid.cells.items()
        if cell.capacity > 1 and runs and run_grid.cells.get(Cell(cell.label, 1, cell.env))
        if (zero := zero_score(run_grid, cell.env, score, accuracy)) is not None
        if not has_learned(run_grid, cell.label, cell.env, score, zero)
    }
    names = listing(sorted(map(display_label, labels)), 4)
    limits = f"{MIN_GAIN:.0%} of the best method's gain, or {MIN_REFERENCE_GAIN:.0%} of the reference's"
    return [f"no share retained for {names}: at K = 1 the gain is below {limits}"] if labels else []


def retention_sentences(
    run_grid: RunGrid, score: str, accuracy: bool, shares: Shares, lags: Mapping[tuple[str, int], float | None]
) -> list[str]:
    """A sentence for each K beyond 1: its lag, what each method retains, and which of them the seeds tell apart.

    lags: mean realised lag in phases, by (algorithm, K).
    """
    sentences = []
    for k in sorted({k for _, k in shares}):
        order = sorted((label for label, of in shares if of == k), key=lambda label: (-shares[label, k].value, label))
        lags_here = [lag for label in order if (lag := lags[label, k]) is not None]
        place = f"At K = {k}" + (f", {np.mean(lags_here):.1f} phases of lag," if lags_here else "")
        names = [
            f"{display_label(label)} {'' if i else 'retains '}{_percent(shares[label, k], len(order) == 1)}"
            for i, label in enumerate(order[:MAX_METHODS])
        ]
        remainder = [f"{len(order) - MAX_METHODS} others less"] if len(order) > MAX_METHODS else []
        end = " of its score without lag" if len(order) == 1 else ""
        sentences.append(
            f"{place} {', '.join([*names, *remainder])}{end}{_difference(run_grid, k, score, accuracy, order)}."
        )
    return sentences


def _percent(share: Contrast, with_interval: bool) -> str:
    text = f"{100 * share.value:.0f} %"
    if not with_interval:
        return text
    if share.low is None or share.high is None:
        return f"{text} (without interval)"
    return f"{text} [{100 * share.low:.0f}, {100 * share.high:.0f}]"


def _difference(run_grid: RunGrid, k: int, score: str, accuracy: bool, labels: Sequence[str]) -> str:
    """End of the sentence: the pairs of methods that differ."""
    if len(labels) < 2:
        return ""
    tests = compare_pairs(run_grid, k, score, accuracy, labels)
    pairs = [pair for pair, p in tests.items() if p < ALPHA]
    possible = len(labels) * (len(labels) - 1) // 2
    if not tests:
        cells = [{env: len(runs) for env, runs in run_grid.tasks(label, k).items()} for label in labels]
        testable = any(a.keys() == b.keys() and min([*a.values(), *b.values()]) > 1 for a, b in combinations(cells, 2))
        reason = "the results do not vary" if testable else "a test takes two seeds, and the same environments"
        return f" of the score without lag; not tested ({reason})"
    methods = {label for pair in tests for label in pair}
    n = min(len(runs) for label in methods for at in (1, k) for runs in run_grid.tasks(label, at).values())
    seeds = f"{NUMBERS[n] if n < len(NUMBERS) else n} {'seed' if n == 1 else 'seeds'}"
    count = "" if len(tests) == possible else f"{len(tests)} of {plural(possible, 'pair')} tested"
    if not pairs:
        return f" of the score without lag; {seeds} cannot tell them apart{f' ({count})' if count else ''}"
    verb = "tells" if n == 1 else "tell"
    names = [f"{display_label(a)} above {display_label(b)}" for a, b in pairs]
    text = "; ".join(filter(None, [listing(names, PAIRS), count]))
    return f" of the score without lag; {seeds} {verb} {len(pairs)} of {plural(possible, 'pair')} apart ({text})"


def compare_pairs(
    run_grid: RunGrid, k: int, score: str, accuracy: bool, labels: Sequence[str]
) -> dict[tuple[str, str], float]:
    """Test every two methods with the same environments on the share retained at K: the pair, larger share first -> p.

    Welch's test on jackknife pseudo-values with Holm's correction for all pairs. Methods with the same results at K = 1
    are one computation there, whose runs count once. Pairs without a spread have no test.
    """
    gains = {label: _gains(run_grid, label, k, score, accuracy) for label in labels}
    results = {
        label: [run.record["scores"] for env in gains[label] for run in run_grid.cells[Cell(label, 1, env)]]
        for label in labels
    }
    all_results = {
        label: tuple((env, *(tuple(scores.tolist()) for scores in at_k_and_1)) for env, at_k_and_1 in by_env.items())
        for label, by_env in gains.items()
    }
    p_values = {}
    for a, b in combinations(labels, 2):
        if gains[a].keys() == gains[b].keys():
            tasks = {env: [*gains[a][env], gains[b][env][0]] for env in gains[a]}  # at K, at 1, the other's at K
            if results[a] != results[b]:
                tasks = {env: [*samples, gains[b][env][1]] for env, samples in tasks.items()}
            difference = contrast(tasks, lambda m: float(m[0] / m[1] - m[2] / m[1 if len(m) == 3 else 3]))
            if (p := difference.p_beyond("more")) is not None:
                p_values[(a, b) if difference.value > 0 else (b, a)] = p
    p_holm = holm_of_results(list(p_values.values()), [(all_results[a], all_results[b]) for a, b in p_values])
    return dict(zip(p_values, p_holm, strict=True))


def _gains(run_grid: RunGrid, label: str, k: int, score: str, accuracy: bool) -> dict[str, list[Array]]:
    """Scores above zero at K and at 1, [runs] each, by environment that has both and where the method learned."""
    gains = {}
    for env in run_grid.envs:
        cells = [run_grid.cells.get(Cell(label, at, env), []) for at in (k, 1)]
        zero = zero_score(run_grid, env, score, accuracy)
        if all(cells) and zero is not None and has_learned(run_grid, label, env, score, zero):
            gains[env] = [np.array([final_score(run, score) for run in runs]) - zero for runs in cells]
    return gains


class Retention(NamedTuple):
    """Share of the K = 1 score above random that remains at a capacity, with its interval."""

    share: float
    low: float | None
    high: float | None


def retention(
    run_grid: RunGrid, label: str, k: int, score: str, *, base: tuple[str, int] | None = None, accuracy: bool = False
) -> Retention | None:
    """Mean over environments of (score at K − random) / (score at 1 − random), each score a mean over seeds.

    `base`: the (algorithm, K) without lag, if it is not this one at K = 1. An `accuracy` is counted from 0.

    None where a method has no runs at K or at 1, no environment has a known random return, or the method did not learn
    at K = 1 in one of them (`has_learned`), so that a share is meaningless. The
    interval resamples the seeds of both capacities independently; none where too many resamples score 0 without lag.
    """
    zero_of = dict.fromkeys(run_grid.envs, 0.0) if accuracy else random_returns(run_grid.envs, score)
    reference, reference_k = base or (label, 1)
    top, bottom, zeros = [], [], []
    for env, zero in zero_of.items():
        at_k = run_grid.cells.get(Cell(label, k, env))
        without_lag = run_grid.cells.get(Cell(reference, reference_k, env))
        if at_k and without_lag:
            top.append(np.array([final_score(r, score) for r in at_k]))
            bottom.append(np.array([final_score(r, score) for r in without_lag]))
            zeros.append(zero)
            if not has_learned(run_grid, reference, env, score, zero, k=reference_k, alone=base is not None):
                return None
    if not top:
        return None
    share = float(_share(top, bottom, zeros))
    if (label, k) == (reference, reference_k) or min(map(len, [*top, *bottom])) < 2:
        return Retention(share, None, None)
    rng = np.random.default_rng(stable_seed("retained", label, k))
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = percentiles(_share(resample(top, REPS, rng), resample(bottom, REPS, rng), zeros))
    return Retention(share, float(low), float(high)) if np.isfinite([low, high]).all() else Retention(share, None, None)


def has_learned(
    run_grid: RunGrid, label: str, env: str, score: str, zero: float, *, k: int = 1, alone: bool = False
) -> bool:
    """Return whether a method gained at least a tenth of the best one's gain at capacity `k` (`alone`: any gain), and a
    fiftieth of the reference's, where the environment has one."""
    gains = {
        cell.label: float(np.mean([final_score(run, score) for run in runs])) - zero
        for cell, runs in run_grid.cells.items()
        if (cell.capacity, cell.env) == (k, env)
    }
    best = gains.get(label, 0.0) if alone else max(gains.values(), default=0.0)
    least = max(MIN_GAIN * best, MIN_REFERENCE_GAIN * reference_gain(env, score))
    return label in gains and best > 0 and gains[label] >= least


def _share(top: Sequence[Array], base: Sequence[Array], zeros: Sequence[float]) -> Array:
    shares = [(t.mean(axis=-1) - z) / (b.mean(axis=-1) - z) for t, b, z in zip(top, base, zeros, strict=True)]
    return np.asarray(np.mean(shares, axis=0))
