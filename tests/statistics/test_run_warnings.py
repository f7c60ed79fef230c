"""What runs said of themselves is told once, of whom it is true, and at which K."""

from __future__ import annotations

from pathlib import Path

from results_helper import write_run

from staleharness.statistics.table_notes import on_warnings


def test_a_warning_names_methods_and_capacities_unless_it_is_of_all(tmp_path: Path) -> None:
    everywhere, once = "vaco: never filters", "memory grew steadily"
    runs = [
        write_run(tmp_path, "vaco", seed, capacity=k, said={"warnings": [everywhere, *([once] if k == 8 else [])]})
        for k in (1, 8)
        for seed in (0, 1)
    ]
    runs.append(write_run(tmp_path, "spo", 0, capacity=8, said={"warnings": [once]}))
    assert on_warnings(runs) == ["spo, vaco (K = 8): memory grew steadily", "vaco: never filters"]
