"""Page of early warnings: falls, alarms and counts by hand, and the committed page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from alarm_counts import (
    CHOSE_FIRST,
    METRICS,
    REPORTED_FIRST,
    Counts,
    Metric,
    Run,
    alarm_of,
    best_level,
    count,
    fall_of,
    halves,
    intervals,
    mean_return,
    run_of,
    stale_runs,
)
from early_warnings import KINDS, early_warnings, row_of, rule_of
from places import ROOT
from results_helper import write_run

NEVER = float("inf")
PUBLISHED = ROOT / "results" / "reference"
ESS = Metric("ESS", "ess_data", "ratio", (0.9, 0.5), rises=False)


def run(study: str, seed: int, fall: float, ess: list[float]) -> Run:
    return Run("language", study, (study, "env", seed), fall, {"ess_data": np.array(ess)})


def test_a_fall_is_below_two_thirds_of_the_best_so_far() -> None:
    assert fall_of(np.array([0.3, 0.9, 0.61, 0.59, 0.9])) == 3.0  # 2/3 of 0.9 is 0.6
    assert fall_of(np.array([0.3, 0.2, 0.9, 0.7])) == NEVER  # 0.2 is two thirds of 0.3
    assert fall_of(np.array([-3.0, -9.0])) == NEVER


def test_a_mean_return_is_over_the_phases_with_an_episode() -> None:
    returns = np.array([np.nan, 4.0, np.nan, 2.0, *[np.nan] * 9])
    assert mean_return(returns) == pytest.approx([3.0, 3.0, 2.0, 2.0, np.nan, np.nan], nan_ok=True)
    assert fall_of(np.array([4.0, np.nan, 3.0, np.nan, 2.0])) == 4.0


def test_a_run_counts_where_few_phases_have_a_return(tmp_path: Path) -> None:
    """HalfCheetah: all episodes end in one phase of ten. The lag of K = 2 is 1, so phases 0 and 1 do not count."""
    returns = [100.0 * (1 + phase / 40) if phase % 10 == 9 else None for phase in range(40)]
    columns = {"rollout_return": returns, "ess_data": [0.9] * 40}
    run = run_of(write_run(tmp_path, "ppo_clip", 0, capacity=2, phases=40, columns=columns), "study")
    assert run is not None and run.fall == NEVER and np.isnan(run.means["reward"]).any()
    filled = write_run(tmp_path, "ppo_clip", 2, capacity=2, phases=40, columns=columns, settings={"fill_phases": 5})
    assert (run := run_of(filled, "study")) is not None and len(run.means["reward"]) == 40 - 5 - 7
    columns["rollout_return"] = [None] * 39 + [1.0]
    assert run_of(write_run(tmp_path, "ppo_clip", 1, capacity=2, phases=40, columns=columns), "study") is None


def test_a_metric_with_few_falls_has_no_interval() -> None:
    few = Counts(np.array([4.0, 5.0]), np.array([4.0, 5.0]), np.array([9.0, 9.0]), np.array([0.0, 1.0]), [[2.0], [4.0]])
    assert row_of(ESS, 0.5, few)[2:] == ["9 of 9", "1 of 18", "–", "3"]


def test_more_tests_widen_the_interval_that_decides() -> None:
    ones, hits = np.ones(20), np.array([1.0, 1.0, 0.0, 0.0, 1.0] * 4)
    counts = Counts(ones, hits, ones, np.array([1.0, 0.0, 0.0, 0.0, 1.0] * 4), [[1.0]] * 20)
    assert intervals(counts, 20)["gain"][0] < intervals(counts)["gain"][0]
    assert row_of(ESS, 0.5, counts)[4].startswith("**+") and row_of(ESS, 0.5, counts, 1_000)[4].startswith("+")


@pytest.mark.parametrize(
    ("rule", "rises", "level", "means", "phase"),
    [
        ("ratio", False, 0.5, [0.8, 1.0, 0.6, 0.4], 3.0),
        ("ratio", False, 0.5, [0.8, 1.0, 0.6, 0.6], NEVER),
        ("ratio", True, 2.0, [3.0, 1.0, 1.9, 2.1], 3.0),
        ("change", True, 0.1, [0.3, 0.2, 0.25, 0.35], 3.0),
        ("change", False, 0.1, [0.3, 0.4, 0.25], 2.0),
        ("size", True, 3.0, [1.0, -3.5, 4.0], 1.0),
        ("size", True, 3.0, [1.0, -2.5, 2.9], NEVER),
    ],
)
def test_an_alarm_is_a_change_from_the_best_so_far(
    rule: str, rises: bool, level: float, means: list[float], phase: float
) -> None:
    metric = Metric("", "", rule, (level,), rises)  # type: ignore[arg-type]
    assert alarm_of(np.array(means), metric, level) == phase


def test_hits_alarms_and_phases_are_counted_by_cluster() -> None:
    runs = [
        run("a", 0, 3.0, [1.0, 0.4, 0.4, 0.4]),  # alarm at 1, fall at 3
        run("a", 0, 1.0, [1.0, 0.8, 0.4, 0.4]),  # alarm after the fall: no hit
        run("a", 0, NEVER, [1.0, 0.9, 0.9, 0.9]),
        run("a", 1, NEVER, [1.0, 0.4, 1.0, 1.0]),  # a false alarm
        run("b", 0, 3.0, [1.0, 1.0, 0.4, 0.4]),
        run("b", 0, 1.0, [1.0, 0.4, 0.4, 0.4]),  # with the fall, not before
        Run("language", "b", ("b", "env", 1), 2.0, {}),  # has no ESS
    ]
    found = count(runs, ESS, 0.5)
    assert [x.tolist() for x in found[:4]] == [[2, 0, 2], [1, 0, 1], [1, 1, 0], [0, 1, 0]]
    assert found.leads == [[2.0], [], [1.0]]
    assert (found.hit_rate, found.alarm_rate, found.lead) == (0.5, 0.5, 1.5)
    assert found.gain == 0.0


def test_the_level_is_chosen_on_one_half_alone() -> None:
    runs = [run("a", 0, 3.0, [1.0, 0.4, 0.4]), run("a", 1, NEVER, [1.0, 0.8, 0.8])]  # 0.9 warns of both
    runs += [run("e", 0, 3.0, [1.0, 0.8, 0.8]), run("e", 1, NEVER, [1.0, 1.0, 1.0]), run("c", 0, NEVER, [1.0, 1.0])]
    choosing, reporting = halves(runs)  # SHA-256 of a, c and e begins with ca, 2e and 3f
    assert {r.study for r in choosing} == {"a", "c"} and {r.study for r in reporting} == {"e"}
    assert best_level(choosing, ESS) == 0.5
    assert best_level(reporting, ESS) == 0.9
    assert best_level([run("a", 0, 3.0, [1.0, 0.4])], ESS) is None, "no run stood"
    assert count(reporting, ESS, 0.5).hit_rate == 0.0


def test_a_new_study_moves_no_other() -> None:
    names = [*sorted(CHOSE_FIRST | REPORTED_FIRST), "a", "c", "e"]
    before, after = (halves([run(name, 0, NEVER, [1.0]) for name in each]) for each in (names, ["aa", *names, "zz"]))
    for half, more in zip(before, after, strict=True):
        assert {r.study for r in half} <= {r.study for r in more}


def test_intervals_are_of_resampled_clusters() -> None:
    """Ten clusters of one run each, half of them hits: the share of 10 draws from a fair coin."""
    ones, hits = np.ones(10), np.array([1.0, 0.0] * 5)
    found = intervals(Counts(ones, hits, ones, 1 - hits, [[4.0] if hit else [] for hit in hits]))
    assert found["hit_rate"] == (pytest.approx(0.2), pytest.approx(0.8))
    assert found["lead"] == (4.0, 4.0) and found["gain"][0] < 0 < found["gain"][1]
    row = row_of(ESS, 0.5, Counts(ones, hits, ones, 1 - hits, [[4.0] if hit else [] for hit in hits]))
    assert row[1:4] == ["below 0.5 × its maximum", "5 of 10, 50% [20, 80]", "5 of 10, 50% [20, 80]"]
    assert row[4].startswith("+0%") and row[5] == "4 [4, 4]"


def test_the_committed_page_is_that_of_the_published_bundles() -> None:
    page = (ROOT / "docs" / "early_warnings.md").read_text(encoding="utf-8")
    assert page == early_warnings(PUBLISHED), "run make docs"
    assert all(f"## {name}" in page for name in KINDS.values()) and "nan" not in page
    for kind, count_of in (("language", 11), ("control", 9)):  # those of the first page, each second one by name
        studies = sorted({r.study for r in stale_runs(PUBLISHED) if r.kind == kind})
        first = [study for study in studies if study in CHOSE_FIRST | REPORTED_FIRST]
        assert len(first) == count_of and set(first[::2]) == set(first) & CHOSE_FIRST


def test_every_metric_has_a_rule_in_words() -> None:
    assert len({rule_of(metric, level) for metric in METRICS for level in metric.levels}) > 20
