"""Parts of a claim on stored runs, and numbers quoted in texts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from results_helper import write_run
from scipy.stats import sem, ttest_ind
from scipy.stats import t as student_t

from staleharness.errors import UserError
from staleharness.statistics.claims import early_warning as warning
from staleharness.statistics.claims.claim_evaluation import evaluate_claim, fill_numbers
from staleharness.statistics.claims.claim_schema import ClaimPart, read_query
from staleharness.statistics.claims.part_tests import evaluate_part
from staleharness.statistics.claims.study_evidence import Evidence, column_statistic, measure
from staleharness.statistics.results import Results

RETURNS = {  # Hopper-v5, whose random policy returns 15.23; seeds 0 to 4
    ("vaco", 1): 115.23,
    ("vaco", 4): 65.23,
    ("ppo_clip", 1): 215.23,
    ("ppo_clip", 4): 35.23,
}
SEEDS = {"vaco": (0.1, 0.9, 2.0, 3.1, 3.9), "ppo_clip": (0.0, 1.0, 2.0, 3.0, 4.0)}  # what each adds


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    root = tmp_path_factory.mktemp("runs")
    for (label, k), height in RETURNS.items():
        for seed, more in enumerate(SEEDS[label]):
            columns = {"clipped": [0.1, 0.2, 0.3, 0.4]}
            curve = [height / 2, height + more]
            write_run(root, label, seed, capacity=k, sampled=height + more, curve=curve, phases=4, columns=columns)
    write_run(root, "spo", 0, capacity=1, sampled=16.0, phases=4)
    write_run(root, "spo", 0, capacity=4, sampled=16.0, phases=4)
    results = Results.of([*_read(root)])
    return Evidence(results, results.table(reps=50, engine="quick"))


def _read(root: Path) -> Any:
    from staleharness.store.store import Store

    return Store(root).read_all()


def evaluate(evidence: Evidence, **part: Any) -> Any:
    return evaluate_part(ClaimPart("x", **part), evidence)


def test_a_paired_difference_is_that_of_the_same_seeds(evidence: Evidence) -> None:
    part: dict[str, Any] = {"of": ("vaco",), "over": ("ppo_clip",), "k": (4,), "what": "return"}
    (row,) = evaluate(evidence, **part, by_seed=True).rows
    assert row.text == "return, VACO − PPO-clip, K = 4" and row.outcome == "yes"
    assert row.contrast.value == pytest.approx(30.0) and row.contrast.n == (5, 5)
    (apart,) = evaluate(evidence, **part).rows
    ends = ttest_ind(SEEDS["vaco"], SEEDS["ppo_clip"], equal_var=False).confidence_interval()
    assert (apart.contrast.low, apart.contrast.high) == pytest.approx((30 + ends.low, 30 + ends.high))
    reach = float(student_t.ppf(0.975, 4)) * 0.1 / math.sqrt(5)  # the gaps are 30 ± 0.1, or 30
    assert row.contrast.low == pytest.approx(30.0 - reach) and row.contrast.high == pytest.approx(30.0 + reach)


def test_a_capacity_is_compared_with_another_one(evidence: Evidence) -> None:
    (row,) = evaluate(evidence, of=("vaco",), k=(4,), over_k=1, what="return", be="less").rows
    assert row.text == "return, VACO, K = 4 − K = 1" and row.contrast.value == pytest.approx(-50.0)
    both: dict[str, Any] = {"of": ("vaco",), "over": ("ppo_clip",), "k": (4,), "over_k": 1, "what": "return"}
    assert evaluate(evidence, **both).rows[0].contrast.value == pytest.approx(65.23 - 215.23)
    assert evaluate(evidence, **both, beyond=True).rows[0].contrast.value == pytest.approx(30.0 + 100.0)


def test_shares_are_counted_from_a_random_policy(evidence: Evidence) -> None:
    made = evaluate(evidence, of=("vaco",), over=("ppo_clip",), k=(4,), what="kept").rows[0].contrast
    assert made.value == pytest.approx(52 / 102 - 22 / 202)
    spo = evaluate(evidence, of=("spo",), over=("ppo_clip",), k=(4,), what="kept").rows[0]
    assert (
        spo.contrast is None and spo.outcome == "open" and spo.problem == "spo did not learn on Hopper-v5 without lag"
    )


def test_one_computation_without_lag_shares_its_runs(tmp_path: Path) -> None:
    """Seed 0 of both has the same gradients; seed 1 was made on another processor: three results, of which two scores
    are 10, 12 and 20. A third method has other gradients, a fourth the same ones and another score."""
    norms = {
        ("a3po", 0): 1.0,
        ("ppo_clip", 0): 1.0,
        ("a3po", 1): 2.0,
        ("ppo_clip", 1): 2.5,
        ("vaco", 0): 3.0,
        ("spo", 0): 1.0,
    }
    scores = {
        ("a3po", 0): 10.0,
        ("ppo_clip", 0): 10.0,
        ("a3po", 1): 12.0,
        ("ppo_clip", 1): 20.0,
        ("vaco", 0): 10.0,
        ("spo", 0): 11.0,
    }
    for (label, seed), norm in norms.items():
        for k in (1, 4):
            columns = {"grad_norm": [norm] * 4}
            write_run(tmp_path, label, seed, capacity=k, sampled=scores[label, seed], phases=4, columns=columns)
    results = Results.of([*_read(tmp_path)])
    one = Evidence(results, results.table(reps=50, engine="quick"))
    (env,) = one.envs()
    for label, found in (("a3po", [10, 12, 20]), ("ppo_clip", [10, 12, 20]), ("vaco", [10]), ("spo", [11])):
        assert sorted(run.record["scores"]["sampled"]["mean"] for run in one.pool(label, 1, env)) == found
    assert len(one.pool("a3po", 4, env)) == 2  # with lag they are two methods
    (row,) = evaluate_part(ClaimPart("x", ("a3po",), over=("ppo_clip",), k=(1,)), one).rows
    assert row.outcome == "open" and row.problem == "the same computation without lag"


def test_every_one_of_several_comparisons_counts(evidence: Evidence) -> None:
    result = evaluate(evidence, of=("vaco",), over=("ppo_clip", "vaco"), k=(1, 4), what="return")
    assert [row.outcome for row in result.rows] == ["no", "yes"] and result.outcome == "no"


def test_a_difference_is_of_the_reduced_columns(evidence: Evidence) -> None:
    def number(query: str) -> float:
        return float(fill_numbers(f"{{tv_data {query} plain digits=9}}", lambda _: evidence).replace("−", "-"))

    most, mean = (number(f"vaco K=4 over=ppo_clip reduce={reduce}") for reduce in ("max", "mean"))
    assert most != mean
    assert most == pytest.approx(number("vaco K=4 reduce=max") - number("ppo_clip K=4 reduce=max"), abs=2e-9)


def test_phases_that_fill_the_buffer_are_in_no_number(tmp_path: Path) -> None:
    column = [9.0, 9.0, 1.0, 2.0, 4.0]
    run = write_run(tmp_path, phases=5, settings={"fill_phases": 2}, columns={"tv_data": column})
    for phases, reduce, value in (((), "mean", 7 / 3), ((1, 3), "mean", 3.0), ((0, 1), "max", 1.0)):
        assert column_statistic(run, "tv_data", phases, reduce) == pytest.approx(value)
    with pytest.raises(UserError, match="has no 'tv_data' in the phases asked for"):
        column_statistic(run, "tv_data", (3, 5))


def test_phases_of_a_number_per_run_are_refused(evidence: Evidence) -> None:
    with pytest.raises(UserError, match="return is one number per run: leave out phases and reduce"):
        evaluate(evidence, of=("vaco",), over=("ppo_clip",), k=(4,), what="return", phases=(0, 2))


def test_columns_are_reduced_over_phases(evidence: Evidence) -> None:
    run = next(iter(evidence.results))
    for phases, reduce, value in (
        ((), "mean", 0.25),
        ((1, 3), "mean", 0.25),
        ((2, 4), "max", 0.4),
        ((), "change", 0.3),
        ((), "jump", 0.1),
        ((0, 2), "geometric", math.sqrt(0.02)),
    ):
        assert measure("clipped", evidence, phases, reduce)(run) == pytest.approx(value)
    with pytest.raises(UserError, match="has no 'nothing' in the phases asked for"):
        measure("nothing", evidence)(run)


def test_a_record_without_seconds_names_the_missing_field(evidence: Evidence) -> None:
    run = next(iter(evidence.results))
    seconds = {name: value for name, value in run.record["seconds"].items() if name != "learn"}
    forged = replace(run, record={**run.record, "seconds": seconds})
    assert measure("seconds", evidence)(run) > 0
    with pytest.raises(UserError, match=rf"run {run.id} \({run.label}\) has no seconds.learn in its record"):
        measure("seconds", evidence)(forged)


def test_a_ratio_is_compared_as_a_ratio(evidence: Evidence) -> None:
    part: dict[str, Any] = {"of": ("vaco",), "over": ("ppo_clip",), "k": (4,), "what": "return", "ratio": True}
    made = evaluate(evidence, **part).rows[0].contrast
    expected = np.mean(
        [math.log((65.23 + a) / (35.23 + b)) for a, b in zip(SEEDS["vaco"], SEEDS["ppo_clip"], strict=True)]
    )
    assert made.value == pytest.approx(expected) and evaluate(evidence, **part).outcome == "yes"
    assert evaluate(evidence, **part, than=10.0).rows[0].contrast.value == pytest.approx(expected - math.log(10))


def test_a_ratio_of_shares_kept_is_a_ratio(evidence: Evidence) -> None:
    """Ratio of geometric means: each method's score at K = 4 over its own at K = 1, then one over the other."""
    score = measure("kept", evidence)
    logs = {
        (label, k): np.mean([math.log(score(run)) for run in evidence.runs(label, k, "Hopper-v5").values()])
        for label in ("vaco", "ppo_clip")
        for k in (1, 4)
    }
    expected = logs["vaco", 4] - logs["vaco", 1] - logs["ppo_clip", 4] + logs["ppo_clip", 1]
    made = evaluate(evidence, of=("vaco",), over=("ppo_clip",), k=(4,), what="kept", ratio=True).rows[0].contrast
    assert made.value == pytest.approx(expected)
    text = fill_numbers("{kept vaco K=4 over=ppo_clip as=ratio plain digits=4}", lambda study: evidence)
    assert float(text) == pytest.approx(math.exp(expected), abs=1e-4)


