"""The leaderboard's pages are those of the published runs, and their numbers those of independent computations."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import earlier_tracks
import leaderboard
import numpy as np
import pandas as pd
import pytest
from boards import board, row, track
from places import ROOT
from scipy import stats

from staleharness.algorithm import ALGORITHMS
from staleharness.base.options import active_options
from staleharness.base.plugins import source_hash
from staleharness.figures.leaderboard_tracks import draw_scores
from staleharness.figures.plot_layout import COLUMN, PAGE
from staleharness.pages.leaderboard_page import leaderboard_html
from staleharness.statistics.benchmark.protocol import read_protocol
from staleharness.statistics.bootstrap import iqm
from staleharness.statistics.leaderboard_scores import Leaderboard, Track
from staleharness.statistics.method_labels import display_label

DOCS, PUBLISHED = ROOT / "docs", ROOT / "results" / "reference"


@pytest.fixture(scope="module")
def published() -> Leaderboard:
    return leaderboard.board(PUBLISHED)


@pytest.fixture(scope="module")
def paper(published: Leaderboard) -> Track:
    (track,) = [track for track in published.tracks if not track.protocol]
    return track


def areas() -> pd.DataFrame:
    """Areas of vaco_ratio from its flat table, on the scale of random returns and of PPO-clip at K = 1."""
    runs = pd.concat(map(pd.read_parquet, sorted((PUBLISHED / "vaco_ratio").glob("runs*.parquet"))))
    random = {"HalfCheetah-v5": -357.2, "Hopper-v5": 15.23, "Walker2d-v5": -1.34}
    runs["gain"] = runs.area - runs.env.map(random)
    top = runs[(runs.label == "ppo_clip") & (runs.K == 1)].groupby("env").gain.mean()
    return runs.assign(scaled=runs.gain / runs.env.map(top))


def without_plots(page: str) -> str:
    """The page without its matplotlib figures, whose text widths are those of a machine's fonts."""
    return re.sub(r'<div class="(wide|narrow)"><svg.*?</svg></div>', "", page, flags=re.DOTALL)


