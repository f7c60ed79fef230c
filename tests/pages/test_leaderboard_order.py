"""Methods with one and the same bound for a budget stand in the order of what they keep."""

from __future__ import annotations

from pathlib import Path

from results_helper import write_run

from staleharness.pages.leaderboard import HEAD, leaderboard


def test_bounds_that_differ_by_the_draw_of_the_lags_alone_are_equal(tmp_path: Path) -> None:
    for label, drawn, stale in (("vaco", 2.81, 300.0), ("spo", 2.79, 800.0)):
        for k, lag in ((1, 0.0), (4, drawn), (16, 4 * drawn)):
            for seed in range(3):
                said = {"summary": {"lag_mean": lag, "lag_max": lag}}
                score = (1000.0 if k == 1 else stale) + seed - k
                write_run(tmp_path / "drawn", label, seed, capacity=k, sampled=score, said=said)
    lines = leaderboard(tmp_path).splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith(("| VACO", "| SPO"))]
    assert [row[0] for row in rows] == ["| SPO", "| VACO"]
    assert {row[6].split(" ")[1] for row in rows} == {"2.8"}


def test_the_page_does_not_take_overlap_for_a_test() -> None:
    words = " ".join(HEAD.split())
    assert "neither their order nor whether their intervals overlap tells them apart" in words
