"""Queries and parts of a claim without matching runs: one line each, never a number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from results_helper import write_run

from staleharness.errors import UserError
from staleharness.statistics.claims.claim_evaluation import fill_numbers
from staleharness.statistics.claims.claim_schema import ClaimPart
from staleharness.statistics.claims.part_tests import evaluate_part
from staleharness.statistics.claims.study_evidence import Evidence
from staleharness.statistics.results import Results, load


def evidence_in(root: Path, seeds: int, lows: dict[str, float]) -> Evidence:
    for label, low in lows.items():
        for k in (1, 4):
            for seed in range(seeds):
                options: Any = {"capacity": k, "sampled": low / k + seed, "phases": 3}
                write_run(root, label, seed, curve=[low / 4, low / 2, low / k + seed], **options)
    results: Results = load(root)
    return Evidence(results, results.table(reps=50, engine="quick"))


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return evidence_in(tmp_path_factory.mktemp("three"), 3, {"vaco": 900.0, "ppo_clip": -90.0})


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("{runs vacoo}", "no run here is of 'vacoo'; did you mean 'vaco'?"),
        ("{seeds vacoo}", "no run here is of 'vacoo'"),
        ("{score vaco K=4 seeds=paired}", "seeds=paired is for a comparison; give over=<method> or over_k=<K>"),
        ("{tv vaco K=4 as=ratio}", "as=ratio is for a comparison"),
        ("{tv_data vaco K=4 as=foo}", "as=foo is not known: as=%, as=number or as=ratio"),
        ("{chance vaco K=4 over=ppo_clip as=ratio}", "chance has no as=ratio; give a measure, such as score"),
        ("{told vaco K=4 over=ppo_clip digits=9}", "told has no option digits"),
        ("{slowdown vaco K=4 digits=0}", "slowdown has no option digits"),
        ("{seeds vaco as=%}", "seeds has no option as"),
        ("{seeds vaco K=7}", "no run of vaco is at K=7"),
        ("{above vacoo K=4}", "no run here is of 'vacoo'"),
        ("{same vaco K=4 over=ppo}", "no run here is of 'ppo'; did you mean 'ppo_clip'?"),
        ("{warnings vaco+vacoo}", "no run here is of 'vacoo'"),
        ("{environments vacoo K=4}", "no run here is of 'vacoo'"),
        ("{reached vacoo K=4}", "vacoo has no run at K=4"),
        ("{return vaco K=4 over=ppo_clip as=ratio}", "return of ppo_clip, seed 0, is -22.5: a ratio is of"),
        ("{ess_data vaco K=4 reduce=men}", "reduce='men' is not known; did you mean 'mean'?"),
        ("{ess_data vaco K=4 phases=2}", "phases=2: give the first and the one after the last, as 10:50"),
        ("{ess_data vaco K=4 reduce=turn}", "too few phases for reduce='turn' of 'ess_data'"),
        ("{iqm vaco K=4 over=ppo_clip}", "iqm has no option over; it has K"),
        ("{auc vaco K=4 env=Hopper}", "auc has no option env; it has K"),
        ("{chance vaco K=4 env=Hopper}", "chance has no option env; it has K, over"),
        ("{reached vaco K=4 over=ppo_clip}", "reached has no option over; it has K, level"),
        ("{score vaco K=4 phases=0:2}", "score has no option phases; it has K, env, over, over_k, seeds"),
        ("{kept vaco K=4 over=ppo_clip reduce=max}", "kept has no option reduce; it has K, env, over"),
        ("{ess_data vaco K=4 over=ppo_clip reduce=men}", "reduce='men' is not known; did you mean 'mean'?"),
    ],
)
def test_query_without_matching_runs_is_refused(evidence: Evidence, asked: str, words: str) -> None:
    with pytest.raises(UserError) as error:
        fill_numbers(asked, lambda _: evidence)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_part_with_an_unknown_algorithm_is_refused(evidence: Evidence) -> None:
    for mistaken in ({"of": ("vacoo",), "over": ("ppo_clip",)}, {"of": ("vaco",), "over": ("ppo_klip",)}):
        with pytest.raises(UserError, match=r"no run here is of .*; did you mean"):
            evaluate_part(ClaimPart("x", k=(4,), **mistaken), evidence)


def test_ratio_of_a_negative_return_is_open_with_a_reason(evidence: Evidence) -> None:
    (row,) = evaluate_part(
        ClaimPart("x", ("vaco",), over=("ppo_clip",), k=(4,), what="return", ratio=True), evidence
    ).rows
    assert row.outcome == "open" and row.problem == "return of ppo_clip, seed 0, is -22.5: a ratio is of values above 0"


def test_chance_and_slowdown_of_few_seeds_have_no_interval(evidence: Evidence, tmp_path: Path) -> None:
    """Like every other number in a text: a bootstrap of three runs that are all above is from 1 to 1."""
    five = evidence_in(tmp_path, 5, {"vaco": 900.0, "ppo_clip": -90.0})
    assert fill_numbers("{chance vaco K=4}", lambda _: evidence) == "1.00"
    assert fill_numbers("{chance vaco K=4}", lambda _: five) == "1.00 [1.00, 1.00]"
    for runs, has_ends in ((evidence, False), (five, True)):
        assert ("[" in fill_numbers("{slowdown vaco K=4 level=0.2}", lambda _, runs=runs: runs)) == has_ends  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("<each PPO's: above on A>", "above PPO's on A"),
        ("<each PPO's: above on A; above on B; above on C>", "above PPO's on A, on B and on C"),
        ("<each PPO's: below on A; above on B; below on C>", "below PPO's on A and on C, above it on B"),
        (
            "x < 1, <each it: not significantly different from at 4; above at 5>.",
            "x < 1, not significantly different from it at 4, above it at 5.",
        ),
    ],
)
def test_a_list_says_each_side_once(evidence: Evidence, text: str, filled: str) -> None:
    places = text.replace("above on", "{told vaco over=ppo_clip of=return K=1} on")
    assert fill_numbers(text, lambda _: evidence) == filled
    assert fill_numbers(places, lambda _: evidence) == filled


def test_a_list_without_a_side_is_refused(evidence: Evidence) -> None:
    with pytest.raises(
        UserError, match="'over on A' begins with none of above, below, not significantly different from"
    ):
        fill_numbers("<each it: over on A>", lambda _: evidence)
