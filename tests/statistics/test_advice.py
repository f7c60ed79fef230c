"""Advice: recommended caps, frontier, logs, refusals, missing seeds."""

from __future__ import annotations

import re
import shlex
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from results_helper import write_run

from staleharness.commands.shared.advise_output import as_text
from staleharness.errors import UserError
from staleharness.figures.registry import sheet
from staleharness.figures.score_retention import caption
from staleharness.lag import parse_lag
from staleharness.logs.lag_log_reader import LagLog, read_log
from staleharness.logs.log_statistics import Drift
from staleharness.pipeline.pipeline_summary import CapResult
from staleharness.statistics.advice import Advice, advise
from staleharness.statistics.log_advice_text import by_share, training_command
from staleharness.statistics.results import Results, load
from staleharness.statistics.significance_and_power import power, seeds_needed

LAGS = {1: 0.0, 4: 2.0, 16: 8.0}
CAPS = [
    CapResult(0, 0.0, 100.0, "admission", "slots stand idle", 0.0),
    CapResult(1, 1.0, 50.0, "admission", "slots stand idle", 1.0),
    CapResult(4, 4.0, 20.0, "generation", "the slots work", 4.0),
    CapResult(64, 40.0, 10.0, "trainer", "the trainer works", 40.0),
]


def write(root: Path, label: str, scores: tuple[float, float, float], env: str = "word-problems") -> None:
    """Five seeds with a spread of 0.01 at each lag of `LAGS`."""
    for (k, lag), score in zip(LAGS.items(), scores, strict=True):
        summary = {"lag_mean": lag, "gradient_lag_mean": 10 * lag}
        for seed in range(5):
            options = {"kind": "language", "env": env, "capacity": k, "said": {"summary": summary}}
            write_run(root, label, seed, deterministic=score + 0.005 * (seed - 2), **options)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Results:
    root = tmp_path_factory.mktemp("stored")
    write(root, "vaco", (0.9, 0.9, 0.9))  # takes everything
    write(root, "spo", (0.95, 0.95, 0.38))  # 5 % are lost at 2 + 6 / 12
    write(root, "impala", (0.8, 0.4, 0.2))  # takes nothing
    return load(root)


def row(found: Advice, algorithm: str) -> dict[str, Any]:
    return next(m.row for m in found.methods if m.curve.algorithm == algorithm)


def test_budgets_are_numbers_or_bounds(runs: Results) -> None:
    found = advise(runs)
    assert row(found, "vaco")["budget"] == {"lag": 8.0, "kind": "at least"}
    assert row(found, "impala")["budget"] == {"lag": 2.0, "kind": "below"}
    budget = row(found, "spo")["budget"]
    assert budget == {"lag": pytest.approx(2.5), "kind": "="}
    assert found.frontier == [] and found.refusals == [] and found.envs == ["word-problems"]
    assert row(found, "spo")["gradient_steps_per_phase"] == pytest.approx(10)


def test_recommended_cap_is_the_fastest_within_budget_and_data(runs: Results) -> None:
    found = advise(runs, caps=CAPS)
    taken = {m.curve.algorithm: m.row["recommended"]["cap"] for m in found.methods}
    # vaco keeps everything at all measured lags, and no lag of 40 was measured; spo's budget is 2.5; impala keeps 75 %
    # at lag 1 if the line is believed, but nothing was measured there
    assert taken == {"vaco": 4, "spo": 1, "impala": 0}
    beyond = row(found, "vaco")["caps"][3]
    assert beyond["kept"] is None and beyond["refused"] == "lag 40.0 is beyond the data (largest measured: 8.0)"
    assert row(found, "spo")["caps"][2]["score"] == pytest.approx(0.95 - 0.57 / 3)
    assert "64" not in found.methods[0].scores


def test_no_cap_is_recommended_below_the_smallest_measured_lag(tmp_path: Path) -> None:
    write(tmp_path, "vaco", (0.9, 0.84, 0.5))
    log = LagLog("run.csv", "lag", "versions", np.array([1.0]), np.ones(1), "", 1)
    (method,) = advise(load(tmp_path), caps=CAPS, log=log).methods
    at_one = method.row["caps"][1]
    assert at_one["kept_low"] > 0.95 and method.row["recommended"]["cap"] == 0
    assert method.row["log"]["verdict"] == "cannot tell"


