"""Page of staleness budgets: order, columns and reasons for missing answers."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from results_helper import write_run
from staleness_budgets import HEAD, staleness_budgets


def write(root: Path, label: str, by_k: dict[int, tuple[float, float]], **options: Any) -> None:
    """Write three seeds of each K with a mean lag and a score."""
    for k, (lag, score) in by_k.items():
        write_seeds(root, label, k, score, said={"summary": {"lag_mean": lag, "lag_max": lag}}, **options)


def write_seeds(root: Path, label: str, k: int, score: float, **options: Any) -> None:
    for seed in range(3):
        write_run(root, label, seed, capacity=k, sampled=score + seed, **options)


def cells(folder: Path) -> list[list[str]]:
    """Cells of the rows of methods."""
    return [
        line.split(" | ") for line in staleness_budgets(folder).splitlines() if line.startswith("| ") and "`" in line
    ]


def headings(folder: Path) -> list[str]:
    (head,) = [line for line in staleness_budgets(folder).splitlines() if line.startswith("| method")]
    return head.split(" | ")


@pytest.mark.long
def test_the_committed_page_is_that_of_the_published_bundles() -> None:
    page = (ROOT / "docs" / "staleness_budgets.md").read_text(encoding="utf-8")
    assert page == staleness_budgets(ROOT / "results" / "reference"), "run make docs"


def test_the_page_does_not_take_overlap_for_a_test() -> None:
    assert "order nor overlapping intervals distinguish two methods" in " ".join(HEAD.split())


def test_rows_are_sorted_by_stale_score_and_gaps_have_reasons(tmp_path: Path) -> None:
    scores = {"impala": (1000, 300, 100), "vaco": (1000, 999, 998), "spo": (1000, 990, 120)}
    for label, values in {**scores, "a3po": (1000,), "ppo_kl": (1000,)}.items():
        for k, score in zip((1, 4, 16), values, strict=False):
            write_seeds(tmp_path / "good", label, k, score)
    write_seeds(tmp_path / "poor", "vaco", 1, 1000)
    rows = cells(tmp_path)
    assert [row[:2] for row in rows] == [["| VACO", "`vaco`"], ["| SPO", "`spo`"], ["| IMPALA", "`impala`"]]
    assert [row[6][0] for row in rows] == ["≥", "1", "<"]
    page = staleness_budgets(tmp_path)
    assert "No answer for A-3PO, PPO-KL: no stale runs, only runs with lag 0." in page.splitlines()
    assert "- poor: no stale runs, only runs with lag 0 (vaco on Hopper-v5)" in page.splitlines()
    assert "24,576 steps in 12 phases" in page and "lag = uniform" in page


def test_rows_follow_the_score_at_the_largest_lag_and_not_the_budget(tmp_path: Path) -> None:
    """vaco loses most and still ends highest; impala keeps everything of less."""
    for label, near, far in (("impala", 600.0, 600.0), ("vaco", 1000.0, 700.0), ("spo", 990.0, 650.0)):
        write(tmp_path / "a", label, {1: (0, 600 if label == "impala" else 1000), 4: (3, near), 16: (12, far)})
    assert [row[1] for row in cells(tmp_path)] == ["`vaco`", "`spo`", "`impala`"]


def test_ties_follow_the_score_without_lag(tmp_path: Path) -> None:
    for label, fresh in (("impala", 700.0), ("vaco", 900.0), ("spo", 800.0)):
        write(tmp_path / "a", label, {1: (0, fresh), 4: (3, 500.0)})
    assert [row[1] for row in cells(tmp_path)] == ["`vaco`", "`spo`", "`impala`"]


def test_a_method_that_learned_less_than_half_is_named_apart(tmp_path: Path) -> None:
    """IMPALA on Hopper, which keeps 100 % of a return of 299 where PPO-clip has 2,441."""
    for label, fresh in (("impala", 299.0), ("ppo_clip", 2441.0), ("vaco", 1400.0)):
        write(tmp_path / "a", label, {1: (0, fresh), 4: (3, fresh)})
    assert [row[1] for row in cells(tmp_path)] == ["`ppo_clip`", "`vaco`"]
    assert "Learned less than 50% of what PPO-clip did at K = 1: IMPALA (300)." in staleness_budgets(tmp_path)


def test_bounds_that_differ_by_the_draw_of_lags_are_equal(tmp_path: Path) -> None:
    for label, lag, stale in (("vaco", 2.81, 300.0), ("spo", 2.79, 800.0)):
        write(tmp_path / "a", label, {1: (0, 999), 4: (lag, stale - 4), 16: (4 * lag, stale - 16)})
    rows = cells(tmp_path)
    assert [row[0] for row in rows] == ["| SPO", "| VACO"]
    assert {row[6].split(" ")[1] for row in rows} == {"2.8"}


def test_a_level_that_is_reached_at_once_is_replaced(tmp_path: Path) -> None:
    curve = [700.0, 800.0, 850.0, 900.0, 950.0, 1000.0]
    for label, k in product(("vaco", "spo"), (1, 4)):
        write_seeds(tmp_path / "warm", label, k, 1000, curve=curve)
    assert "Slowdown to 90% of the best synchronous score." in staleness_budgets(tmp_path)
    for label, k in product(("vaco", "spo"), (1, 4)):
        write_seeds(tmp_path / "cold", label, k, 1000, curve=[100.0, *curve])
    assert "Slowdown to 50% of the best synchronous score." in staleness_budgets(tmp_path)


def test_lags_that_share_a_capacity_have_their_own_columns(tmp_path: Path) -> None:
    """The lag is part of the label, as in lesson_tokens."""
    for lag, score in ((0, 1000.0), (2, 700.0), (5, 400.0)):
        write(tmp_path / "a", f"vaco[lag=fixed:{lag}]", {6: (lag, score)}, settings={"lag": f"fixed:{lag}"})
    shares = {name: cell.split("%")[0] for name, cell in zip(headings(tmp_path), cells(tmp_path)[0], strict=True)}
    assert {name: share for name, share in shares.items() if name.endswith("kept")} == {
        "score, K = 6 (lag 2), and kept": "701, 70",
        "score, K = 6 (lag 5), and kept": "401, 39",
    }


def test_methods_whose_lags_differ_a_little_share_a_column(tmp_path: Path) -> None:
    for label, lag in (("vaco", 15.66), ("spo", 15.84)):
        write(tmp_path / "a", label, {1: (0, 999), 64: (lag, 936)})
    assert [name for name in headings(tmp_path) if name.endswith("kept")] == ["score, K = 64 (lag 16), and kept"]


def test_a_study_that_lacks_runs_has_no_budget_yet(tmp_path: Path) -> None:
    write(tmp_path / "a", "vaco", {1: (0, 900.0), 4: (3, 500.0)})
    study = tmp_path / "a" / "study.toml"
    study.write_text('question = "?"\nenv = "Hopper"\nalgorithm = "vaco"\ncapacity = [1, 4]\nseeds = 4\n')
    assert "- a: 6 of 8 runs" in staleness_budgets(tmp_path).splitlines() and not cells(tmp_path)
    study.write_text(study.read_text().replace("seeds = 4", "seeds = 3"))
    assert [row[1] for row in cells(tmp_path)] == ["`vaco`"]