@pytest.mark.long
def test_the_committed_pages_are_those_of_the_published_runs(published: Leaderboard) -> None:
    import generate

    assert (DOCS / "leaderboard.md").read_text(encoding="utf-8") == leaderboard.markdown(published), "run make docs"
    page = leaderboard_html(published, generate.method_texts())
    committed = (DOCS / "leaderboard.html").read_text(encoding="utf-8")
    assert without_plots(committed) == without_plots(page), "run make docs"
    assert len(committed.encode()) < 2_000_000 and committed.count("<svg") > 10
    assert all((DOCS / name).stat().st_size > 10_000 for name in ("leaderboard.png", "leaderboard_narrow.png"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert leaderboard.readme_table(published) in readme, "run make docs"


def test_scores_are_those_of_the_flat_table(paper: Track) -> None:
    runs = areas()
    assert len(paper.rows) == 7
    for method in paper.rows:
        by_k = [iqm(runs[(runs.label == method.label) & (k == runs.K)].scaled.to_numpy()) for k in paper.ks]
        measured = [method.capacities[k].score.value for k in paper.ks]
        assert measured == pytest.approx([float(v) for v in by_k], abs=0.02)  # 0 is as measured in runs
        assert method.score.value == pytest.approx(np.mean(measured))
        assert method.score.low < method.score.value < method.score.high
        assert method.retention.value == pytest.approx(measured[-1] / measured[0])


def test_a_difference_on_one_task_is_welchs() -> None:
    rng = np.random.default_rng(5)
    own, base = rng.normal(0.4, 0.1, 7), rng.normal(0.2, 0.3, 5)
    found = earlier_tracks._against_baseline({"spo": {"A": own}, "ppo_clip": {"A": base}})["spo"]
    expected = stats.ttest_ind(own, base, equal_var=False)
    interval = expected.confidence_interval()
    assert found[1] == pytest.approx(expected.pvalue)
    assert (found[0].low, found[0].high) == pytest.approx((interval.low, interval.high))


def test_p_values_are_corrected_over_the_rows() -> None:
    rng = np.random.default_rng(5)
    columns = {f"m{i}": {"A": rng.normal(0.1 * i, 0.2, 6)} for i in range(4)} | {
        "ppo_clip": {"A": rng.normal(0, 0.2, 6)}
    }
    found = earlier_tracks._against_baseline(columns)
    plain = sorted(stats.ttest_ind(columns[m]["A"], columns["ppo_clip"]["A"], equal_var=False).pvalue for m in found)
    assert min(p for _, p in found.values()) == pytest.approx(min(1.0, 4 * plain[0]))
    copies = columns | {"copy": columns["ppo_clip"], "copy of m3": columns["m3"]}
    again = earlier_tracks._against_baseline(copies)
    assert "copy" not in again and again == found | {"copy of m3": found["m3"]}


def test_methods_that_a_track_refuses_are_named() -> None:
    control, tokens = (leaderboard.undefined_methods(read_protocol(name)) for name in ("control", "tokens"))
    assert control == ["oapl", "otb", "tba", "vcpo"] and tokens == ["truly_ppo"]


def test_rows_older_than_the_record_of_their_code_have_its_hash(published: Leaderboard) -> None:
    rows = {row.name: row.code for track in published.tracks if track.protocol for row in track.rows}
    ours = source_hash(ALGORITHMS["ppo_clip"], active_options(ALGORITHMS["ppo_clip"]()))
    assert rows["ppo_clip"] == rows["ppo_clip_window"] == (ours,) and all(rows.values())


def test_a_difference_between_kinds_of_cpu_is_marked() -> None:
    base, other = row("ppo_clip", 0.5), row("spo", 0.7)
    marked = replace(other, capacities={k: replace(r, between_cpus=True) for k, r in other.capacities.items()})
    pages = [leaderboard.markdown(Leaderboard("B", (track("a", [base, spo]),))) for spo in (other, marked)]
    assert "†" not in pages[0] and pages[1].count("†") == 2


def test_the_headline_has_thirty_rows_at_most_best_on_both_first(published: Leaderboard) -> None:
    def names(page: str) -> list[str]:
        table = page.partition("| --- |")[2].partition("\n## ")[0]
        return [line.split(" | ")[0].strip("| ") for line in table.splitlines()[1:] if line.startswith("| ")]

    assert {"A-3PO", "PPO-clip", "PPO-clip, wide window"} <= set(names(leaderboard.markdown(published)))
    large = board(methods=40)
    assert len(names(leaderboard.markdown(large))) == 30 and "10 more rows are on the [whole" in leaderboard.markdown(
        large
    )
    rows = [row("ppo_clip", 0.5), row("spo", 0.7), row("vaco", 0.9)]
    two = Leaderboard("B", (track("a", rows[:2]), track("b", rows)))
    assert names(leaderboard.markdown(two)) == ["SPO", "PPO-clip", "VACO"]


@pytest.mark.parametrize("width", [PAGE, COLUMN])
def test_the_picture_has_the_rows_of_the_table_in_its_order(width: float) -> None:
    rows = [row("ppo_clip", 0.5), *(row(f"method_{i:02d}", 1.0 - 0.01 * i) for i in range(40))]
    one = Leaderboard("B", (track("a", [rows[0], *rows[11:]]), track("b", rows)))
    names = leaderboard.row_names(one.tracks)[: leaderboard.MAX_ROWS]
    assert names == [f"method_{i:02d}" for i in range(10, 40)]
    figure = draw_scores(one, width, [*names, "method_00", "ppo_clip"])
    for ax, count in zip(figure.axes, (31, 32) if width == COLUMN else (32, 32), strict=True):
        assert len(ax.get_yticks()) == count
        dots = [
            float(line.get_xdata()[0])
            for line in ax.lines
            if line.get_marker() == "o" and abs(line.get_ydata()[0]) < 0.5
        ]
        assert dots == pytest.approx([0.9 * 1.2, 0.9 * 1.1, 0.9]), "K = 1, 4, 16 of method_10"
    texts = [text for ax in figure.axes for text in ax.get_yticklabels()]
    assert {text.get_text() for text in texts if text.get_fontweight() == "bold"} - {""} == {"PPO-clip"}


def test_the_readme_shows_tracks_with_enough_rows_between_two_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row("ppo_clip", 0.5), row("vaco", 0.9), *(row(f"method_{i:02d}", 0.1) for i in range(9))]
    small = track("tokens v1", rows[:2])
    monkeypatch.setattr(leaderboard, "board", lambda folder: Leaderboard("B", (track("control", rows), small)))
    page = "before\n{}\nan earlier table\n{}\nafter\n".format(*leaderboard.README_MARKS)
    for torn in (page.replace(mark, "") for mark in leaderboard.README_MARKS):  # what follows would be lost
        with pytest.raises(ValueError, match="put the marks back"):
            leaderboard.with_readme_table(torn, Path())
    made = leaderboard.with_readme_table(page, Path())
    assert made.startswith("before\n") and made.endswith("\nafter\n") and "earlier table" not in made
    assert made.count("| method_") == leaderboard.README_ROWS - 2 and "tokens v1" not in made
    assert "| VACO | 1.08 [1.03, 1.13] | 0.90 [0.85, 0.95] |" in made


def test_a_track_with_few_rows_has_a_table_of_its_own() -> None:
    rows = [row("ppo_clip", 0.5), row("spo", 0.7), row("wide", 0.9, kind="control")]
    many = [row(f"method_{i}", 0.1 * i) for i in range(6)]
    page = leaderboard.markdown(Leaderboard("B", (track("tokens", many), track("tokens v1", rows))))
    head, _, rest = page.partition("## Rows of tokens v1")
    assert "tokens v1: #" not in head and "| wide" not in head
    assert "| wide | 1.08 [1.03, 1.13] | 0.99 [0.94, 1.04] | 0.90 [0.85, 0.95] (**+0.40**) | 80% |" in rest


def test_a_method_that_did_not_learn_is_named_below_the_table() -> None:
    rows = [row("ppo_clip", 0.9), row("impala", 0.1, has_learned=False)]
    page = leaderboard.markdown(Leaderboard("B", (track("control", rows),)))
    assert "Below half of PPO-clip's score at K = 1 on control: IMPALA." in page and "| IMPALA" not in page


def test_the_page_states_the_agreement_of_two_token_settings(published: Leaderboard) -> None:
    """By the protocol and before it, over the methods that all four have; VACO at its published threshold, 0.05."""
    scores = {}
    for name in ("stress_lags", "corrections_word_problems", "stalebench_v1_tokens", "stalebench_v1_tokens_uniform"):
        runs = pd.concat(map(pd.read_parquet, sorted((PUBLISHED / name).glob("runs*.parquet"))))
        runs = runs[(runs.K == 16) & ~runs.label.str.contains("lag=|clip=|trust_region") & (runs.label != "vaco")]
        if name.startswith("stalebench"):  # the rate of the best mean of the tuning seeds, reported on the others
            runs = runs.assign(tuning=runs.seed >= 100)
            tuned = runs[runs.tuning].groupby(["method", "learning_rate"]).area.mean().reset_index()
            best = tuned.sort_values("area").groupby("method").learning_rate.last()
            runs = runs[~runs.tuning & np.isclose(runs.learning_rate, runs.method.map(best))]
        scores[name] = runs.groupby("method").area.apply(lambda values: float(iqm(values.to_numpy())))
    together = pd.concat(scores, axis=1).dropna()
    for names in (
        ("stress_lags", "corrections_word_problems"),
        ("stalebench_v1_tokens", "stalebench_v1_tokens_uniform"),
    ):
        tau = stats.kendalltau(*(together[name] for name in names))
        assert f"is {tau.statistic:.2f} (p = {tau.pvalue:.2g}".replace("-", "−") in published.notes[-1]
    assert f"over {len(together)} methods" in published.notes[-1]


def test_pages_are_written_with_a_picture_in_two_widths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaderboard, "board", lambda folder: board())
    leaderboard.write(tmp_path, tmp_path, {})
    names = ["leaderboard.html", "leaderboard.md", "leaderboard.png", "leaderboard_narrow.png"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names


def test_a_protocol_without_runs_is_counted_and_replaced_by_a_study(tmp_path: Path, published: Leaderboard) -> None:
    track, words = leaderboard.protocol_track(tmp_path, "tokens")
    assert track is None and re.match(r"tokens v1: 0 of [\d,]+ runs of the protocol are published; ", words)
    notes = " ".join(published.notes)
    for shown in published.tracks:
        assert shown.protocol or f"it is replaced by {earlier_tracks.EARLIER[shown.name][0]}" in notes


def test_a_method_page_keeps_stars_of_symbols_and_names_its_base() -> None:
    import generate

    assert generate.prose("V* = log, and b* is *not* it") == r"V\* = log, and b\* is *not* it"
    pages = generate.pages()
    assert "`icepop`, `k3_rejection`, `mis_geo` and `mis_seq` have this in common." in pages["mis_geo.md"]
    assert "Everything else is as in `prime_rl`." in pages["ipo.md"] and "loss.py:109" not in pages["ipo.md"]


def test_controls_have_no_rank_and_a_line_on_their_card(published: Leaderboard) -> None:
    import generate

    (tokens,) = [track for track in published.tracks if track.name == "tokens"]
    assert {row.name for row in tokens.ranking} - {row.name for row in tokens.methods} == set(generate.CONTROLS)
    lines = [line for line in leaderboard.markdown(published).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    at = next(row for row in cells if row[0] == "method").index("tokens: #")
    ranks = {row[0]: row[at] for row in cells if len(row) > at}
    expected = {display_label(row.label): str(rank) for rank, row in enumerate(tokens.methods, 1)}
    in_table = {name: rank for name, rank in ranks.items() if rank.isdigit()}
    assert in_table.items() <= expected.items() | {("VACO", expected["VACO, δ = 0.05"])}
    assert len(in_table) >= min(len(expected), leaderboard.MAX_ROWS - len(generate.CONTROLS))
    assert ranks["PPO-clip, wide window"] == "" and generate.method_texts()["ppo_clip_window"].summary
