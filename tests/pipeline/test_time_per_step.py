"""The page's table of what a cap costs: committed as simulated, and what the text says of it."""

from __future__ import annotations

import importlib.util

from places import ROOT

spec = importlib.util.spec_from_file_location("time_per_step", ROOT / "docs" / "time_per_step.py")
assert spec is not None and spec.loader is not None
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)
PAGE = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")


def test_the_committed_table_is_what_is_simulated() -> None:
    (caps,) = made.simulated(made.SPREADS["light"], (250,)).values()
    assert made.row("light", 250, caps) in PAGE
    assert [cap.binds for cap in caps] == ["admission"] * 3 + ["trainer"] * 3
    # where nothing but the trainer binds a step takes what the trainer takes: 2 s and 5.5 ms a token
    assert abs(caps[-1].step_seconds - (2.0 + 0.0055 * 250)) < 0.02 * caps[-1].step_seconds
    # a synchronous step waits for the slowest of 256 rows and then trains
    assert caps[0].step_seconds > 250 * 0.02 * (1 + 2 * 0.3) + 3.3


def test_the_table_has_every_length_and_cap() -> None:
    table = PAGE.partition(made.BEGIN)[2].partition(made.END)[0].strip()
    rows = table.splitlines()[2:]
    assert len(rows) == len(made.LENGTHS) * len(made.SPREADS)
    assert all(row.count("|") == len(made.CAPS) + 3 for row in rows)
    assert made.with_table(PAGE, table) == PAGE
