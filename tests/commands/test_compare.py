"""Two results folders side by side: what is matched, what the numbers are, and what a mistake gets."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Cli
from places import ROOT
from results_helper import write_run
from rliable import metrics
from scipy import stats as scipy_stats

from staleharness.commands import compare
from staleharness.errors import UserError
from staleharness.statistics import bootstrap, result_comparison, run_set_matching
from staleharness.statistics.results import load
from staleharness.store.run_grid import Cell
from staleharness.store.store import StoredRun

BUNDLE = ROOT / "results" / "reference" / "staleness_halfcheetah"
ACCURACY: dict[str, Any] = {"kind": "language", "settings": {"minibatches": 4}}


def side(root: Path, values: list[float], label: str = "vaco", first_seed: int = 0, **given: Any) -> list[StoredRun]:
    return [write_run(root, label, first_seed + i, sampled=v, phases=3, **given) for i, v in enumerate(values)]


# --- which cells, which runs


def test_cells_match_by_algorithm_capacity_and_environment(tmp_path: Path):
    a = [*side(tmp_path / "a", [1.0]), *side(tmp_path / "a", [1.0], "spo"), *side(tmp_path / "a", [1.0], capacity=1)]
    b = [*side(tmp_path / "b", [2.0]), *side(tmp_path / "b", [2.0], "spo", env="Ant-v5")]
    found = run_set_matching.match(a, b)
    assert list(found.cells) == [Cell("vaco", 8, "Hopper-v5")]
    assert found.notes[:2] == [
        "only A has vaco on Hopper-v5 at K=1, spo on Hopper-v5 at K=8",
        "only B has spo on Ant-v5 at K=8",
    ]


def test_a_long_list_of_lonely_cells_is_cut(tmp_path: Path):
    a = [run for k in range(1, 17) for run in side(tmp_path / "a", [1.0], capacity=k)]
    (note,) = run_set_matching.match(a, side(tmp_path / "b", [1.0], capacity=16)).notes
    assert note.endswith("at K=12 and 3 more")


def test_without_a_shared_cell_the_error_says_what_each_side_has(tmp_path: Path):
    a = [*side(tmp_path / "a", [1.0]), *side(tmp_path / "a", [1.0], "spo", capacity=16)]
    with pytest.raises(UserError) as error:
        run_set_matching.match(a, side(tmp_path / "b", [1.0], "impala", env="Ant-v5", capacity=1))
    assert str(error.value) == (
        "A and B share no cell: A has spo, vaco × Hopper-v5 × K=8, K=16; B has impala × Ant-v5 × K=1"
    )


def test_settings_on_both_sides_of_a_cell_are_compared(tmp_path: Path):
    mine = side(tmp_path / "a", [1.0, 2.0], settings={"num_steps": 64})
    other = side(tmp_path / "a", [7.0, 8.0], settings={"num_steps": 256})
    found = run_set_matching.match([*mine, *other], side(tmp_path / "b", [3.0, 4.0], settings={"num_steps": 64}))
    ((a, _),) = found.cells.values()
    assert [r.id for r in a] == [r.id for r in mine]
    assert found.notes == ["A has 2 runs of vaco on Hopper-v5 at K=8 with settings that B lacks (left out)"]


def test_settings_that_a_side_cannot_match_are_an_error(tmp_path: Path):
    b = [r for n in (64, 256) for r in side(tmp_path / "b", [1.0], settings={"num_steps": n})]
    with pytest.raises(UserError, match=r"^B: two runs are vaco on Hopper-v5 at K=8, seed 0 .*num_steps"):
        run_set_matching.match(side(tmp_path / "a", [1.0]), b)


def test_n_is_part_of_a_cell_where_one_side_swept_it(tmp_path: Path):
    swept = [
        write_run(tmp_path / "a", f"grpo N={n}", 0, sampled=n / 10, kind="language", settings={"minibatches": n})
        for n in (1, 4)
    ]
    (single,) = side(tmp_path / "b", [0.5], "grpo", **ACCURACY)
    found = run_set_matching.match(swept, [single])
    assert list(found.cells) == [Cell("grpo N=4", 8, "Hopper-v5")]
    assert found.notes[0] == "only A has grpo N=1 on Hopper-v5 at K=8"
    assert list(run_set_matching.match([single], [single]).cells) == [Cell("grpo", 8, "Hopper-v5")]


def test_each_difference_of_spec_and_fingerprint_is_a_line(tmp_path: Path):
    a = side(tmp_path / "a", [1.0, 2.0], settings={"learning_rate": 3e-4, "hyper": {"delta": 0.1}})
    b = side(tmp_path / "b", [1.0], settings={"learning_rate": 1e-4, "hyper": {"delta": 0.1, "kl": "auto"}})
    b += side(tmp_path / "b", [2.0], first_seed=1, settings={"learning_rate": 3e-4}, fingerprint={"torch": "2.14.0"})
    assert run_set_matching.match(a, b).notes == [
        "set differently: learning_rate = 0.0003 in A, 0.0001 (1 run) or 0.0003 (1 run) in B",
        "set differently: vaco.delta = 0.1 in A, 0.1 (1 run) or not recorded (1 run) in B",
        "set differently: vaco.kl = not recorded in A, auto (1 run) or not recorded (1 run) in B",
        "made differently: torch = 2.13.0 in A, 2.13.0 (1 run) or 2.14.0 (1 run) in B",
    ]


def test_values_swapped_between_cells_are_a_difference(tmp_path: Path):
    a, b = (
        [r for env, lr in zip("EF", rates, strict=True) for r in side(root, [1.0], env=env, settings={"lr": lr})]
        for root, rates in ((tmp_path / "a", (1, 2)), (tmp_path / "b", (2, 1)))
    )
    assert run_set_matching.match(a, b).notes == [
        "set differently: lr = 1 (1 run) or 2 (1 run) in A, 1 (1 run) or 2 (1 run) in B"
    ]
    assert run_set_matching.match(a, a).notes == []


def test_a_difference_in_spec_and_fingerprint_is_said_once(tmp_path: Path):
    a = side(tmp_path / "a", [1.0, 2.0, 3.0], settings={"threads": 1}, fingerprint={"threads": 1})
    b = side(tmp_path / "b", [1.0, 2.0], settings={"threads": 2}, fingerprint={"threads": 2})
    assert run_set_matching.match(a, b).notes == ["set differently: threads = 1 in A, 2 in B"]
    assert run_set_matching.match(a, a[:2]).notes == []


def test_runs_pair_by_seed_where_each_side_has_one_setting(tmp_path: Path):
    a = side(tmp_path / "a", [1.0, 2.0])
    for name, b, paired in (
        ("other settings throughout", side(tmp_path / "b", [3.0, 4.0], settings={"lr": 1}), True),
        ("other seeds", side(tmp_path / "c", [3.0, 4.0], first_seed=1), False),
        ("more seeds", side(tmp_path / "d", [3.0, 4.0, 5.0]), False),
        (
            "mixed settings",
            side(tmp_path / "e", [3.0]) + side(tmp_path / "e", [4.0], first_seed=1, settings={"lr": 1}),
            False,
        ),
    ):
        assert run_set_matching.is_paired((a, b)) == paired, name


# --- the numbers


def exact_interval(values: list[float]) -> tuple[float, float]:
    """The two percentiles of a bootstrap distribution given as all its equally likely values."""
    low, high = np.percentile(values, [2.5, 97.5], method="inverted_cdf")
    return float(low), float(high)


def test_a_paired_interval_is_that_of_all_resamples_of_the_seeds(tmp_path: Path):
    x, y = [1.0, 50.0, 7.0], [2.0, 55.0, 4.0]
    (cell,) = result_comparison.compare_runs(side(tmp_path / "a", x), side(tmp_path / "b", y)).cells
    differences = np.subtract(y, x)
    every = [float(np.mean(d)) for d in itertools.product(differences, repeat=3)]  # 27, slowly on purpose
    assert cell["seeds"] == "paired" and cell["difference"] == pytest.approx(np.mean(differences))
    assert (cell["difference_low"], cell["difference_high"]) == pytest.approx(exact_interval(every))


def test_an_unpaired_interval_resamples_both_sides(tmp_path: Path):
    x, y = [1.0, 9.0, 7.0, 3.0], [11.0, 5.0, 8.0]  # no value of `every` is a percentile by less than 3 errors
    (cell,) = result_comparison.compare_runs(
        side(tmp_path / "a", x), side(tmp_path / "b", y, first_seed=10), reps=20_000
    ).cells
    means = [[float(np.mean(d)) for d in itertools.product(v, repeat=len(v))] for v in (x, y)]
    every = [q - p for p in means[0] for q in means[1]]
    assert cell["seeds"] == "independent"
    assert (cell["difference_low"], cell["difference_high"]) == pytest.approx(exact_interval(every))


def test_pairing_makes_a_constant_gain_per_seed_certain(tmp_path: Path):
    x = [10.0, 20.0, 30.0, 40.0, 50.0]
    a = side(tmp_path / "a", x)
    (paired,) = result_comparison.compare_runs(a, side(tmp_path / "b", [v + 1 for v in x])).cells
    (free,) = result_comparison.compare_runs(a, side(tmp_path / "c", [v + 1 for v in x], first_seed=5)).cells
    assert paired["difference_low"] == paired["difference_high"] == pytest.approx(1.0)
    assert free["difference"] == pytest.approx(1.0) and free["difference_low"] < 0 < free["difference_high"]


def test_the_probability_is_mann_whitneys_of_b_over_a(tmp_path: Path):
    x, y = [1.0, 4.0, 4.0, 9.0], [4.0, 8.0, 9.0]
    (cell,) = result_comparison.compare_runs(side(tmp_path / "a", x), side(tmp_path / "b", y)).cells
    u = scipy_stats.mannwhitneyu(y, x).statistic
    assert cell["probability"] == pytest.approx(u / (len(x) * len(y)))
    assert cell["probability"] > 0.5 and cell["difference"] > 0


def test_rows_are_iqms_on_one_scale_for_both_sides(tmp_path: Path):
    # On E the two sides span 0 to 100, on F 10 to 30.
    a = side(tmp_path / "a", [0.0, 50.0], env="E") + side(tmp_path / "a", [10.0, 20.0], env="F")
    b = side(tmp_path / "b", [100.0, 75.0], env="E") + side(tmp_path / "b", [30.0, 15.0], env="F")
    found = result_comparison.compare_runs(a, b)
    (row,) = found.rows
    assert found.settings["constants"] == {"E": [0.0, 100.0], "F": [10.0, 30.0]}
    assert (row["env"], row["n_envs"], row["n_a"], row["scale"]) == ("2 envs", 2, 2, "IQM, minmax")
    assert row["a"] == pytest.approx(np.mean([0.0, 0.5]))  # the middle two of 0, 0.5, 0, 0.5
    assert row["b"] == pytest.approx(np.mean([0.75, 1.0]))  # of 1, 0.75, 1, 0.25
    matrices = np.array([[1.0, 1.0], [0.75, 0.25]]), np.array([[0.0, 0.0], [0.5, 0.5]])
    assert row["probability"] == pytest.approx(metrics.probability_of_improvement(*matrices))
    assert row["difference"] == pytest.approx(row["b"] - row["a"])


@pytest.mark.long
def test_the_interval_over_environments_is_a_slow_bootstrap(tmp_path: Path):
    rng = np.random.default_rng(3)
    x = {"E": rng.normal(0, 1, 5), "F": rng.normal(0, 1, 4)}
    y = {"E": x["E"] + rng.normal(0.5, 0.3, 5), "F": rng.normal(0.5, 1, 6)}  # paired on E, not on F
    a, b = (
        [r for env, v in s.items() for r in side(root, v.tolist(), env=env)]
        for s, root in ((x, tmp_path / "a"), (y, tmp_path / "b"))
    )
    (row,) = result_comparison.compare_runs(a, b, normalise="raw", reps=4000).rows
    draws = []
    for _ in range(4000):
        e = rng.integers(5, size=5)
        left = np.concatenate([x["E"][e], x["F"][rng.integers(4, size=4)]])
        right = np.concatenate([y["E"][e], y["F"][rng.integers(6, size=6)]])
        draws.append(scipy_stats.trim_mean(right, 0.25) - scipy_stats.trim_mean(left, 0.25))
    assert row["seeds"] == "partly paired"
    assert (row["difference_low"], row["difference_high"]) == pytest.approx(exact_interval(draws), abs=0.06)


def test_a_pair_is_resampled_once_within_each_environment(monkeypatch: pytest.MonkeyPatch):
    seen = []

    def interval(statistic: Any, columns: Any, *, name: Any, reps: int) -> tuple[Any, Any]:
        seen.append([len(c) for c in columns])
        point = statistic(*columns)  # every place once: the estimates themselves
        return point, point

    monkeypatch.setattr(result_comparison, "rliable_interval", interval)
    a, b = [np.array([1.0, 2.0]), np.array([3.0])], [np.array([5.0, 5.0]), np.array([3.0, 4.0])]
    low, _ = result_comparison.difference_interval(a, b, [True, False], bootstrap.pooled_iqm, name=("x",), reps=1)
    assert seen == [[2, 1, 2]]
    assert low == pytest.approx([np.mean([4.0, 5.0]) - 2.0, (1.0 + 0.75) / 2])  # of 3, 4, 5, 5 the middle two


def test_one_run_has_no_interval_and_that_is_said(tmp_path: Path):
    found = result_comparison.compare_runs(side(tmp_path / "a", [1.0, 2.0]), side(tmp_path / "b", [3.0]))
    (cell,) = found.cells
    assert cell["difference"] == 1.5 and cell["difference_low"] is None and cell["probability_high"] is None
    assert (cell["n_a"], cell["n_b"]) == (2, 1)
    assert "no interval where a side has one run only: 1 cell" in found.notes
    assert "+1.5 [–]" in compare.as_text(found, "") and "2/1" in compare.as_text(found, "")


def test_few_seeds_on_one_side_are_noted(tmp_path: Path):
    few, many = side(tmp_path / "a", [1.0, 2.0, 3.0]), side(tmp_path / "b", [1.0, 2.0, 3.0, 4.0, 5.0])
    rough = "fewer than 4 seeds on a side, so intervals are rough: 1 cell"
    for a, b in ((few, many), (many, few)):
        assert rough in result_comparison.compare_runs(a, b, reps=50).notes
    assert not any("rough" in note for note in result_comparison.compare_runs(many, many, reps=50).notes)


def test_runs_that_are_equal_bit_for_bit_are_counted(tmp_path: Path):
    found = result_comparison.compare_runs(side(tmp_path / "a", [1.0, 2.0, 3.0]), side(tmp_path / "b", [1.0, 2.0, 4.0]))
    assert found.cells[0]["identical"] == 2
    assert "2 of 3 pairs of runs are identical bit for bit" in found.notes
    assert "paired" in compare.as_text(found, "")
    same = result_comparison.compare_runs(side(tmp_path / "a", [1.0, 2.0, 3.0]), side(tmp_path / "c", [1.0, 2.0, 3.0]))
    assert compare.as_text(same, "").count(" identical\n") == 2 and same.cells[0]["difference_high"] == 0.0
    more = result_comparison.compare_runs(side(tmp_path / "d", [1.0, 2.0]), side(tmp_path / "e", [1.0, 2.0, 9.0]))
    assert more.cells[0]["identical"] == 2 and more.cells[0]["seeds"] == more.rows[0]["seeds"] == "independent"
    a, b = (
        [*side(tmp_path / n, [1.0, 2.0]), write_run(tmp_path / n, sampled=3.0, env="Walker2d-v5", phases=4)]
        for n in "fg"
    )
    assert {row["seeds"] for row in result_comparison.compare_runs(a, b).rows} == {"identical"}  # of 2 and 1 seeds


def test_accuracies_are_compared_as_they_are(tmp_path: Path):
    a, b = (
        [write_run(tmp_path / n, "grpo", s, sampled=0.9, deterministic=base + s / 100, **ACCURACY) for s in (0, 1)]
        for n, base in (("a", 0.30), ("b", 0.41))
    )
    found = result_comparison.compare_runs(a, b)
    assert found.settings["normalise"] == "raw" and found.settings["score"] == "deterministic"
    assert found.rows[0]["a"] == found.cells[0]["a"] == pytest.approx(0.305)
    text = compare.as_text(found, compare.headline(found))
    assert text.startswith("greedy accuracy") and "+0.110 [+0.110, +0.110]" in text


def test_the_result_does_not_depend_on_the_order_of_the_runs(tmp_path: Path):
    a, b = side(tmp_path / "a", [1.0, 2.0, 5.0]), side(tmp_path / "b", [2.0, 2.5, 3.0])
    assert result_comparison.compare_runs(a, b, reps=50) == result_comparison.compare_runs(a[::-1], b[::-1], reps=50)


# --- what is shown


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str]:
    for name, shift in (("a", 0.0), ("b", 20.0)):
        for label in ("spo", "vaco[delta=0.1,trust_region=clip,rho_bar=2.0,realign_every=epoch]"):
            for env in ("Hopper-v5", "InvertedDoublePendulum-v5"):
                side(tmp_path / name, [100 + shift, 130, 80 + 2 * shift], label, env=env)
    return str(tmp_path / "a"), str(tmp_path / "b")


def test_text_stays_within_its_width_and_says_what_had_to_go(two: tuple[str, str]):
    found = result_comparison.compare_runs(*map(load, two))
    wide, narrow = compare.as_text(found, "head " * 40), compare.as_text(found, "head", 80)
    assert max(map(len, wide.splitlines())) <= 120 and "no room" not in wide
    assert max(map(len, narrow.splitlines())) <= 80
    assert "no room for seeds, n, P(B > A)" in narrow and ": --json and --out have them" in narrow


def test_json_and_csv_have_the_same_numbers(two: tuple[str, str], tmp_path: Path, cli: Cli):
    target = tmp_path / "comparison.csv"
    code, out, err = cli("compare", *two, "--json", "--env", "Hopper", "--out", str(target))
    content = json.loads(out)
    assert code == 0 and out.count("\n") == 1 and "B − A" in err
    assert [(c["algorithm"].split("[")[0], c["env"]) for c in content["cells"]] == [
        ("spo", "Hopper-v5"),
        ("vaco", "Hopper-v5"),
    ]
    rows = list(csv.DictReader(io.StringIO(target.read_text())))
    assert [r["scale"] for r in rows] == ["mean", "mean", "IQM, minmax", "IQM, minmax"]
    for row, numbers in zip(rows, [*content["cells"], *content["rows"]], strict=True):
        assert tuple(row) == result_comparison.COLUMNS == tuple(sorted(numbers, key=result_comparison.COLUMNS.index))
        assert all(row[k] == str(numbers[k]) for k in numbers)


def test_only_an_earlier_comparison_is_replaced(two: tuple[str, str], tmp_path: Path, cli: Cli):
    target = tmp_path / "results.csv"
    target.write_text("mine\n")
    code, out, err = cli("compare", *two, "--out", str(target))
    assert (code, out) == (2, "") and f"{target} is not a comparison and would be overwritten" in err
    assert target.read_text() == "mine\n"
    target.unlink()
    for asked in ([], ["--env", "Hopper"]):
        assert cli("compare", *two, *asked, "--out", str(target))[0] == 0
    assert "Hopper" in target.read_text()


def test_names_cannot_steer_a_terminal_or_a_spreadsheet(tmp_path: Path):
    """No stored run has such a label (its schema refuses it); what shows labels does not rest on that."""
    evil = "=evil\x1b[2J[bold]"
    a, b = (
        [replace(run, record={**run.record, "label": evil}) for run in side(tmp_path / n, [1.0, 2.0])] for n in "ab"
    )
    found = result_comparison.compare_runs(a, b)
    text = compare.as_text(found, "head\x1b[2J")
    assert "\x1b" not in text and "[bold]" in text
    assert "'=evil" in compare.to_csv(found)


def test_a_published_bundle_is_identical_to_a_copy_of_itself(tmp_path: Path, cli: Cli):
    copy = tmp_path / "copy"
    shutil.copytree(BUNDLE, copy)
    code, out, _ = cli("compare", str(BUNDLE), str(copy), "--k", "16", "--algo", "spo,vaco")
    assert code == 0 and "10 of 10 pairs of runs are identical bit for bit" in out
    assert "spo" in out and "ppo_clip" not in out and "differently" not in out


def test_comparing_loads_no_torch_simulator_or_pandas(two: tuple[str, str]):
    program = (
        "import sys; from staleharness import cli; from staleharness.commands import compare\n"
        "compare.handle(compare.Command(a=sys.argv[1], b=sys.argv[2], env='Hopper', algo='spo', json=True))\n"
        "print(sorted({'torch', 'gymnasium', 'mujoco', 'matplotlib.pyplot', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program, *two], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_on_a_terminal_the_same_cells_are_shown(two: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: Any):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "90")
    assert compare.handle(compare.Command(a=two[0], b=two[1], env="Hopper", algo="spo")) == 0
    out = capsys.readouterr().out
    assert "paired" in out and "note: fewer than 4 seeds" in out and "per cell" in out
    assert max(map(len, out.splitlines())) <= 90


# --- mistakes


def test_mistakes_are_one_line_and_exit_2_and_write_nothing(
    two: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
):
    a, b = two
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    alone = tmp_path / "alone"
    side(alone, [1.0], "impala", env="Ant-v5")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    for arguments, words in (
        ([], ["needs A and B"]),
        ([a], ["needs B"]),
        (["", b], ["A='' is empty"]),
        ([a, a], ["same folder"]),
        ([a, f"{a}/../a"], ["same folder"]),
        (["results/reference/quick_hopper", str(ROOT / "results/reference/quick_hopper")], ["same folder"]),
        (["nowhere", b], ["A=nowhere", "not a folder of results"]),
        ([a, "file"], ["B=file", "not a folder of results"]),
        ([a, "empty"], ["B=empty", "holds no results"]),
        ([str(tmp_path), b], ["holds no results", "a, alone, b"]),
        ([a, b, "--env", "Ant"], ["ENV: no run here is of 'Ant'; known: Hopper-v5"]),
        ([a, str(alone)], ["share no cell", "impala × Ant-v5 × K=8"]),
        ([a, b, "--k", "eight"], ["K='eight'"]),
        ([a, b, "--normalise", "minmx"], ["'minmax'"]),
        ([a, b, "--normalise", "ppo"], ["ppo_clip at K=1"]),
        ([a, b, "--out", "here"], ["here", ".csv"]),
        ([a, b, "--out", "no/where.csv"], ["no folder", "no"]),
        ([a, b, "--ouput", "x.csv"], ["--out"]),
    ):
        code, out, err = cli("compare", *arguments)
        assert (code, out) == (2, ""), arguments
        assert err.startswith("staleharness: ") and err.count("\n") == 1, err
        assert all(word in err for word in words), err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("normalise", ["raw", "minmax"])
def test_accuracies_alone_have_three_digits(normalise: str, tmp_path: Path):
    returns = [side(tmp_path / x, [900.0, 901.0], env="Pendulum-v1") for x in "ab"]
    assert " 900.5 " in compare.as_text(result_comparison.compare_runs(*returns, normalise=normalise, reps=50), "")
    answers = [side(tmp_path / x, [0.25, 0.5], **ACCURACY) for x in "cd"]
    text = compare.as_text(result_comparison.compare_runs(*answers, normalise=normalise, reps=50), "")
    assert re.search(r" \d\.\d{3} ", text)