def test_untested_part_is_open_with_its_reason(evidence: Evidence) -> None:
    result = evaluate(evidence, untested="no such runs")
    assert result.outcome == "open" and result.rows[0].problem == "no such runs"


def test_numbers_in_a_text_are_those_of_the_runs(evidence: Evidence) -> None:
    for asked, said in (
        ("{return vaco K=4 plain}", "67"),
        ("{return spo K=4}", "16 (one run)"),
        ("{return vaco K=4 over=ppo_clip}", "30 [28, 32]"),
        ("{kept vaco K=4 plain}", "51%"),
        ("{return vaco K=4 over=ppo_clip as=ratio plain digits=3}", "1.807"),
        ("{seconds vaco K=4 plain}", "50.00"),
        ("{clipped vaco K=4 phases=0:2 plain}", "15%"),
        ("{clipped vaco K=4 as=number plain digits=3}", "0.250"),
        ("{above vaco K=4}", "5 of 5"),
        ("{same vaco K=4}", "0 of 5"),
        ("{told vaco over=ppo_clip K=4}", "above"),
        ("{told vaco over=ppo_clip K=1}", "below"),
        ("{seeds vaco K=4}", "5 seeds"),
        ("{seeds spo}", "1 seed"),
        ("{environments vaco K=4}", "Hopper (5 seeds)"),
        ("{reached vaco K=1 level=0.4 plain as=%}", "100%"),
        ("{told spo over=vaco K=4}", "not significantly different from"),
        ("{chance vaco K=4 plain}", "1.00"),
    ):
        assert fill_numbers(f"a {asked} b", lambda study: evidence) == f"a {said} b", asked
    assert fill_numbers("{iqm vaco K=4}", lambda study: evidence).count("[") == 1  # five runs have an interval