def test_frontier_names_the_best_method_at_each_speed(runs: Results) -> None:
    found = advise(runs, caps=CAPS)
    assert [(p["cap"], p["algorithm"], p["binds"]) for p in found.frontier] == [
        (4, "vaco", "generation"),
        (1, "spo", "admission"),
    ]
    assert [p["speed_up"] for p in found.frontier] == [5, 2]
    assert [p["cannot_be_told_from"] for p in found.frontier] == [[], []]
    assert found.frontier[0]["score_low"] < 0.9 < found.frontier[0]["score_high"]


def test_methods_with_equal_scores_are_listed_as_indistinguishable(tmp_path: Path) -> None:
    for label in ("vaco", "spo"):
        write(tmp_path, label, (0.9, 0.9, 0.9))
    (first,) = advise(load(tmp_path), caps=CAPS).frontier
    (other,) = first["cannot_be_told_from"]
    assert {first["algorithm"], other["algorithm"]} == {"vaco", "spo"} and other["seeds_to_tell"] is None


def test_frontier_gives_the_seeds_that_separate_two_methods(tmp_path: Path) -> None:
    write(tmp_path, "vaco", (0.9, 0.9, 0.9))
    write(tmp_path, "spo", (0.896, 0.896, 0.896))
    (first,) = advise(load(tmp_path), caps=CAPS[:3]).frontier
    (other,) = first["cannot_be_told_from"]
    n = seeds_needed(0.004 / (0.005 * np.sqrt(2.5)))
    assert (first["algorithm"], other) == ("vaco", {"algorithm": "spo", "seeds_to_tell": n}) and n > 5


@pytest.mark.parametrize(
    "lag, unit, updates, at, verdicts",
    [
        (1.0, "versions", None, 1.0, ("kept", "kept", "cannot tell")),
        (5.0, "versions", None, 5.0, ("kept", "lost", "lost")),
        (50.0, "gradient_steps", None, 5.0, ("kept", "lost", "lost")),
        (5.0, "versions", 4.0, 2.0, ("kept", "kept", "lost")),
        (9.0, "versions", None, 9.0, ("beyond the data",) * 3),
        (0.0, "versions", None, 0.0, ("kept",) * 3),
    ],
)
def test_log_has_a_verdict_from_its_mean_lag(
    runs: Results, lag: float, unit: str, updates: float | None, at: float, verdicts: tuple[str, ...]
) -> None:
    log = LagLog("run.csv", "lag", unit, np.array([lag]), np.ones(1), "", 1)
    found = advise(runs, log=log, updates=updates)
    places = [row(found, name)["log"] for name in ("vaco", "spo", "impala")]
    assert [p["lag"] for p in places] == pytest.approx([at] * 3)
    assert tuple(p["verdict"] for p in places) == verdicts


def log_of(lag: float, **values: Any) -> LagLog:
    return LagLog("run.csv", "lag", "versions", np.array([lag]), np.ones(1), "", 1, **values)


def test_a_log_over_rows_is_compared_with_means_over_rows(tmp_path: Path) -> None:
    for k, lag in LAGS.items():
        summary = {"lag_mean": lag, "gradient_lag_mean": 10 * lag, "lags/start": lag / 2}  # long rows are old
        for seed in range(5):
            options = {"kind": "language", "env": "word-problems", "capacity": k, "said": {"summary": summary}}
            write_run(tmp_path, "spo", seed, deterministic={1: 0.95, 4: 0.95, 16: 0.38}[k] + 0.001 * seed, **options)
    stored = load(tmp_path)
    rows, decisions = (
        row(advise(stored, log=log_of(lag, over=over)), "spo")["log"]
        for lag, over in ((2.5, "rows"), (5.0, "decisions"))
    )
    assert rows["lag"] == decisions["lag"] == 5.0 and rows["row_lag"] == decisions["row_lag"] == 2.5
    assert rows["kept"] == decisions["kept"] and rows["verdict"] == "lost"
    assert row(advise(stored, log=log_of(2.5, over="decisions")), "spo")["log"]["lag"] == 2.5
    assert "over rows, as the log's is" in " ".join(advise(stored, log=log_of(2.5)).notes)


