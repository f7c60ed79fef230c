"""Rows of a leaderboard: order, those that are listed apart, counts of runs, and agreement of tracks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from boards import row, track
from scipy import stats

from staleharness.statistics.leaderboard_scores import CapacityResult, LeaderboardRow
from staleharness.statistics.rank_correlation import replication_tau


def test_rows_that_learned_are_ranked_and_others_are_apart() -> None:
    rows = [row("spo", 0.5), row("impala", 0.9, has_learned=False), row("vaco", 0.8), LeaderboardRow("tba", None, {})]
    board = track("control", rows)
    assert [r.label for r in board.ranking] == ["vaco", "spo"]
    assert [r.label for r in board.rows_without_rank] == ["impala", "tba"]
    assert [r.label for r in track("x", [row("b", 0.5), row("a", 0.5)]).ranking] == ["a", "b"]


def test_runs_are_counted_with_those_that_are_missing() -> None:
    whole = row("spo", 0.5)  # 2 runs on each of 2 environments at 3 capacities
    other = row("vaco", 0.5)
    partial = replace(other, capacities={**other.capacities, 16: CapacityResult(None, expected=4)})
    assert track("control", [whole, partial]).runs == (12 + 8, 24)
    control = replace(partial, label="wide", capacities={**partial.capacities, 1: whole.capacities[1]})
    assert track("control", [whole, control]).runs == (12 + 4, 20), "the runs of both rows count once"


def test_every_pair_is_welchs_after_holms_correction() -> None:
    """The copy of a row under another name has no test against it, and its other tests count once."""
    rows = [row(label, score, seeds=4) for label, score in (("a", 0.9), ("b", 0.895), ("c", 0.88))]
    copy, alone = replace(rows[1], label="copy"), row("alone", 0.5, seeds=1)  # the same runs; too few
    made = track("control", [*rows, copy, alone]).pair_tests(4)
    assert {label for pair in made for label in pair} == {"a", "b", "c", "copy"}
    assert ("b", "copy") not in made and len(made) == 2 * (6 - 1)
    p = {}
    for a, b in (("a", "b"), ("a", "c"), ("b", "c")):
        runs = [{r.label: r for r in (*rows, copy)}[x].capacities[4].runs for x in (a, b)]
        means = [np.mean([list(by_id.values()) for by_id in by_env.values()]) for by_env in runs]
        assert made[a, b].value == pytest.approx(means[0] - means[1])
        # the runs of both environments are the same numbers: variances s²/n of four groups, and their freedom
        s2 = np.var([0.01 * (i - 1.5) for i in range(4)], ddof=1) / 4 / 4
        p[a, b] = 2 * stats.t.sf(abs(made[a, b].value) / np.sqrt(4 * s2), (4 * s2) ** 2 / (4 * s2**2 / 3))
    for pair, corrected in zip(p, stats_holm(list(p.values())), strict=True):
        assert made[pair].p == pytest.approx(corrected) and made[pair].side == (corrected < 0.05)
        assert made[pair[::-1]].side == -made[pair].side and made[pair[::-1]].high == -made[pair].low
        same = tuple({"b": "copy"}.get(label, label) for label in pair)
        assert made[same] == made[pair]
    assert {test.side for test in made.values()} == {-1, 0, 1}


def stats_holm(p: list[float]) -> list[float]:
    """Holm's correction as its definition says: the largest of the corrected values of all smaller p."""
    return [min(1.0, max(q * sum(r >= q for r in p) for q in p if q <= x)) for x in p]


def test_the_order_replicates_as_runs_of_each_task_say() -> None:
    rows = [row("a", 0.9), row("b", 0.5), row("c", 0.45)]
    tasks = {r.label: [list(runs.values()) for k in r.capacities.values() for runs in k.runs.values()] for r in rows}
    assert track("control", rows).replication == pytest.approx(replication_tau(tasks))
    assert all(len(each) == 6 for each in tasks.values())
    poor = row("impala", 0.1, has_learned=False)
    assert track("control", [*rows, poor]).replication == track("control", rows).replication


def test_tracks_agree_over_the_methods_that_both_rank_by_name() -> None:
    a = track("control", [row("vaco", 0.9), row("spo", 0.5), row("tis", 0.4), row("a3po", 0.3)])
    renamed = replace(row("vaco[delta=0.05]", 0.9), method="vaco")
    b = track("tokens", [renamed, row("spo", 0.2), row("tis", 0.4), row("topr", 0.3)])
    assert a.agreement(b) == (pytest.approx((2 - 1) / 3), pytest.approx(1.0), 3)
    assert a.agreement(track("paper", [renamed, row("spo", 0.2)])) is None
