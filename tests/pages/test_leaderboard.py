"""The leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from places import ROOT
from results_helper import write_run

from staleharness.pages.leaderboard import leaderboard


def write(root: Path, label: str, scores: tuple[float, ...], **options: Any) -> None:
    for k, score in zip((1, 4, 16), scores, strict=False):
        for seed in range(3):
            write_run(root, label, seed, capacity=k, sampled=score + seed, **options)


def test_the_committed_page_is_that_of_the_published_bundles() -> None:
    page = (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8")
    assert page == leaderboard(ROOT / "results" / "reference"), "run make docs"


def test_rows_are_sorted_by_budget_and_bundles_without_an_answer_say_why(tmp_path: Path) -> None:
    write(tmp_path / "good", "impala", (1000, 300, 100))
    write(tmp_path / "good", "vaco", (1000, 999, 998))
    write(tmp_path / "good", "spo", (1000, 990, 100))
    for label in ("a3po", "ppo_kl"):
        write(tmp_path / "good", label, (1000,))
    write(tmp_path / "poor", "vaco", (1000,))
    page = leaderboard(tmp_path)
    lines = page.splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith(("| IMPALA", "| VACO", "| SPO"))]
    assert [row[:2] for row in rows] == [["| VACO", "`vaco`"], ["| SPO", "`spo`"], ["| IMPALA", "`impala`"]]
    assert [row[6][0] for row in rows] == ["≥", "1", "<"]
    assert "No answer for A-3PO, PPO-KL: no stale runs: it has lag 0 only." in lines
    assert "- poor: no stale runs: it has lag 0 only (vaco on Hopper-v5)" in lines
    assert "24,576 steps in 12 phases" in page and "lag = uniform" in page


def test_a_level_that_is_reached_at_once_is_replaced(tmp_path: Path) -> None:
    at_once = [700.0, 800.0, 850.0, 900.0, 950.0, 1000.0]
    for label in ("vaco", "spo"):
        write(tmp_path / "warm", label, (1000, 1000), curve=at_once)
    assert "Slowdown to 90% of the best synchronous score." in leaderboard(tmp_path)
    for label in ("vaco", "spo"):
        write(tmp_path / "cold", label, (1000, 1000), curve=[100.0, *at_once])
    assert "Slowdown to 50% of the best synchronous score." in leaderboard(tmp_path)


def test_lags_that_share_a_capacity_have_columns_of_their_own(tmp_path: Path) -> None:
    """Where the lag stands in the label, as in lesson_tokens."""
    for lag, score in ((0, 1000.0), (2, 700.0), (5, 400.0)):
        settings = {"lag": f"fixed:{lag}"}
        said = {"summary": {"lag_mean": float(lag), "lag_max": float(lag)}}
        for seed in range(3):
            own: dict[str, Any] = {"settings": settings, "said": said, "sampled": score + seed}
            write_run(tmp_path / "lags", f"vaco[lag=fixed:{lag}]", seed, capacity=6, **own)
    lines = leaderboard(tmp_path).splitlines()
    (head,) = [line.split(" | ") for line in lines if line.startswith("| method")]
    (row,) = [line.split(" | ") for line in lines if line.startswith("| VACO")]
    kept = {name: cell.split("%")[0] for name, cell in zip(head, row, strict=True) if name.startswith("kept")}
    assert kept == {"kept, K = 6 (lag 2)": "70", "kept, K = 6 (lag 5)": "39"}


def test_methods_whose_drawn_lags_differ_a_little_share_a_column(tmp_path: Path) -> None:
    for label, lag in (("vaco", 15.66), ("spo", 15.84)):
        for k, mean in ((1, 0.0), (64, lag)):
            for seed in range(3):
                said = {"summary": {"lag_mean": mean, "lag_max": mean}}
                write_run(tmp_path / "drawn", label, seed, capacity=k, sampled=1000.0 + seed - k, said=said)
    (head,) = [line for line in leaderboard(tmp_path).splitlines() if line.startswith("| method")]
    assert head.count("kept") == 1 and "kept, K = 64 (lag 16)" in head