def test_the_unit_and_a_drift_are_tried_both_ways(runs: Results) -> None:
    found = advise(runs, log=log_of(5.0, drift=Drift(1.0, 8.0)))
    place = row(found, "spo")["log"]
    assert [(p["updates"], p["lag"], p["verdict"]) for p in place["other_updates"]] == [
        (1.0, 0.5, "kept"),
        (4.0, 2.0, "kept"),
        (16.0, 8.0, "lost"),
    ]
    assert place["last_quarter"]["lag"] == 8.0 and place["verdict"] == "lost"
    text = " ".join(found.conclusion("word-problems"))
    assert "1 of 3 methods keeps at least 95% of the score without lag: vaco 100%" in text
    assert "these lose more: spo 70%, impala 38%" in text
    assert "counts a version of the log as a phase of these runs, 10 gradient steps" in text
    assert "as 4 gradient steps: 2 keep enough, 1 lose more" in text.replace("As", "as")
    assert "drifts, from 1.00 to 8.00; at that of the last quarter: 1 keep enough, 2 lose more" in text
    with_updates = row(advise(runs, log=log_of(5.0), updates=4.0), "spo")["log"]
    assert with_updates["updates"] == 4.0 and [p["updates"] for p in with_updates["other_updates"]] == [1.0, 16.0, None]


@pytest.mark.parametrize("kept", [0.9, 0.2])  # before and behind those that count their gradient steps
def test_methods_without_gradient_steps_are_no_part_of_other_units(runs: Results, tmp_path: Path, kept: float) -> None:
    for k, lag in LAGS.items():
        for seed in range(5):
            options = {
                "kind": "language",
                "env": "word-problems",
                "capacity": k,
                "said": {"summary": {"lag_mean": lag}},
            }
            write_run(tmp_path, "a3po", seed, deterministic=0.9 if k == 1 else kept, **options)
    found = advise(Results.of([*runs, *load(tmp_path)]), log=log_of(5.0))
    assert row(found, "a3po")["log"]["other_updates"] == []
    assert "as 4 gradient steps: 2 keep enough, 1 lose more" in " ".join(found.conclusion("word-problems"))


def test_the_share_to_keep_is_told_as_it_is_given(runs: Results) -> None:
    found = advise(runs, log=log_of(5.0), keep=0.975)
    assert "keeps at least 97.5% of" in found.conclusion("word-problems")[0] and "dashed: 97.5%" in caption(found)
    text = "\n".join(as_text(found, "here"))
    assert "budget 97.5%" in text and "seeds for -2.5%" in text


def test_methods_are_sorted_by_what_they_keep(runs: Results) -> None:
    assert [m.curve.algorithm for m in by_share(advise(runs, log=log_of(5.0)).methods)] == ["vaco", "spo", "impala"]
    beyond = advise(runs, log=log_of(9.0))
    assert [m.curve.algorithm for m in by_share(beyond.methods)] == ["impala", "spo", "vaco"]
    (head, *_, far, _) = beyond.conclusion("word-problems")
    assert "no method is shown to keep 95%" in head and far.startswith("beyond the largest lag measured for impala")


@pytest.mark.parametrize(
    "unit, updates, batch, command",
    [
        ("versions", None, None, "K=6 LAG='log:run.csv'"),
        ("versions", None, 64.0, "K=6 LAG='log[file=run.csv,per_phase=64]'"),
        ("versions", 4.0, None, "K=3 LAG='log[file=run.csv,per_phase=2.5]'"),
        ("gradient_steps", None, None, "K=2 LAG='log[file=run.csv,per_phase=10]'"),
    ],
)
def test_the_command_trains_under_the_lags_of_the_verdicts(
    runs: Results, unit: str, updates: float | None, batch: float | None, command: str
) -> None:
    log = LagLog("run.csv", "lag", unit, np.array([5.0]), np.ones(1), "", 1)
    found = advise(runs, log=log, updates=updates)
    assert command in training_command("word-problems", found.methods, log, "run.csv", None, batch)


