"""The page's table of what a cap costs: committed as simulated, and what the text says of it."""

from __future__ import annotations

import importlib.util

from places import ROOT

spec = importlib.util.spec_from_file_location("time_per_step", ROOT / "docs" / "time_per_step.py")
assert spec is not None and spec.loader is not None
time_per_step = importlib.util.module_from_spec(spec)
spec.loader.exec_module(time_per_step)
PAGE = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")


def test_the_committed_table_is_what_is_simulated() -> None:
    (caps,) = time_per_step.simulate_caps(time_per_step.SPREADS["light"], (250,)).values()
    assert time_per_step.row("light", 250, caps) in PAGE
    assert [cap.binds for cap in caps] == ["admission"] * 3 + ["trainer"] * 3
    # where nothing but the trainer binds a step takes what the trainer takes: 2 s and 5.5 ms a token
    assert abs(caps[-1].step_seconds - (2.0 + 0.0055 * 250)) < 0.02 * caps[-1].step_seconds
    # a synchronous step waits for the slowest of 256 rows and then trains
    assert caps[0].step_seconds > 250 * 0.02 * (1 + 2 * 0.3) + 3.3


def test_the_table_has_every_length_and_cap() -> None:
    table = PAGE.partition(time_per_step.BEGIN)[2].partition(time_per_step.END)[0].strip()
    rows = table.splitlines()[2:]
    assert len(rows) == len(time_per_step.LENGTHS) * len(time_per_step.SPREADS)
    assert all(row.count("|") == len(time_per_step.CAPS) + 3 for row in rows)
    assert time_per_step.with_table(PAGE, table) == PAGE
