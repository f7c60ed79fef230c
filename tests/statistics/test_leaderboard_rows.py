"""Rows of a leaderboard: order, those that are listed apart, counts of runs, and agreement of tracks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from boards import row, track

from staleharness.statistics.leaderboard import CapacityResult, LeaderboardRow, replication_tau


def test_rows_that_learned_are_ranked_and_others_are_apart() -> None:
    rows = [row("spo", 0.5), row("impala", 0.9, has_learned=False), row("vaco", 0.8), LeaderboardRow("tba", None, {})]
    board = track("control", rows)
    assert [r.label for r in board.ranking] == ["vaco", "spo"]
    assert [r.label for r in board.apart] == ["impala", "tba"]
    assert [r.label for r in track("x", [row("b", 0.5), row("a", 0.5)]).ranking] == ["a", "b"]


def test_runs_are_counted_with_those_that_are_missing() -> None:
    whole = row("spo", 0.5)  # 2 runs on each of 2 environments at 3 capacities
    partial = replace(whole, label="vaco", capacities={**whole.capacities, 16: CapacityResult(None, expected=4)})
    assert track("control", [whole, partial]).runs == (12 + 8, 24)


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
