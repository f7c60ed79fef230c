"""Share of the score without lag that is retained, and the sentence that answers what lag costs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from results_helper import write_run
from scipy import stats
from statsmodels.stats.multitest import multipletests

from staleharness.statistics import aggregate
from staleharness.statistics.retained_share import compare_pairs, retained_shares, retention
from staleharness.statistics.scores import fixed_scale
from staleharness.statistics.table import plain
from staleharness.store.run_grid import RunGrid, grid

RANDOM = 15.2257  # sampled return of a random policy on Hopper-v5
RETURNS = {
    ("vaco", 1): (115.0, 125.0, 120.0),
    ("vaco", 8): (100.0, 104.0, 99.0),
    ("ppo_clip", 1): (118.0, 116.0, 126.0),
    ("ppo_clip", 8): (44.0, 40.0, 47.0),
    ("spo", 1): (16.0, 17.0, 16.5),  # learned nothing
    ("spo", 8): (16.0, 17.0, 16.5),
    ("tis", 8): (70.0, 71.0, 72.0),  # nothing to compare with
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> RunGrid:
    root = tmp_path_factory.mktemp("runs")
    for (label, k), values in RETURNS.items():
        for seed, value in enumerate(values):
            write_run(root, label, seed, capacity=k, sampled=value, phases=4)
    from staleharness.store.store import Store

    return grid(Store(root).read_all())


def gain(label: str, k: int, zero: float) -> np.ndarray[Any, Any]:
    return np.array(RETURNS[label, k]) - zero


def zero_of(runs: RunGrid) -> float:
    from staleharness.statistics.retained_share import zero_score

    zero = zero_score(runs, "Hopper-v5", "sampled", accuracy=False)
    assert zero == pytest.approx(RANDOM, abs=0.02)
    return float(zero)


def test_interval_of_a_share_adds_both_variances(runs: RunGrid) -> None:
    """Jackknife of the numerator and of the denominator, Welch's degrees of freedom."""
    shares, zero = retained_shares(runs, "sampled", accuracy=False), zero_of(runs)
    assert sorted(shares) == [("ppo_clip", 8), ("vaco", 8)]
    top, base = gain("vaco", 8, zero), gain("vaco", 1, zero)
    ratio = top.mean() / base.mean()
    without = [top.mean() / np.delete(base, i).mean() for i in range(3)]
    parts = [np.var(top / base.mean(), ddof=1) / 3, np.var(3 * ratio - 2 * np.array(without), ddof=1) / 3]
    freedom = sum(parts) ** 2 / sum(v**2 / 2 for v in parts)
    reach = stats.t.ppf(0.975, freedom) * sum(parts) ** 0.5
    share = shares["vaco", 8]
    assert (share.value, share.low, share.high) == pytest.approx((ratio, ratio - reach, ratio + reach))


def clear_pairs(runs: RunGrid, labels: Iterable[str]) -> list[tuple[str, str]]:
    return [pair for pair, p in compare_pairs(runs, 8, "sampled", False, list(labels)).items() if p < 0.05]


def test_pairs_are_tested_together(tmp_path: Path) -> None:
    heights = {"a": (100.0, 101.0, 99.0), "b": (60.0, 62.0, 61.0), "c": (61.0, 59.0, 63.0)}
    base = (120.0, 121.0, 119.0)
    made = [
        write_run(tmp_path, x, s, capacity=1, sampled=base[s] + i, phases=4)
        for i, x in enumerate(heights)
        for s in range(3)
    ]
    made += [
        write_run(tmp_path, x, s, capacity=8, sampled=v[s], phases=4) for x, v in heights.items() for s in range(3)
    ]
    runs = grid(made)
    zero = zero_of(runs)
    ps = []
    for x, y in combinations(heights, 2):
        variances, value = [], 0.0
        for sign, label in ((1, x), (-1, y)):
            i = list(heights).index(label)
            top, low = np.array(heights[label]) - zero, np.array(base) + i - zero
            value += sign * top.mean() / low.mean()
            pseudo = [3 * top.mean() / low.mean() - 2 * top.mean() / np.delete(low, j).mean() for j in range(3)]
            variances += [np.var(top / low.mean(), ddof=1) / 3, np.var(pseudo, ddof=1) / 3]
        freedom = sum(variances) ** 2 / sum(v**2 / 2 for v in variances)
        ps.append(2 * stats.t.sf(abs(value) / sum(variances) ** 0.5, freedom))
    clear = multipletests(ps, method="holm")[0].tolist()
    assert clear == [True, True, False]
    assert clear_pairs(runs, heights) == [("a", "b"), ("a", "c")]
    tests = compare_pairs(runs, 8, "sampled", False, list(heights))
    made += [write_run(tmp_path, "e", s, capacity=1, sampled=base[s] + 2, phases=4) for s in range(3)]
    made += [write_run(tmp_path, "e", s, capacity=8, sampled=heights["c"][s], phases=4) for s in range(3)]
    with_copy = compare_pairs(grid(made), 8, "sampled", False, [*heights, "e"])  # a copy of c is no further method
    assert with_copy["a", "e"] == with_copy["a", "c"] and with_copy["e", "c"] == 1.0
    assert {pair: p for pair, p in with_copy.items() if "e" not in pair} == {
        k: pytest.approx(p) for k, p in tests.items()
    }