@pytest.mark.parametrize(
    "text, columns, unit, settings",
    [
        ("age\n9\n", "lag=age", None, {}),
        ("off_policy/mean,lag\n9,1\n", "lag=off_policy/mean", None, {}),
        ("lag\n9\n", None, None, {"updates": 30.0}),  # 1/3 of a version in a phase
        ("stats/lag_mean\n9\n", None, None, {"batch": 1.0}),
        ("train/version_diff_avg\n9\n", None, "versions", {}),
    ],
)
def test_the_command_is_one_that_a_sweep_takes(
    runs: Results, tmp_path: Path, text: str, columns: str | None, unit: str | None, settings: dict[str, float]
) -> None:
    file = tmp_path / "run.csv"
    file.write_text(text)
    log = read_log(str(file), columns, unit, settings.get("batch"))
    found = advise(runs, log=log, updates=settings.get("updates"))
    command = training_command("word-problems", found.methods, log, str(file), columns, settings.get("batch"))
    k, lag = re.findall(r"K=(\d+) LAG='(.*)' ALGO=", command)[0]
    assert parse_lag(lag, int(k)).probabilities(99, int(k)) == {100 - int(k): pytest.approx(1.0)}


@pytest.mark.parametrize(
    "lags, weights, command",
    [
        (
            [5.0, 1e15],
            [3.0, 1.0],
            "K=6 LAG='log[file=run.csv,tail=cut]' ALGO=... # leaves out 25% of the lags, which no",
        ),
        ([999_999.0], [1.0], "K=1000000 LAG='log:run.csv'"),
        ([1e6, 1e15], [1.0, 1.0], "no buffer holds them: the least is 1,000,000 phases, and K is at most 1,000,000"),
    ],
)
def test_the_command_has_no_more_versions_than_a_run(
    runs: Results, lags: list[float], weights: list[float], command: str
) -> None:
    log = LagLog("run.csv", "lag", "versions", np.array(lags), np.array(weights), "", 1)
    found = advise(runs, log=log)
    assert command in training_command("word-problems", found.methods, log, "run.csv", None, None)


def test_updates_are_of_versions(runs: Results) -> None:
    log = LagLog("sf.csv", "lag", "gradient_steps", np.array([5.0]), np.ones(1), "", 1)
    with pytest.raises(UserError, match=r"LOG=sf\.csv are in gradient steps, so leave UPDATES out"):
        advise(runs, log=log, updates=3.0)
    with pytest.raises(UserError, match=r"UPDATES counts gradient steps per version of a pipeline or log: give LOG"):
        advise(runs, updates=3.0)
    assert advise(runs, log=log, caps=CAPS, updates=3.0).settings["updates"] == 3.0


def test_the_command_quotes_a_name_with_a_quote(runs: Results) -> None:
    log = LagLog("it's.csv", "lag", "versions", np.array([1.0]), np.ones(1), "", 1)
    command = training_command("word-problems", advise(runs, log=log).methods, log, "it's.csv", None, None)
    assert shlex.split(command)[-2] == "LAG=log:it's.csv"


@pytest.mark.parametrize(
    "file, columns", [("my run.csv", None), ("run.csv", "lag=my lag"), ("run.csv", "lag=a,count=n")]
)
def test_a_log_that_no_lag_model_can_name_has_no_command(runs: Results, file: str, columns: str | None) -> None:
    log = LagLog(file, columns.split(",")[0][4:] if columns else "lag", "versions", np.array([5.0]), np.ones(1), "", 1)
    found = advise(runs, log=log)
    assert "rename them" in training_command("word-problems", found.methods, log, file, columns, None)


def test_gradient_steps_need_runs_that_recorded_them(tmp_path: Path) -> None:
    for k in (1, 4):
        for seed in range(3):
            write_run(tmp_path, "vaco", seed, capacity=k)
    log = LagLog("run.csv", "lag", "gradient_steps", np.ones(1), np.ones(1), "", 1)
    with pytest.raises(UserError, match="its runs do not say how many gradient steps a phase has"):
        advise(load(tmp_path), log=log)


