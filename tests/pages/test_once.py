"""Work of a report: each file, table, grid, band and format once."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from quick_figures import draw_quickly
from results_helper import write_grid, write_run

from staleharness.figures import plot_layout
from staleharness.pages import report
from staleharness.statistics import bootstrap
from staleharness.statistics.results import Results, load
from staleharness.statistics.row_diagnostics import STALENESS
from staleharness.store import bundle_reader, run_grid, stored_run

SEEDS, LABELS, CAPACITIES = 2, ("ppo_clip", "vaco"), (1, 8)


@pytest.fixture
def count_calls(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Counter[Any]]:
    """Count the calls of a function, by what `key` makes of its first argument."""

    def count(module: Any, name: str, key: Callable[[Any], Any]) -> Counter[Any]:
        calls: Counter[Any] = Counter()
        real = getattr(module, name)

        def spy(first: Any, *others: Any, **options: Any) -> Any:
            calls[key(first)] += 1
            return real(first, *others, **options)

        monkeypatch.setattr(module, name, spy)
        return calls

    return count


@pytest.mark.long
def test_a_report_does_no_work_twice(
    tmp_path: Path, count_calls: Callable[..., Counter[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_quickly(monkeypatch)
    write_grid(tmp_path, LABELS, envs=("Hopper-v5", "Ant-v5"), capacities=CAPACITIES, seeds=SEEDS, phases=4)
    tables = count_calls(stored_run, "arrow_table", str)
    files = count_calls(Path, "read_bytes", str)
    grids = count_calls(run_grid, "grid", type)
    drawn = count_calls(Figure, "draw", lambda figure: figure)
    formats = count_calls(plot_layout, "to_bytes", lambda figure: figure)
    bootstrap._band.cache_clear()

    results = load(tmp_path)
    assert len(results) == 2 * 2 * 2 * SEEDS
    report.write(tmp_path / "report", results, results.table(reps=50, engine="quick"))

    metrics = {path: n for path, n in tables.items() if path.endswith("metrics.parquet")}
    assert len(metrics) == len(results) == len(tables)
    assert set(tables.values()) == {2}  # for its learning curves, and with its row for what else is shown
    kept = {"path", "record", "seal", "curves", "_curves"}
    assert {name for run in results for name in vars(run)} == kept
    own = {path: n for path, n in files.items() if "/runs/" in path}
    assert len(own) == 5 * len(results) and set(own.values()) == {1}
    assert grids == {tuple: 1}
    # at each width one band per algorithm, environment and capacity, and one over environments: drawn for the first
    bands = len(LABELS) * len(CAPACITIES) * (2 + 1)
    assert bootstrap._band.cache_info()[:2] == (bands, bands)  # hits, misses
    count = len(formats) // 2
    assert Counter(formats.values()) == {2: count, 1: count}  # SVG and PNG; narrow: SVG
    assert Counter((drawn - formats).values()) == {1: count}  # each wide one as a page of the PDF


def peak_while_measured(folder: Path) -> int:
    """Bytes at the peak over what was held before, while diagnostics are taken of all runs of a folder."""
    results = load(folder)
    tracemalloc.start()
    try:
        held = results.diagnostics
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(held) == len(results.grid.rows)
    return peak


def test_the_columns_of_one_row_are_held_at_a_time(tmp_path: Path) -> None:
    few, many = (1, 2), (1, 2, 4, 8, 16, 32, 64, 128)
    for ks in (few, many):
        write_grid(tmp_path / str(len(ks)), ["vaco"], capacities=ks, seeds=4, phases=500)
    peak_while_measured(tmp_path / "2")  # what is imported on the way is not counted
    row = 4 * 500 * 8 * (1 + len(STALENESS))  # bytes of its columns
    peaks = [peak_while_measured(tmp_path / str(len(ks))) for ks in (few, many)]
    found = 4 * 2 * 100 * 8  # bytes of a row's means in bins, which stay
    assert row < peaks[0] < 5 * row
    assert peaks[1] < peaks[0] + row + 2 * found * len(many)


def test_a_curve_is_a_few_numbers_that_hold_no_column(tmp_path: Path) -> None:
    run = write_run(tmp_path, curve=[1.0, 2.0, 4.0], phases=100)
    steps, values = run.curves["sampled"]
    assert (steps / 2048).tolist() == [1, 51, 100] and values.tolist() == [1.0, 2.0, 4.0]
    assert steps.base is None and values.base is None
    assert run.curves["sampled"][0] is steps


def test_the_lists_of_a_report_are_those_that_pandas_makes(tmp_path: Path) -> None:
    write_grid(tmp_path, LABELS, capacities=CAPACITIES, seeds=2, phases=7)
    results = load(tmp_path)
    runs = sorted(results, key=lambda r: (run_grid.cell_of(r), r.seed))
    pieces = list(report._curves_csv(runs))
    assert len(pieces) == 1 + 2 * len(runs)
    frame = Results.of(runs).curves().rename(columns={"env": "environment", "value": "return"})
    columns = ["algorithm", "environment", "K", "seed", "run", "score", "steps", "return"]
    assert "".join(pieces) == frame[columns].to_csv(index=False)


def test_an_archive_is_that_of_the_files_as_they_are(tmp_path: Path) -> None:
    files = {"b.csv": b"1,2\n" * 50_000, "a.csv": b""}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    made = []
    for order in (files, reversed(files)):
        stream = io.BytesIO()
        report.zip_into(stream, [tmp_path / name for name in order])
        made.append(stream.getvalue())
    assert made[0] == made[1]
    with zipfile.ZipFile(stream) as archive:
        assert archive.namelist() == ["a.csv", "b.csv"]
        assert {name: archive.read(name) for name in files} == files


def test_packed_runs_are_cut_from_tables_that_are_read_once(
    tmp_path: Path, count_calls: Callable[..., Counter[Any]]
) -> None:
    from staleharness.store.bundle_writer import pack

    write_grid(tmp_path / "out", LABELS, seeds=3, phases=4)
    pack(str(tmp_path / "out"), str(tmp_path / "packed"), None)
    tables = count_calls(bundle_reader, "arrow_table", lambda path: path.name)
    folder, bundle = load(tmp_path / "out"), load(tmp_path / "packed")
    for mine, theirs in zip(folder, bundle, strict=True):
        for name in ("steps", "eval_sampled", "lag_mean", "seconds/learn"):
            a, b = mine.column(name), theirs.column(name)
            assert a is not None and b is not None and a.tobytes() == b.tobytes()
            assert a is mine.column(name)
        assert mine.column("nothing") is None and theirs.column("seconds/nothing") is None
    # once for the names of the runs that its rows are of, once whole
    assert tables == {"runs.parquet": 1, "metrics.parquet": 2, "timing.parquet": 2}