def test_a_sentence_says_what_lag_costs(runs: RunGrid) -> None:
    table = aggregate.table(runs, reps=50, engine="quick", normalise=fixed_scale(runs, "sampled"))
    assert table.settings["normalise"] == "frozen"
    zero = zero_of(runs)
    vaco, ppo = (round(100 * gain(x, 8, zero).mean() / gain(x, 1, zero).mean()) for x in ("vaco", "ppo_clip"))
    (sentence,) = table.answers
    assert (
        sentence.startswith("At K = 8, ")
        and f"phases of lag, VACO retains {vaco} %, PPO-clip {ppo} % of the score" in sentence
    )
    assert sentence.endswith("; three seeds tell 1 of 1 pair apart (VACO above PPO-clip).")
    text = plain(table, 120)
    assert text.startswith("At K = 8") and f"  {vaco}% [" in text and "retained" in text
    alone = aggregate.table([r for r in runs.runs if r.label == "vaco"], reps=50, engine="quick").answers[0]
    assert f"VACO retains {vaco} % [" in alone and alone.endswith("] of its score without lag.")
    one_seed = [r for r in runs.runs if r.label == "vaco" and r.seed == 0]
    alone = aggregate.table(one_seed, reps=50, engine="quick").answers[0]
    assert alone.endswith(" % (without interval) of its score without lag.")
    late = [r for r in runs.runs if r.spec["capacity"] == 8]
    assert not aggregate.table(late, reps=50, engine="quick").answers


def test_a_task_without_a_reference_is_shown_raw(tmp_path: Path) -> None:
    one = [write_run(tmp_path, "tis", seed, env="Nowhere-v0", sampled=5.0 + seed) for seed in range(2)]
    assert fixed_scale(grid(one), "sampled") == "raw"
    both = [*one, write_run(tmp_path, "tis", 0, sampled=5.0)]
    assert fixed_scale(grid(both), "sampled") == "minmax"


def test_a_seed_that_scores_0_without_lag_leaves_no_interval(tmp_path: Path) -> None:
    """The share of the other seed alone would be infinite; it is no number that a table could store or Holm correct."""
    scores = {("vaco", 1): (0.0, 0.8), ("vaco", 8): (0.3, 0.4), ("spo", 1): (0.8, 0.79), ("spo", 8): (0.7, 0.71)}
    scores |= {("tis", 1): (0.8, 0.81), ("tis", 8): (0.1, 0.11)}
    made = [
        write_run(tmp_path, label, seed, kind="language", env="word-problems", capacity=k, deterministic=x, phases=4)
        for (label, k), values in scores.items()
        for seed, x in enumerate(values)
    ]
    share = retained_shares(grid(made), "deterministic", accuracy=True)["vaco", 8]
    assert (share.value, share.low, share.high, share.p) == (pytest.approx(0.35 / 0.4), None, None, None)
    table = aggregate.cached_table(tmp_path / "report", made, reps=50, engine="quick")
    assert table.answers[0].endswith("two seeds tell 1 of 3 pairs apart (SPO above TIS; 1 of 3 pairs tested).")


