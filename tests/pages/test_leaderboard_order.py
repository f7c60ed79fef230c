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


def test_methods_stand_in_the_order_of_their_budgets_and_not_of_what_they_keep_in_the_end(tmp_path: Path) -> None:
    """spo holds at every lag; vaco to a lag of 3 and then falls far; impala loses a little early and keeps the most."""
    scores = {"impala": (850.0, 845.0), "vaco": (1000.0, 100.0), "spo": (1000.0, 995.0)}
    for label, (near, far) in scores.items():
        for k, lag, score in ((1, 0.0, 1000.0), (4, 3.0, near), (16, 12.0, far)):
            for seed in range(3):
                said = {"summary": {"lag_mean": lag, "lag_max": lag}}
                write_run(tmp_path / "held", label, seed, capacity=k, sampled=score + seed, said=said)
    lines = leaderboard(tmp_path).splitlines()
    rows = [line.split(" | ")[1] for line in lines if line.startswith("| ") and "`" in line]
    assert rows == ["`spo`", "`vaco`", "`impala`"]


def test_the_page_does_not_take_overlap_for_a_test() -> None:
    words = " ".join(HEAD.split())
    assert "neither their order nor whether their intervals overlap tells them apart" in words
