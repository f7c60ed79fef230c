"""What a report does once, however many figures show it: read a file, sort runs into a grid, draw a format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from results_helper import write_grid

from staleharness.figures import canvas
from staleharness.pages import report
from staleharness.statistics import bootstrap
from staleharness.statistics.results import load
from staleharness.store import cells, packed, stored_run

SEEDS, LABELS, CAPACITIES = 5, ("ppo_clip", "vaco"), (1, 8)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Counter[Any]]:
    """Count the calls of a function, by what `key` makes of its first argument."""

    def count(room: Any, name: str, key: Callable[[Any], Any]) -> Counter[Any]:
        calls: Counter[Any] = Counter()
        real = getattr(room, name)

        def spy(first: Any, *others: Any, **options: Any) -> Any:
            calls[key(first)] += 1
            return real(first, *others, **options)

        monkeypatch.setattr(room, name, spy)
        return calls

    return count


def test_a_report_opens_each_file_and_makes_each_grid_band_and_format_once(
    tmp_path: Path, counted: Callable[..., Counter[Any]]
) -> None:
    write_grid(tmp_path, LABELS, envs=("Hopper-v5", "Ant-v5"), capacities=CAPACITIES, seeds=SEEDS, phases=4)
    tables = counted(stored_run, "arrow_table", str)
    files = counted(Path, "read_bytes", str)
    grids = counted(cells, "grid", type)
    drawn = counted(Figure, "draw", lambda figure: figure)
    formats = counted(canvas, "to_bytes", lambda figure: figure)
    bootstrap._band.cache_clear()

    results = load(tmp_path)
    assert len(results) == 2 * 2 * 2 * SEEDS
    report.write(tmp_path / "report", results, results.table(reps=50, engine="quick"))

    metrics = {path: n for path, n in tables.items() if path.endswith("metrics.parquet")}
    assert len(metrics) == len(results) and set(tables.values()) == {1}
    own = {path: n for path, n in files.items() if "/runs/" in path}
    assert len(own) == 5 * len(results) and set(own.values()) == {1}
    assert grids == {tuple: 1}
    # at each width one band per algorithm, environment and capacity, and one over environments: drawn for the first
    bands = len(LABELS) * len(CAPACITIES) * (2 + 1)
    assert bootstrap._band.cache_info()[:2] == (bands, bands)  # hits, misses
    assert drawn == formats
    assert Counter(formats.values()) == {
        3: len(formats) // 2,
        1: len(formats) // 2,
    }  # SVG, PNG, PDF; narrow: SVG


def test_packed_runs_are_cut_from_tables_that_are_read_once(
    tmp_path: Path, counted: Callable[..., Counter[Any]]
) -> None:
    from staleharness.store.pack import pack

    write_grid(tmp_path / "out", LABELS, seeds=3, phases=4)
    pack(str(tmp_path / "out"), str(tmp_path / "packed"), None)
    tables = counted(packed, "arrow_table", lambda path: path.name)
    folder, bundle = load(tmp_path / "out"), load(tmp_path / "packed")
    for mine, theirs in zip(folder, bundle, strict=True):
        for name in ("steps", "eval_sampled", "lag_mean", "seconds/learn"):
            a, b = mine.column(name), theirs.column(name)
            assert a is not None and b is not None and a.tobytes() == b.tobytes()
            assert a is mine.column(name)
        assert mine.column("nothing") is None and theirs.column("seconds/nothing") is None
    assert tables == {"runs.parquet": 1, "metrics.parquet": 1, "timing.parquet": 1}