@pytest.mark.parametrize(
    ("seeds", "places", "end"),
    [
        (1, ("Hopper-v5", "Hopper-v5", "Hopper-v5"), "not tested (a test takes two seeds, and the same environments)."),
        (3, ("Hopper-v5", "Walker2d-v5", "Ant-v5"), "not tested (a test takes two seeds, and the same environments)."),
        (3, ("Hopper-v5", "Hopper-v5", "Ant-v5"), "three seeds cannot tell them apart (1 of 3 pairs tested)."),
    ],
)
def test_pairs_without_a_test_are_not_called_alike(
    tmp_path: Path, seeds: int, places: tuple[str, ...], end: str
) -> None:
    made = [
        write_run(tmp_path, label, seed, env=env, capacity=k, sampled=900.0 - 40 * k + 100 * seed, phases=4)
        for label, env in zip(("a", "b", "c"), places, strict=True)
        for seed in range(seeds)
        for k in (1, 8)
    ]
    table = aggregate.table(grid(made), reps=50, engine="quick", normalise="raw")
    assert table.answers[-1].endswith(f" of the score without lag; {end}")


def test_equal_results_are_given_as_the_reason_for_no_test(tmp_path: Path) -> None:
    made = [
        write_run(tmp_path, label, seed, capacity=k, sampled=900.0, phases=4)
        for label in ("a", "b")
        for seed in range(3)
        for k in (1, 8)
    ]
    answers = aggregate.table(grid(made), reps=50, engine="quick", normalise="raw").answers
    assert answers[-1].endswith("not tested (the results do not vary).")


def test_the_seeds_are_those_of_tested_methods(tmp_path: Path) -> None:
    made = [
        write_run(tmp_path, label, seed, capacity=k, sampled=900.0 - height * k + seed, phases=4)
        for label, height, seeds in (("a", 10, 3), ("b", 40, 3), ("c", 20, 1))
        for seed in range(seeds)
        for k in (1, 8)
    ]
    end = "three seeds tell 1 of 3 pairs apart (a above b; 1 of 3 pairs tested)."
    assert aggregate.table(grid(made), reps=50, engine="quick", normalise="raw").answers[-1].endswith(end)


def test_seeds_that_score_0_without_lag_leave_no_bootstrap(tmp_path: Path) -> None:
    """Three of five seeds score 0: 8 % of resamples hold no other."""
    scores = {1: (0.0, 0.0, 0.0, 0.5, 0.8), 8: (0.3, 0.4, 0.3, 0.3, 0.3)}
    made = [
        write_run(tmp_path, "vaco", seed, env="word-problems", kind="language", capacity=k, sampled=x, phases=4)
        for k, values in scores.items()
        for seed, x in enumerate(values)
    ]
    share = retention(grid(made), "vaco", 8, "sampled", accuracy=True)
    assert share is not None and share.share == pytest.approx(0.32 / 0.26) and share[1:] == (None, None)


def test_runs_without_lag_that_two_methods_share_count_once(tmp_path: Path) -> None:
    """Two shares of one mean differ more surely than those of two means as uncertain as it."""
    base, heights = (180.0, 200.0, 220.0), {"a3po": 150.0, "ppo_clip": 120.0}
    made = [
        write_run(tmp_path, label, seed, capacity=k, sampled=RANDOM + x, phases=4)
        for label, height in heights.items()
        for seed in range(3)
        for k, x in ((1, base[seed]), (8, height - 1 + seed))
    ]
    assert clear_pairs(grid(made), heights) == [("a3po", "ppo_clip")]
    for run in made:  # the same scores by other episodes
        if run.label == "a3po" and run.spec["capacity"] == 1:
            run.record["scores"]["sampled"]["returns"][0] += 1
    assert clear_pairs(grid(made), heights) == []


def test_no_share_is_retained_of_almost_no_gain(tmp_path: Path) -> None:
    """A share of 1 % of the gain of the reference would be noise."""
    from staleharness.statistics.scores import reference_gain
    from staleharness.store.store import Store

    gain = reference_gain("Hopper-v5", "sampled")
    assert gain > 1000 and reference_gain("bit-chain", "sampled") == 0.0
    for name, share in (("low", 0.01), ("high", 0.03)):
        for k in (1, 8):
            write_run(tmp_path / name, "vaco", 0, capacity=k, sampled=RANDOM + share * gain)
    notes = {name: aggregate.table(Store(tmp_path / name).read_all()) for name in ("low", "high")}
    assert {row["retained"] for row in notes["low"].rows} == {None}
    assert "answers" not in notes["low"].settings and "answers" in notes["high"].settings
    text = "no share retained for VACO: at K = 1 the gain is below 10% of the best method's gain, or 2% of the "
    assert [any(note.startswith(text) for note in notes[name].notes) for name in notes] == [True, False]