def test_a_number_paired_by_seed_has_the_interval_of_its_differences(evidence: Evidence) -> None:
    differences = 30 + np.array(SEEDS["vaco"]) - np.array(SEEDS["ppo_clip"])
    low, high = student_t.interval(0.95, 4, differences.mean(), sem(differences))
    text = fill_numbers("{return vaco K=4 over=ppo_clip seeds=paired digits=2}", lambda study: evidence)
    assert text == f"{differences.mean():.2f} [{low:.2f}, {high:.2f}]"


def test_seeds_can_only_be_paired() -> None:
    with pytest.raises(UserError, match="seeds=pairs is not known: seeds=paired"):
        read_query("return vaco over=ppo_clip seeds=pairs")


def test_zero_has_no_minus() -> None:
    assert read_query("score vaco").text(-0.001, -0.004, -0.2) == "0.00 [0.00, −0.20]"


def test_a_share_of_an_accuracy_is_counted_from_nothing(tmp_path: Path) -> None:
    for k, height in ((1, 0.8), (4, 0.6)):
        for seed in range(5):
            own: dict[str, Any] = {"kind": "language", "env": "word-problems", "capacity": k, "phases": 2}
            write_run(tmp_path, "tis", seed, deterministic=height, **own)
    results = Results.of([*_read(tmp_path)])
    evidence = Evidence(results, results.table(reps=50, engine="quick"))
    assert fill_numbers("{kept tis K=4 plain}", lambda study: evidence) == "75%"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("{return vaco K=3}", "{return vaco K=3}: K=3: these results have 1, 4"),
        ("{return vaco}", "K=None: these results have"),
        ("{return vaco K=4 envs=x}", "unknown option 'envs'"),
        ("{return vaco K=4 env=Ant}", "env='Ant': these results have Hopper-v5"),
        ("{iqm a3po K=4}", "no row of the table"),
        ("{kept spo K=4}", "spo has no share kept at K=4"),
        ("{slowdown a3po K=4}", "has no slowdown"),
        ("{return vaco K=x}", "{return vaco K=x}: invalid literal"),
        ("{ }", "{ }: "),
        ("{tv_data vaco K=4 phases=a:b}", "phases=a:b}: invalid literal"),
    ],
)
def test_invalid_query_is_refused_in_one_line(evidence: Evidence, asked: str, words: str) -> None:
    with pytest.raises(UserError) as error:
        fill_numbers(asked, lambda study: evidence)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_tests_of_a_figure_are_corrected_together(evidence: Evidence) -> None:
    """Two tests of the parts and one that the text tells: Holm multiplies the smallest p by 3, the next by 2."""
    part: dict[str, Any] = {"of": ("vaco",), "over": ("ppo_clip",), "what": "return"}
    parts = [ClaimPart("a", k=(4,), **part), ClaimPart("b", k=(4,), than=29.0, role="ours", **part)]
    alone = [evaluate_part(p, evidence).rows[0] for p in parts]
    assert [row.outcome for row in alone] == ["yes", "open"] and alone[1].p(parts[1]) == pytest.approx(0.32, abs=0.05)
    told = "{told vaco over=ppo_clip K=1 of=return}"
    result = evaluate_claim(parts, told, "", lambda study: evidence, {})
    first, second = (r.rows[0] for r in result.parts)
    p = [ttest_ind(SEEDS["vaco"], np.array(SEEDS["ppo_clip"]) - gap, equal_var=False).pvalue for gap in (30, -100)]
    assert first.holm == pytest.approx(2 * p[0]) and second.holm == pytest.approx(alone[1].p(parts[1]))
    assert result.verdict == "agrees" and result.observation == "below"  # our own part does not count