def test_method_without_learning_at_k1_is_refused_alone(tmp_path: Path) -> None:
    write(tmp_path, "vaco", (0.9, 0.9, 0.9))
    write(tmp_path, "spo", (0.001, 0.0, 0.0))
    found = advise(load(tmp_path))
    assert [m.curve.algorithm for m in found.methods] == ["vaco"]
    (refusal,) = found.refusals
    assert refusal.algorithm == "spo" and "are not clearly above zero (a score of 0)" in refusal.reason


def test_power_is_in_the_rows(runs: Results) -> None:
    spo = row(advise(runs), "spo")
    assert spo["spread"] == pytest.approx(0.005 * np.sqrt(2.5))
    assert spo["loss_to_see"] == pytest.approx(0.05 * 0.95)
    assert spo["seeds_to_see_it"] == 2 and spo["seeds_checked"] == pytest.approx(
        power(2, 0.0475 / spo["spread"]), abs=0.1
    )
    same, far = spo["points"][1:]
    assert same["p"] == pytest.approx(1) and same["seeds_to_see_it"] is None
    assert far["p"] < 1e-6 and far["seeds_to_see_it"] == 2


@pytest.mark.parametrize(
    "options, words",
    [({"keep": 1.0}, "KEEP=1 must be above 0 and below 1"), ({"updates": 0.0}, "UPDATES=0 must be above 0")],
    ids=["keep", "updates"],
)
def test_options_out_of_range_are_refused(runs: Results, options: dict[str, float], words: str) -> None:
    with pytest.raises(UserError, match=words):
        advise(runs, **options)


def results_with(root: Path, stale: int) -> Results:
    for k, lag, seeds in ((1, 0.0, 5), (16, 8.0, stale)):
        for seed in range(seeds):
            said: Any = {"summary": {"lag_mean": lag, "gradient_lag_mean": 10 * lag}}
            task: Any = {"kind": "language", "env": "word-problems", "capacity": k, "said": said}
            write_run(root, "vaco", seed, deterministic=0.9 + 0.01 * seed, phases=4, **task)
    return load(root)


def test_advice_notes_settings_with_fewer_seeds(tmp_path: Path) -> None:
    found = advise(results_with(tmp_path / "three", 3))
    assert found.methods[0].row["budget"]["kind"] == "at least"
    assert any(
        note.startswith("fewer seeds than elsewhere: vaco on word-problems at K=16 (3 of 5); runs that diverged")
        for note in found.notes
    )
    assert not any("fewer seeds" in note for note in advise(results_with(tmp_path / "five", 5)).notes)


@pytest.mark.parametrize("zero", [float("nan"), float("inf"), float("-inf")])
def test_zero_must_be_finite(tmp_path: Path, zero: float) -> None:
    """With an infinite zero, every method would keep 100 % at any lag."""
    with pytest.raises(UserError, match=f"ZERO={zero:g} is not a finite number, worst or auto"):
        advise(results_with(tmp_path, 5), zero=zero)


@pytest.mark.parametrize(
    ("problem", "said"), [("Diverged", ["1 run diverged and is left out"]), ("Died", []), (None, [])]
)
def test_diverged_runs_have_a_note(tmp_path: Path, problem: str | None, said: list[str]) -> None:
    runs = results_with(tmp_path, 4)
    lost = {"label": "vaco", "capacity": 16, "env": "word-problems", "seed": 4, "problem": problem}
    notes = runs.table([lost], reps=50, engine="quick").notes
    assert [note.partition(":")[0] for note in notes if "diverged and" in note] == said


def test_capacity_without_runs_has_no_column(tmp_path: Path) -> None:
    for k in (1, 4):
        for minibatches in (1, 2):
            label = f"vaco[minibatches={minibatches}]"
            write_run(tmp_path, label, 0, capacity=k, phases=4, settings={"minibatches": minibatches})
    results = load(tmp_path)
    lost = {"label": "vaco[minibatches=1]", "capacity": 16, "env": "Hopper-v5", "seed": 0, "problem": "Diverged"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = sheet("backward_forward", results, results.table([lost], reps=50, engine="quick"))
    assert [column.rpartition(", ")[2] for column in made.blocks[0].columns] == ["K = 1", "K = 4"]
