"""docs/corrections.md: its table on tokens is what the published runs say now."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from staleharness.statistics.results import load
from staleharness.statistics.told_apart import Difference

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def made() -> dict:
    return runpy.run_path(str(ROOT / "docs" / "generate_corrections.py"))


def test_the_committed_page_is_what_the_published_runs_make(made: dict) -> None:
    text = made["PAGE"].read_text(encoding="utf-8")
    assert made["BEGIN"] in text and made["END"] in text
    assert made["page"]() == text, "run python docs/generate_corrections.py"


def test_every_method_of_the_bundle_has_a_line_with_its_mean_and_the_best_stands_first(made: dict) -> None:
    rows = [line.split(" | ") for line in made["section"]().splitlines() if line.startswith("| ")][2:]
    means = load(made["BUNDLE"]).select(k=16).runs.groupby("algorithm")["deterministic"].mean()
    assert len(rows) == len(means)
    shown = [float(row[1]) for row in rows]
    assert shown == sorted(shown, reverse=True) and shown[0] == pytest.approx(means.max(), abs=0.005)
    assert [row[2] for row in rows].count("–") == 1  # the baseline's own


def test_only_what_a_test_tells_apart_is_bold(made: dict) -> None:
    clear, open_ = (Difference("a", "b", 8, -0.25, -0.3, -0.2, 1e-5, p) for p in (2e-4, 0.2))
    assert made["compared"](clear) == ("**−0.25 [−0.30, −0.20]**", "**< 0.001**")
    assert made["compared"](open_) == ("−0.25 [−0.30, −0.20]", "0.200")
    assert made["compared"](None) == ("–", "–")