def test_a_result_that_the_correction_takes_back_is_open(evidence: Evidence) -> None:
    part: dict[str, Any] = {"of": ("vaco",), "over": ("ppo_clip",), "what": "return", "k": (4,)}
    one = ClaimPart("a", than=27.5, **part)  # a p of about 0.03, alone
    more = [ClaimPart("b", than=29.5 + x / 10, **part) for x in range(5)]
    assert evaluate_claim([one], "", "", lambda study: evidence, {}).parts[0].outcome == "yes"
    found = evaluate_claim([one, *more], "", "", lambda study: evidence, {}).parts[0].rows[0]
    assert found.outcome == "open" and found.holm == pytest.approx(6 * found.p(one))  # type: ignore[operator]


def test_what_holds_by_definition_counts_for_nothing(evidence: Evidence) -> None:
    part = ClaimPart("a", ("vaco",), over=("ppo_clip",), k=(4,), what="return", role="identity")
    result = evaluate_claim([part], "", "", lambda study: evidence, {})
    assert result.verdict == "" and result.parts[0].rows[0].holm is None and result.parts[0].outcome == "yes"


def test_parts_and_text_use_the_runs_of_their_study(evidence: Evidence) -> None:
    asked: list[str] = []

    def of(study: str) -> Evidence:
        asked.append(study)
        return evidence

    part = ClaimPart("VACO keeps more", ("vaco",), over=("ppo_clip",), k=(4,), what="kept", study="other")
    result = evaluate_claim([part], "{runs vaco study=third}", "", of, {})
    assert result.verdict == "agrees" and result.observation == "10 runs" and asked == ["other", "third"]


# --- the effective sample size as a warning


