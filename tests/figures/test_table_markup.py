"""Tables of pages: each number by hand, and their HTML, Markdown and CSV."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import quick
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
from results_helper import write_run

from staleharness.errors import UserError
from staleharness.figures import lag_tables, option_scores
from staleharness.figures.registry import SHEETS, draw, sheet
from staleharness.figures.table_markup import Block, Sheet, SheetCell, colour, text_colour
from staleharness.statistics import retained_share, scores
from staleharness.statistics.results import Results
from staleharness.store.run_grid import grid
from staleharness.store.store import Store
from staleharness.store.stored_run import StoredRun


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_share, "REPS", 200)


def read(root: Path) -> list[StoredRun]:
    return Store(root).read_all()


def test_a_run_without_a_lag_leaves_those_of_others(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = [{}, {"lag_mean": 2.0}, {"lag_mean": 2.0, "gradient_lag_mean": 6.0}]
    runs = [write_run(tmp_path, seed=i, capacity=8, said={"summary": summary}) for i, summary in enumerate(said)]
    runs.append(write_run(tmp_path, capacity=4, said={"summary": {}}))
    assert lag_tables.lags_of(Results.of(runs)) == {lag_tables.Setting(8, "uniform"): 4.0}


# --- what becomes of a table

HOSTILE = "<i>|\n# x"
TABLE = Sheet(
    "Kept",
    ["share kept; n = 2", ""],
    [
        Block(
            "all",
            HOSTILE,
            ["K = 1"],
            [("ppo", [SheetCell("0.5", "[0.4, 0.6]", 1.0, bold=True)]), (HOSTILE, [SheetCell(HOSTILE)])],
        )
    ],
)


def test_no_name_breaks_out_of_its_cell_in_markdown() -> None:
    lines = TABLE.markdown().splitlines()
    assert lines[:5] == [
        "| <i>\\| # x | K = 1 |",
        "| --- | ---: |",
        "| ppo | **0.5** [0.4, 0.6] |",
        "| <i>\\| # x | <i>\\| # x |",
        "",
    ]
    assert lines[5] == "*Share kept; n = 2.*"


def test_html_escapes_every_text_and_shades_cells() -> None:
    page = TABLE.html()
    assert "<i>" not in page and page.count("&lt;i&gt;") == 3
    assert (
        '<td class="num" style="background:#1b5e8c;color:#fff"><b>0.5</b><br><small>[0.4,&nbsp;0.6]</small></td>'
        in page
    )
    assert '<th scope="col" class="num">K&nbsp;=&nbsp;1</th>' in page and '<th scope="row">ppo</th>' in page
    assert TABLE._repr_html_().startswith("<h3>Kept</h3>")


def test_text_on_every_shade_can_be_read() -> None:
    """Contrast of text and cell is at least 4.5:1, as WCAG 2.2 asks of body text."""
    for shade in np.linspace(0, 1, 101):
        channels = np.array([to_rgb(shade_to_hex(shade)) for shade_to_hex in (colour, text_colour)])
        linear = np.where(channels <= 0.03928, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        dark, light = np.sort(linear @ [0.2126, 0.7152, 0.0722]) + 0.05
        assert light / dark >= 4.5, shade


def test_csv_has_a_line_per_cell() -> None:
    rows = list(csv.DictReader(io.StringIO(TABLE.to_csv())))
    assert rows[0] == {"block": "all", "row": "ppo", "column": "K = 1", "value": "0.5", "interval": "[0.4, 0.6]"}
    assert len(rows) == 2


def test_where_runs_are_missing_the_table_says_so_first() -> None:
    draft = Sheet("Kept", ["n = 2"], TABLE.blocks, draft=True)
    assert draft.lines == ["DRAFT, runs are missing.", "N = 2."] and "DRAFT" in draft.html()


def test_shades_are_those_between_the_three_colours() -> None:
    known = LinearSegmentedColormap.from_list("x", ["#F7F7F2", "#9CC3DC", "#1B5E8C"], N=10001)
    for shade in (-1.0, 0.0, 0.2, 0.5, 0.71, 1.0, 2.0):
        theirs = to_hex(known(min(1.0, max(0.0, shade))))
        ours = colour(shade)
        assert all(abs(int(ours[i : i + 2], 16) - int(theirs[i : i + 2], 16)) <= 1 for i in (1, 3, 5))


def test_a_table_requested_as_a_figure_names_the_function(tmp_path: Path) -> None:
    results = Results.of([write_run(tmp_path, "spo", seed, sampled=1.0 + seed) for seed in (0, 1)])
    with pytest.raises(UserError, match=r"risk_table is a table, not a figure: sheet\('risk_table', results\)"):
        draw("risk_table", results)
    with pytest.raises(UserError, match=r"staleness is a figure, not a table: draw\('staleness', results\)"):
        sheet("staleness", results)
    with pytest.raises(UserError, match="did you mean 'risk_table'"):
        sheet("risk_tabel", results)
    assert sheet("risk_table", results).title == "Score kept, by lag"


# --- the phase diagram


def test_a_phase_diagram_marks_the_best_value_at_each_capacity(tmp_path: Path) -> None:
    for k, best in ((1, 0.1), (4, 0.01)):
        for rate in (0.01, 0.1):
            for seed in (0, 1):
                level = 100.0 * (rate == best) + seed
                settings = {"learning_rate": rate, "hyper": {}}
                write_run(tmp_path, f"spo[learning_rate={rate}]", seed, capacity=k, sampled=level, settings=settings)
    runs = read(tmp_path)
    (block,) = option_scores.phase_diagram(Results.of(runs), quick(runs), option="learning_rate").blocks
    assert block.title == "SPO" and list(block.columns) == ["K = 1", "K = 4"]
    assert [(name, [entry.bold for entry in row]) for name, row in block.rows] == [
        ("0.1", [True, False]),
        ("0.01", [False, True]),
    ]
    table = {(r["capacity"], r["algorithm"]): r for r in quick(runs).rows}
    row = table[1, "spo[learning_rate=0.1]"]
    interval = f"[{row['iqm_low']:.2f}, {row['iqm_high']:.2f}]"
    assert block.rows[0][1][0] == SheetCell(f"{row['iqm']:.2f}", interval, row["iqm"], True)


def test_values_of_an_option_may_be_texts_and_lists(tmp_path: Path) -> None:
    for i, value in enumerate(("oldest", "uniform", [64, 64], 4)):
        write_run(tmp_path, f"spo[depth={i}]", 0, settings={"depth": value, "hyper": {}})
    runs = read(tmp_path)
    (block,) = option_scores.phase_diagram(Results.of(runs), quick(runs), option="depth").blocks
    assert [name for name, _ in block.rows] == ["uniform", "oldest", "64, 64", "4"]
    with pytest.raises(UserError, match=r"option='depth' has the value .*; this table multiplies it and needs numbers"):
        sheet("collapse", Results.of(runs), quick(runs), option="depth")


# --- the risk table


def test_the_share_kept_is_measured_from_a_random_policy() -> None:
    assert scores.random_returns(["Hopper-v5", "Nowhere-v0"], "sampled") == {"Hopper-v5": 15.23}


def test_the_share_kept_is_a_mean_over_environments(tmp_path: Path) -> None:
    zero = scores.random_returns(["Hopper-v5", "Walker2d-v5"], "sampled")
    for env, shares in (("Hopper-v5", (0.5, 0.7)), ("Walker2d-v5", (0.1, 0.3))):
        for seed, share in enumerate(shares):
            write_run(tmp_path, "vaco", seed, env=env, capacity=1, sampled=zero[env] + 100, phases=3)
            write_run(tmp_path, "vaco", seed, env=env, capacity=4, sampled=zero[env] + 100 * share, phases=3)
    found = grid(read(tmp_path))
    kept = retained_share.retention(found, "vaco", 4, "sampled")
    assert kept is not None and kept.share == pytest.approx(0.4)
    assert kept.low == pytest.approx(0.3) and kept.high == pytest.approx(0.5)
    assert retained_share.retention(found, "vaco", 1, "sampled") == retained_share.Retention(
        pytest.approx(1.0), None, None
    )
    assert retained_share.retention(found, "vaco", 16, "sampled") is None


def test_methods_that_did_not_learn_keep_nothing(tmp_path: Path) -> None:
    for label, gain in (("vaco", 1000.0), ("spo", 50.0)):
        for k in (1, 4):
            write_run(tmp_path, label, 0, env="Hopper-v5", capacity=k, sampled=15.23 + gain, phases=3)
    runs = read(tmp_path)
    assert retained_share.retention(grid(runs), "spo", 4, "sampled") is None
    (block,) = lag_tables.risk_table(Results.of(runs), quick(runs)).blocks
    said = [[entry.value for entry in entries] for _, entries in block.rows]
    unmeasured = ["not measured"] * 3
    assert [name for name, _ in block.rows] == ["VACO", "SPO"]  # who keeps most first
    assert said == [["100%", "100%", *unmeasured], ["–", "–", *unmeasured]]
    assert list(block.columns) == ["0–1: 0 steps (K = 1)", "0–1: 0.5 steps (K = 4)", "2–5: –", "6–20: –", "20+: –"]


def test_the_bands_of_the_lesson_hold_each_lag_once() -> None:
    names = [lag_tables.band_name(lag_tables.band_of(lag)) for lag in (0, 1.9, 2, 5.7, 6, 20.9, 21, 557)]
    assert names == ["0–1", "0–1", "2–5", "2–5", "6–20", "6–20", "20+", "20+"]


def test_methods_may_share_runs_without_lag(tmp_path: Path) -> None:
    """On tokens, where the lag stands in the label, and accuracies are counted from 0."""
    for label, lag, score in (
        ("ppo_clip[lag=fixed:0]", 0, 0.8),
        ("ppo_clip[lag=fixed:4]", 4, 0.6),
        ("tis[lag=fixed:4]", 4, 0.2),
    ):
        for seed in (0, 1):
            settings = {"lag": f"fixed:{lag}", "hyper": {}}
            own: dict[str, Any] = {"kind": "language", "settings": settings, "phases": 3}
            write_run(tmp_path, label, seed, env="word-problems", capacity=5, sampled=score, **own)
    runs = read(tmp_path)
    (block,) = lag_tables.risk_table(Results.of(runs), quick(runs), base="ppo_clip[lag=fixed:0]").blocks
    rows = {name: [entry.value for entry in entries] for name, entries in block.rows}
    assert sorted(rows) == ["PPO-clip", "TIS"]
    assert "75%" in rows["PPO-clip"] and "100%" in rows["PPO-clip"]
    assert "25%" in rows["TIS"] and "100%" not in rows["TIS"]


# --- scores by mismatch model


def test_scores_by_mismatch_mark_what_ends_below_no_mismatch(tmp_path: Path) -> None:
    for k, after_int4 in ((1, 0.3), (8, 0.9)):
        for label, model, score in (
            ("tis", "none", 0.9),
            ("tis[mismatch=int4]", "int4", after_int4),
            ("ppo_clip[mismatch=noise:0.1]", "noise:0.1", 0.2),
        ):
            for seed in (0, 1):
                own: dict[str, Any] = {"kind": "language", "settings": {"mismatch": model, "hyper": {}}, "phases": 3}
                write_run(tmp_path, label, seed, env="word-problems", capacity=k, sampled=score, **own)
    runs = read(tmp_path)
    results = Results.of(runs)
    section = SHEETS["score_by_mismatch"].section
    assert section is not None and section.fits(results)
    assert not section.fits(Results.of([run for run in runs if run.label == "tis"]))
    page = option_scores.score_by_mismatch(results, quick(runs))
    assert "bold: the interval, or each of the runs, is below the estimate without a mismatch" in page.about[0]
    blocks = page.blocks
    assert [block.title for block in blocks] == ["K = 1", "K = 8"]
    assert list(blocks[0].columns) == ["no mismatch", "int4", "noise:0.1"]
    cells = {name: [(entry.value, entry.bold) for entry in row] for name, row in blocks[0].rows}
    iqm = {r["algorithm"]: f"{r['iqm']:.2f}" for r in quick(runs).rows if r["capacity"] == 1}
    assert cells["TIS"] == [(iqm["tis"], False), (iqm["tis[mismatch=int4]"], True), ("–", False)]
    noise = iqm["ppo_clip[mismatch=noise:0.1]"], False
    assert cells["PPO-clip"] == [("–", False), ("–", False), noise], "no run without a mismatch to be below"
    assert [entry.bold for entry in dict(blocks[1].rows)["TIS"]] == [False, False, False]
    table = quick(runs)
    table.settings["names"] = {"noise:0.1": "noise 0.1", "int4": "4 bits"}
    columns = option_scores.score_by_mismatch(results, table).blocks[0].columns
    assert list(columns) == ["no mismatch", "noise 0.1", "4 bits"], "not in the order in which the figure names them"


# --- the drift in two factors


def test_the_drift_adds_up_to_both_factors(tmp_path: Path) -> None:
    """In a blind run, whose own μ is the version, what is recorded of the sampler is added."""
    tails = {name: [0.01, 0.03] for name in lag_tables.TAILS}
    sees = {"mismatch/kl_k1_engine_data": [0.1, 0.3], "mismatch/kl_k1_lag_data": [0.0, 0.5], "kl_k1_data": [0.1, 0.8]}
    blind = {"mismatch/kl_k1": [0.2, 0.2], "kl_k1_data": [0.0, 0.4]}
    none = {"kl_k1_data": [0.0, 0.4]}
    for label, columns, settings in (
        ("ppo_clip[mismatch=int4]", sees | tails, {"mismatch": "int4"}),
        ("vaco[behaviour=version,mismatch=int4]", blind, {"mismatch": "int4", "behaviour": "version"}),
        ("ppo_clip", none, {}),
    ):
        write_run(tmp_path, label, settings=settings | {"hyper": {}}, phases=2, columns=columns)
    runs = read(tmp_path)
    results = Results.of(runs)
    section = SHEETS["two_factors"].section
    assert section is not None and section.fits(results)
    assert not section.fits(Results.of([run for run in runs if run.label == "ppo_clip"]))
    drift, tail = lag_tables.two_factors(results, quick(runs)).blocks
    assert list(drift.columns) == ["engine", "lag", "both"]
    said = {name.split(",")[0]: [(x.value, x.below) for x in row] for name, row in drift.rows}
    assert list(said.values()) == [
        [("0.2000", "last 0.3000"), ("0.2500", "last 0.5000"), ("0.4500", "last 0.8000")],
        [("0.2000", "last 0.2000"), ("0.2000", "last 0.4000"), ("0.4000", "last 0.6000")],
    ]
    assert [(x.value, x.below) for x in tail.rows[0][1]] == [("2.00%", "last 3.00%")] * 6
    assert lag_tables._drift_cell([np.array([-1e-9, -1e-9])]) == SheetCell("0.0000", "last 0.0000")


def test_the_drift_is_that_of_the_budget(tmp_path: Path) -> None:
    filling = {"mismatch/kl_k1": [0.0, 0.1, 0.3], "kl_k1_data": [0.0, 0.2, 0.4], "mismatch/kl_k3": [0.0, 0.1, 0.1]}
    columns = filling | {"mismatch/surprisal_gap": [0.0, 2.0, 4.0]}
    write_run(tmp_path, "tis", settings={"hyper": {}, "fill_phases": 1}, phases=3, columns=columns)
    runs = read(tmp_path)
    drift, sampler = lag_tables.two_factors(Results.of(runs), quick(runs)).blocks
    assert [cell.value for cell in drift.rows[0][1]] == ["0.2000", "0.3000", "0.5000"]
    assert [cell.value for cell in sampler.rows[0][1]] == ["0.100000", "3.00"]


def test_a_measured_mismatch_has_the_drift_table_too(tmp_path: Path) -> None:
    """Another number format, decoder or a kept cache is no setting of `MISMATCH`; what is measured tells."""
    lag = {"mismatch/kl_k1": [0.0, 0.0], "kl_k1_data": [0.1, 0.2]}
    for label, k3, gap in (
        ("tis", [2e-5, 1e-5], [0.1, -0.3]),
        ("vaco", [0.0, 0.0], [-4.0, -5.0]),
        ("spo", [1e-9, 0.0], [0.5, 2.0]),
    ):
        columns = lag | {"mismatch/kl_k3": k3, "mismatch/surprisal_gap": gap}
        write_run(tmp_path, label, settings={"hyper": {}}, phases=2, columns=columns)
    runs = {run.label: run for run in read(tmp_path)}
    apart = {label: lag_tables.samples_apart(run) for label, run in runs.items()}
    assert apart == {"tis": True, "vaco": True, "spo": False}
    results = Results.of([runs["tis"]])
    drift, sampler = lag_tables.two_factors(results, quick([runs["tis"]])).blocks
    assert list(sampler.columns) == ["k3", "surprisal gap"] and len(drift.rows) == 1
    cells = [(x.value, x.below) for x in sampler.rows[0][1]]
    assert cells == [("0.000015", "last 0.000010"), ("-0.10", "last -0.30")]


def test_negative_numbers_stay_numbers_in_csv() -> None:
    cells = [SheetCell("-2.08", "last -2.51"), SheetCell("-3%"), SheetCell("=1+1"), SheetCell("+1.5e-3")]
    sheet = Sheet("x", ["n = 2"], [Block("all", "row", ["a", "b", "c", "d"], [("ppo", cells)])])
    rows = list(csv.DictReader(io.StringIO(sheet.to_csv())))
    assert [row["value"] for row in rows] == ["-2.08", "-3%", "'=1+1", "+1.5e-3"]


def test_equal_numbers_of_gradient_steps_keep_their_rows(tmp_path: Path) -> None:
    for epochs, minibatches, score in ((1, 4, 100.0), (2, 2, 500.0), (1, 1, 300.0)):
        for k in (1, 4):
            for seed in range(3):
                settings = {"epochs": epochs, "minibatches": minibatches}
                label = f"vaco[epochs={epochs},minibatches={minibatches}]"
                write_run(tmp_path, label, seed, capacity=k, sampled=score + seed, settings=settings)
    found = Results.of(Store(tmp_path).read_all())
    (block,) = lag_tables.backward_forward(found, found.table(reps=50, engine="quick", normalise="raw")).blocks
    assert [(name, cells[0].value) for name, cells in block.rows] == [
        ("4 steps (2 × 2)", "501.00"),
        ("4 steps (1 × 4)", "101.00"),
        ("1 step", "301.00"),
    ]
