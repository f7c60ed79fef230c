"""The study of real lag: what it fits to a trace, what it tests, and what it says of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from places import ROOT
from scipy import stats
from statsmodels.stats.multitest import multipletests
from trace_tables import trace_table

from staleharness.lag import read_lag
from staleharness.rollout_schedule import Demand
from staleharness.store.store import Store
from staleharness.store.stored_run import StoredRun
from staleharness.trace import trace_bytes

MODULES = "fit_lag_models design collect compare figure page".split()


@pytest.fixture(scope="module")
def study() -> Iterator[SimpleNamespace]:
    """The modules of `experiments/real_lag`, which is run as a folder and is no package."""
    folder = str(ROOT / "experiments" / "real_lag")
    sys.path.insert(0, folder)
    try:
        yield SimpleNamespace(**{name: __import__(name) for name in MODULES})
    finally:
        sys.path.remove(folder)
        for name in MODULES:
            del sys.modules[name]


def published_runs() -> dict[str, StoredRun]:
    return {run.id: run for run in Store(ROOT / "results" / "reference" / "real_lag").read_all()}


def trace(path: Path, seconds: Callable[[int, int], float] = lambda _, place: 1.0 if place % 2 else 3.0) -> Path:
    """Steps of two seconds, of which training takes one and a half; groups that take one second or three, or as many
    as is said of (phase, place), four of them a batch, of two rows each."""
    lines = [(phase, place) for phase in range(5) for place in range(4) for _ in range(2)]
    rows = trace_table(
        8, [(place, p, p, p, 2.0 * p - seconds(p, place), 2.0 * p) for p, place in lines], rows_per_group=2
    ).assign(trained_at=[2.0 * phase for phase, _ in lines])
    said = {"source": "actors", "decisions": 8, "fetch": 0, "published_at": [2.0 * p + 1.5 for p in range(4)]}
    path.write_bytes(trace_bytes(rows, said))
    return path


def test_the_pipeline_has_the_times_of_the_trace_in_training_steps(study: SimpleNamespace, tmp_path: Path) -> None:
    model: Any = read_lag(
        study.fit_lag_models.fit_pipeline(trace(tmp_path / "t.parquet"), "async[actors=8,queue=3.0]", 16)
    )
    assert (model.capacity, model.max_lag, model.slots) == (3.0, 15, 2.0)
    # groups of two rows, of which the longer takes what was recorded
    sigma = np.sqrt(np.log1p(model.cv**2))
    drawn = np.random.default_rng(0).lognormal(np.log(model.row_time) - sigma**2 / 2, sigma, (1_000_000, 2)).max(1)
    assert drawn.mean() == pytest.approx(2.0 / 1.5, rel=5e-3)
    assert drawn.std() == pytest.approx(np.std([1, 3] * 10, ddof=1) / 1.5, rel=2e-2)


def test_slow_actors_of_the_trace_are_slow_slots(study: SimpleNamespace, tmp_path: Path) -> None:
    """Actor 1 takes 12 ± 4 seconds and the others 3 ± 1: one deviation over the mean, but for the degrees of freedom.
    A fifth actor finished nothing."""
    path = trace(tmp_path / "t.parquet", lambda phase, place: (3.0 + phase % 3 - 1) * (4 if place == 1 else 1))
    model: Any = read_lag(study.fit_lag_models.fit_pipeline(path, "async[actors=5,delay=1.0,spread=4.0,slow=2]", 16))
    assert (model.slots, model.slow, model.slow_factor) == (1.25, 0.4, 4.0)
    times = [3.0 + phase % 3 - 1 for phase in range(5)]
    mean, deviation = np.mean(times), np.std(times) * np.sqrt(20 / 18)
    row, spread = study.fit_lag_models.row_times(mean / 1.5, deviation / 1.5, 2)
    assert (model.row_time, model.cv) == (pytest.approx(row, rel=1e-3), pytest.approx(spread / row, rel=1e-2))
    plain: Any = read_lag(study.fit_lag_models.fit_pipeline(path, "async[actors=5,delay=1.0,spread=4.0]", 16))
    assert (plain.slow, plain.slow_factor) == (0.0, 1.0)


def simulate_lags(text: str, demand: Demand) -> list[float]:
    """Share of the decisions that are trained on, by lag."""
    plan = read_lag(text).schedule(demand)
    rows = plan.phase >= 0
    counts = np.bincount((plan.phase - plan.oldest)[rows], plan.lengths[rows])
    return (counts / counts.sum()).tolist()


@pytest.mark.parametrize("task", [0, 1], ids=["Hopper", "word-problems"])
@pytest.mark.long
def test_two_kinds_are_nearer_to_the_recorded_lag_than_one(study: SimpleNamespace, task: int) -> None:
    """On published traces. One kind is 0.4 to 1.5 phases away, two are 0.03 to 0.5."""
    found = published_runs()
    cells = study.design.STUDIES["real_lag"].cells(range(2))
    slow = [
        cell
        for cell in cells
        if (cell.task, cell.load) == (study.design.STUDIES["real_lag"].tasks[task], "slow actors")
    ]
    assert len(slow) == 6
    for cell in slow:
        real, load = found[cell.recording().run_id], cell.task.loads[cell.load]
        demand = cell.recording().spec.demand
        one, two = (
            study.compare.distance(
                simulate_lags(study.fit_lag_models.fit_pipeline(real.trace, text, study.design.CAPACITY), demand),
                study.fit_lag_models.histogram(real),
            )
            for text in (load.replace(f"slow={read_lag(load).slow}", "slow=0"), load)
        )
        assert two < 0.6 * one, cell


@pytest.mark.parametrize(("mean", "deviation"), [(2.0, 0.3), (0.5, 0.6)])
def test_a_group_of_one_row_takes_its_time(study: SimpleNamespace, mean: float, deviation: float) -> None:
    assert study.fit_lag_models.row_times(mean, deviation, 1) == pytest.approx((mean, deviation), rel=5e-3)


def store_runs(lags: dict[str, int], phases: int = 40) -> StoredRun:
    return StoredRun(Path(), {"lag_histogram": lags, "phases": phases}, "")


def test_the_buffer_of_equal_mean_lag_includes_the_filling_phase(study: SimpleNamespace) -> None:
    """Against the mean of versions drawn in each phase, told one by one."""
    for capacity in (1, 2, 5, 40):
        means = [np.mean([phase - v for v in range(40) if 0 <= phase - v < capacity]) for phase in range(40)]
        assert study.fit_lag_models.uniform_mean(capacity, 40) == pytest.approx(np.mean(means))
        share = np.mean(means) / 39
        lags = {"0": round(1e6 * (1 - share)), "39": round(1e6 * share)}
        assert study.fit_lag_models.equal_mean(store_runs(lags)) == capacity
    assert study.fit_lag_models.mean_lag(store_runs({"0": 1, "3": 3})) == 2.25
    assert study.fit_lag_models.histogram(store_runs({"2": 1, "0": 3})) == [0.75, 0.0, 0.25]


@pytest.mark.parametrize("seed", range(4))
def test_differences_are_welchs_or_paired(study: SimpleNamespace, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = rng.normal(0.02 * seed, 0.1, 7), rng.normal(0, 0.03, 6)
    found = study.compare.difference(one, other)
    welch = stats.ttest_ind(one, other, equal_var=False)
    assert found.wide == pytest.approx(tuple(welch.confidence_interval(0.95)))
    assert (found.p, found.runs) == (pytest.approx(welch.pvalue), (7, 6))

    def largest(bound: float) -> float:
        """The larger p of the two one-sided tests."""
        above = stats.ttest_ind(one + bound, other, equal_var=False, alternative="greater").pvalue
        below = stats.ttest_ind(one - bound, other, equal_var=False, alternative="less").pvalue
        return float(max(above, below))

    assert found.p_equivalence == pytest.approx(largest(study.compare.MARGIN))
    # Two one-sided tests at 5 % hold for the smallest margin, and for none below it.
    assert largest(1.001 * found.margin) < 0.05 < largest(0.999 * found.margin)
    mean = study.compare.interval(one)
    assert mean == pytest.approx(stats.t.interval(0.95, 6, one.mean(), stats.sem(one)))
    paired = study.compare.difference(one[:6], other, by_seed=True)
    assert paired.p == pytest.approx(stats.ttest_rel(one[:6], other).pvalue)
    assert study.compare.difference([1.0], [1.0, 2.0]) is None and study.compare.interval([1.0]) == (1.0, 1.0)
    assert study.compare.difference([1.0, 1.0], [2.0, 2.0]) is None


@pytest.mark.parametrize("seed", range(4))
def test_the_distance_of_histograms_is_wassersteins(study: SimpleNamespace, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(6))
    expected = stats.wasserstein_distance(range(3), range(6), a, b)
    assert study.compare.distance(a.tolist(), b.tolist()) == pytest.approx(expected)
    assert study.compare.distance(b.tolist(), a.tolist()) == pytest.approx(expected)


SHIFT = {"recorded": 0.0, "same seed": 0.0, "fresh seed": 0.01, "pipeline": -0.5, "uniform": 0.02}


@pytest.fixture(scope="module")
def frame(study: SimpleNamespace) -> pd.DataFrame:
    """Learning gains 100 without lag; lag takes 20 of that, but gives 40 to SPO, and nothing to VACO with few actors; a
    pipeline costs half of the gain more."""
    rows = []
    noise = np.random.default_rng(0).normal(0, 1, 1000).tolist()
    for seed, method in product(range(4), study.design.METHODS):
        base = {"task": "Hopper", "method": method, "seed": seed, "untrained": 20.0, "capacity": 3, "id": ""}
        base |= {"filtered": 0.25 if method == "vaco" else np.nan}
        plain = {"load": "", "way": "on-policy", "mean_lag": 0.0, "lags": [1.0], "bits": False, "alike": False}
        rows.append(base | plain | {"score": 120.0 + noise.pop(), "area": 0.0})
        rows.append(rows[-1] | {"seed": seed + study.design.FRESH, "score": 120.0 + noise.pop(0)})
        for load, way in product(study.design.HOPPER.loads, study.design.VARIANTS):
            lost = -40.0 if method == "spo" else 0.0 if (method, load) == ("vaco", "few actors") else 20.0
            score = 120.0 - lost + 100 * SHIFT[way] + 0.3 * noise.pop()
            lags = [0.0, 1.0] if way in ("recorded", "same seed", "fresh seed") else [0.5, 0.0, 0.5]
            rows.append(
                base
                | {
                    "load": load,
                    "way": way,
                    "score": score,
                    "area": 0.0,
                    "mean_lag": 1.0,
                    "lags": lags,
                    "bits": way == "same seed",
                    "alike": True,
                }
            )
    return pd.DataFrame(rows)


def test_methods_are_compared_apart_and_words_follow(study: SimpleNamespace, frame: pd.DataFrame) -> None:
    rows = study.compare.comparisons(frame)
    assert len(rows) == 3 * 3 * 5
    found = {(c.method, c.load, c.first, c.second): c.difference for c in rows}
    gain = frame.loc[frame["way"] == "on-policy", "score"].mean() - 20.0
    mine = frame[(frame["method"] == "vaco") & (frame["load"] == "full queue")].groupby("way")["score"]
    d = found["vaco", "full queue", "pipeline", "recorded"]
    assert d.runs == (4, 4) and d.mean == pytest.approx((mine.mean()["pipeline"] - mine.mean()["recorded"]) / gain)
    assert d.words == "lower"
    lag = {(method, load): d.words for (method, load, _, second), d in found.items() if second == "on-policy"}
    assert lag["ppo_clip", "full queue"] == "lower" and lag["spo", "full queue"] == "higher", "the mean of three is 0"
    assert lag["vaco", "few actors"] == "the same within the margin"
    assert found["spo", "slow actors", "uniform", "fresh seed"].equivalent
    shared = frame[(frame["method"] == "spo") & (frame["load"] == "few actors")].pivot(columns="way", index="seed")[
        "score"
    ]
    expected = stats.ttest_rel(shared["uniform"], shared["fresh seed"]).pvalue
    assert found["spo", "few actors", "uniform", "fresh seed"].p == pytest.approx(expected), "they share their seeds"
    expected = stats.ttest_ind(shared["uniform"], shared["recorded"], equal_var=False).pvalue
    assert found["spo", "few actors", "uniform", "recorded"].p == pytest.approx(expected), "they do not"


def test_the_tests_of_the_page_are_corrected_together(study: SimpleNamespace, frame: pd.DataFrame) -> None:
    rows = [c.difference for c in study.compare.comparisons(frame)]
    for of, corrected in (("p", "holm"), ("p_equivalence", "holm_equivalence")):
        expected = multipletests([getattr(d, of) for d in rows], method="holm")[1]
        assert [getattr(d, corrected) for d in rows] == pytest.approx(list(expected))
    barely = study.compare.Difference(0.3, (0.1, 0.5), 0.45, (5, 5), p=0.01, p_equivalence=0.9, holm=0.2)
    assert not barely.different and barely.words == "cannot tell"


def test_lags_are_compared_cell_by_cell(study: SimpleNamespace, frame: pd.DataFrame) -> None:
    found = study.compare.lags(frame).set_index(["load", "way"])
    assert found.loc[("full queue", "uniform"), "distance"] == pytest.approx(1.0)
    assert found.loc[("full queue", "fresh seed"), "distance"] == 0.0
    assert found.loc[("full queue", "uniform"), "histogram"] == [0.5, 0.0, 0.5]


@pytest.mark.long
def test_the_page_and_its_pictures(study: SimpleNamespace, frame: pd.DataFrame) -> None:
    hopper = study.design.Study("real_lag", "Is a simulated lag the real one?", (study.design.HOPPER,), 4)
    said = study.page.page(frame, hopper, 4)
    assert f"{len(frame)} of {len(frame)} runs" in said
    assert "36 of 36 runs had the recorded metrics bit for bit" in said and "on another" not in said
    elsewhere = frame.assign(alike=frame["seed"] > 0, bits=frame["bits"] & (frame["seed"] > 0))
    moved = study.page.page(elsewhere, hopper, 4)
    assert "27 of 27 runs had the recorded metrics bit for bit" in moved
    assert "Another 9 were recorded on one kind of processor and replayed on another" in moved
    tables = said.split("### ")[1:]
    assert [text.split("\n")[0] for text in tables] == ["PPO-clip", "VACO", "SPO"]
    assert all("| Hopper | full queue | fitted pipeline − recorded | −5" in text for text in tables)
    pipeline = "**fitted pipeline against recorded** (the fitted pipeline in place of the real one)"
    assert f"{pipeline}: lower: all 9" in said
    assert "PPO-clip, full queue on Hopper\\*" in said and "VACO, few actors on Hopper\\*" not in said
    assert "; no effect is seen on VACO (+0% [−" in said and "is shown for PPO-clip and SPO alone; without one," in said
    assert (
        "*Full queue:* lag changes PPO-clip by −20% [" in said
        and "is shown for PPO-clip, VACO and SPO; without one," in said
    )
    assert "In 8 of 9 combinations" in said
    assert "no upper bound" in said
    assert "Its filter acts in this share of the minibatches under lag: 25.0% on Hopper." in said
    assert "The question is our own, not a paper's. Its tests were written on 2026-11-22" in said
    assert "the rest still to be made" in study.page.page(frame, hopper, 5)
    begun = study.page.page(frame[frame["seed"] == 0], hopper, 4)
    assert begun.count("No two ways have two runs each to compare yet, so nothing is tested.") == 2
    for draw in (study.figure.draw_lags, study.figure.draw_scores):
        wide, narrow = draw(frame), draw(frame, 3.5)
        assert wide.startswith(b"\x89PNG") and draw(frame) == wide != narrow


@pytest.mark.long
def test_every_published_run_is_one_that_the_study_makes(study: SimpleNamespace) -> None:
    found = published_runs()
    there = {run_id for run_id, run in found.items() if run.seed in (0, study.design.FRESH)}
    frame = study.collect.table(found, study.design.STUDIES["real_lag"].cells(range(1)))
    assert set(frame["id"]) == there
    replays = frame[frame["way"] == "same seed"]
    assert replays["alike"].any()
    assert replays["bits"][replays["alike"]].all(), "on one kind of machine, a replay is the recorded run"


def test_every_run_of_the_study_is_planned(study: SimpleNamespace) -> None:
    cells = study.design.STUDIES["real_lag"].cells(range(5))
    assert len(cells) == 2 * 3 * 3 * 5 and len({cell.recording().run_id for cell in cells}) == len(cells)
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells), "seed by seed"
    without_lag = {run.run_id: run.spec.seed for cell in cells for run in cell.on_policy()}
    assert len(without_lag) == 2 * 3 * 10 and set(without_lag.values()) == {*range(5), *range(100, 105)}