def test_hits_and_false_alarms_are_counted_over_stale_runs(tmp_path: Path) -> None:
    calm, falling = [0.9] * 30, [0.9] * 12 + [0.3] * 18
    early = [0.9] * 6 + [0.3] * 24
    for seed, (ess, reward) in enumerate(
        [(early, falling), (early, falling), (falling, early), (early, calm), (calm, calm)]
    ):
        columns = {"ess_sequence": ess, "reward": reward}
        of = {"env": "word-problems", "kind": "language", "capacity": 2}
        write_run(tmp_path, "tis", seed, phases=30, columns=columns, **of)
    fresh = {"ess_sequence": early, "reward": falling}
    run = write_run(tmp_path, "tis", 9, env="word-problems", kind="language", capacity=1, phases=30, columns=fresh)
    assert run.record["summary"]["lag_max"] == 0
    counts = warning.count_warnings(_read(tmp_path))
    assert counts == warning.WarningCounts((1, 1, 1, 0, 0), (1, 1, 0, 0, 0), (0, 0, 0, 1, 1), (0, 0, 0, 1, 0))
    assert counts.text.startswith("ESS of completions first in 2 of 3 runs whose reward fell; a false alarm in 1 of 2")
    assert counts.hits_over_alarms.value == pytest.approx(2 / 3 - 1 / 2) and counts.hits_over_alarms.n == (5,) * 4


@pytest.mark.parametrize("each", [1, 3])
def test_early_alarms_and_ties_are_no_warnings(tmp_path: Path, each: int) -> None:
    """K = 8: phases of one step or of three, of which the first 14 do not count."""
    calm, falling, early = [0.9] * 40, [0.9] * 20 + [0.1] * 20, [0.9] * 10 + [0.1] * 30
    for seed, (ess, reward) in enumerate([(early, calm), (falling, falling), (early, falling)]):
        columns = {"steps": list(range(each, 40 * each + 1, each)), "ess_sequence": ess, "reward": reward}
        run = write_run(tmp_path, "tis", seed, kind="language", phases=40, columns=columns)
        assert warning.largest_lag(run) == 7
    counts = warning.count_warnings(_read(tmp_path))
    assert counts == warning.WarningCounts((0, 1, 1), (0, 0, 0), (1, 0, 0), (0, 0, 0))


def test_runs_of_one_seed_are_one_piece_of_evidence() -> None:
    """Hits of 3 of 4, 1 of 2 and 4 of 4 runs, worked out by hand: 8/10, and without each seed 5/6, 7/8 and 4/6."""
    counts = warning.WarningCounts((4, 2, 4), (3, 1, 4), (2, 2, 2), (1, 2, 0))
    pseudo = [3 * 0.8 - 2 * share for share in (5 / 6, 7 / 8, 4 / 6)]
    reach = 4.30265 * np.std(pseudo, ddof=1) / np.sqrt(3)  # Student's t with 2 degrees of freedom
    assert counts.hits_over_half.value == pytest.approx(0.3) and counts.hits_over_half.n == (3, 3)
    assert (counts.hits_over_half.low, counts.hits_over_half.high) == pytest.approx(
        (0.3 - reach, 0.3 + reach), abs=1e-5
    )
    assert (
        counts.hits_over_alarms.value == pytest.approx(8 / 10 - 3 / 6)
        and counts.hits_over_alarms.outcome("more") == "open"
    )
    assert [counts.shortage(what) for what in warning.WARNINGS] == ["6 runs, of 10 that a test takes", ""]
    many = warning.WarningCounts(*(row * 8 for row in (counts.fell, counts.before, counts.stable, counts.alarms)))
    assert many.hits_over_half.value == pytest.approx(0.3) and many.hits_over_half.outcome("more") == "yes"
    (mine, others) = (
        warning.WarningCounts((8,), (6,), (2,), (1,)),
        warning.WarningCounts((1,) * 8, (1,) * 8, (2,) * 8, (0,) * 8),
    )
    assert mine.hits_over_half.low is None and mine.hits_over_half.n == (1, 1)  # one seed, however many runs
    assert others.hits_over_half.outcome("more") == "yes" and others.hits_over_half.p == pytest.approx(
        2 / 2**8
    )  # the sign test
    with pytest.raises(UserError, match="the reward fell in no stale run"):
        _ = warning.WarningCounts((0, 0), (0, 0), (5, 5), (1, 1)).hits_over_half
    with pytest.raises(UserError, match="fell in all stale runs, or in none"):
        _ = warning.WarningCounts((3, 3), (3, 3), (0, 0), (0, 0)).hits_over_alarms
    with pytest.raises(UserError, match="the reward fell in stale runs of one seed only"):
        _ = warning.WarningCounts((3, 0), (3, 0), (1, 1), (0, 0)).hits_over_alarms
    with pytest.raises(UserError, match="the reward held up in stale runs of one seed only"):
        _ = warning.WarningCounts((3, 3), (3, 3), (1, 0), (0, 0)).hits_over_alarms
