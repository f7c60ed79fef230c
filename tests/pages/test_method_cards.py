"""Card of a method in a report: its facts, its options and the reach of its mechanisms."""

from __future__ import annotations

from pathlib import Path

import pytest
from results_helper import write_run

from staleharness.figures.palette import styles
from staleharness.pages.report_panels import cards, percent

METHOD = {
    "summary": "Cuts.",
    "paper": "Someone 2026",
    "family": "weight",
    "level": "token",
    "transform": "cut to 2",
    "trust_region": "none",
    "anchor": "μ",
    "proximal": "",
    "passes": "none",
    "needs": [],
    "touches": {"truncated": "weight above the cap"},
}


def test_a_card_shows_the_reach_of_each_mechanism(tmp_path: Path) -> None:
    runs = [
        write_run(
            tmp_path,
            "tis",
            seed,
            capacity=k,
            phases=4,
            said={"method": METHOD, "warnings": []},
            settings={"hyper": {"cap": 2.0, "normalise": False}},
            columns={"algorithm/truncated": [0.0, 0.0, 0.0, last], "truncated": [1.0] * 4},
        )
        for k, last in ((1, 0.0), (8, 0.4))
        for seed in (0, 1)
    ]
    (card,) = cards(runs, styles(["tis"]))
    assert (card["summary"], card["paper"], card["capacities"]) == ("Cuts.", "Someone 2026", [1, 8])
    assert card["options"] == [("cap", "2"), ("normalise", "false")]
    assert ("trust region", "none") in card["facts"] and "needs" not in dict(card["facts"])
    rows = {row["name"]: row for row in card["mechanisms"]}
    assert set(rows) == {"no gradient", "truncated"}  # `truncated` alone is of completions, not of weights
    assert rows["truncated"]["help"] == "weight above the cap"
    assert rows["truncated"]["cells"] == [{"mean": "0%", "last": "0%"}, {"mean": "10.0%", "last": "40.0%"}]


def test_a_run_without_method_facts_has_a_card(tmp_path: Path) -> None:
    (card,) = cards([write_run(tmp_path, "vaco", 0)], styles(["vaco"]))
    assert (card["summary"], card["facts"], card["options"]) == ("", [], [])
    assert [row["name"] for row in card["mechanisms"]] == ["no gradient"]


def test_a_missing_capacity_is_a_dash_in_the_card(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path, "x", 0, capacity=1),
        write_run(tmp_path, "x", 0, capacity=4, phases=2, columns={"algorithm/masked": [0.5, 0.25]}),
    ]
    (card,) = cards(runs, styles(["x"]))
    assert card["mechanisms"][-1]["cells"] == [{"mean": "–", "last": ""}, {"mean": "37.5%", "last": "25.0%"}]


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0%"), (0.1234, "12.3%"), (0.0004, "0.04%"), (1.0, "100.0%"), (0.001, "0.1%")]
)
def test_small_shares_are_not_rounded_to_nothing(value: float, text: str) -> None:
    assert percent(value) == text
