from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, Page, assert_only_its_own_script, in_browser, unique_ids
from quick_figures import draw_quickly
from results_helper import write_grid, write_run

from staleharness.base.files import digest
from staleharness.figures import plot_layout, registry
from staleharness.pages import figure_embedding, report, report_tables
from staleharness.pages.page_parts import PAGE, SCRIPTS
from staleharness.statistics import aggregate as stats
from staleharness.statistics.results import Results
from staleharness.statistics.table import Table
from staleharness.store.stored_run import StoredRun

HOSTILE = "</script><img src=x onerror=alert(1)>"


def small(root: Path, *labels: str) -> tuple[list[StoredRun], Table]:
    runs = [write_run(root, x, s, sampled=10.0 * i + s, phases=4) for i, x in enumerate(labels) for s in (0, 1)]
    return runs, stats.table(runs, reps=50)


FAILURE: dict[str, Any] = {
    "class": "Diverged",
    "message": "policy loss is nan",
    "log_tail": "phase 3",
    "phase": 3,
    "label": "spo",
    "env": "Hopper-v5",
    "capacity": 8,
    "seed": 2,
    "id": "abc",
}


@pytest.fixture(scope="module", autouse=True)
def quick_fonts() -> Iterator[None]:
    """Figures without their layout, which is not tested here."""
    with pytest.MonkeyPatch.context() as patch:
        draw_quickly(patch)
        yield


@pytest.fixture(scope="module")
def report_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two environments and a failure, written once for all tests that only look at it."""
    root = tmp_path_factory.mktemp("results")
    runs = write_grid(root, ("ppo_clip", "spo", "vaco"), envs=("A-v1", "B-v1"), phases=5, seeds=2)
    expected = [{"label": "spo", "env": "A-v1", "capacity": 8, "seed": 2, "problem": "Diverged"}]
    failure = FAILURE | {"env": "A-v1", "log_tail": "\x1b[31mphase 3\x1b[0m\n 10%\r 90%\rdone\nnan\x07"}
    table = stats.table(runs, expected, reps=50)
    command = "staleharness sweep --env A-v1 B-v1 --k 8"
    return report.write(root / "reports" / "x", Results.of(runs), table, [failure], command, "Two environments")


@pytest.fixture(scope="module")
def page(report_path: Path) -> Page:
    return Page(report_path.read_text())


@pytest.mark.long
def test_the_page_holds_every_section(page: Page):
    ids = {a.get("id") for t, a in page.elements if t == "section"}
    assert ids == {
        "scores",
        "learning_curves",
        "aggregate_curves",
        "score_against_capacity",
        "aggregate_scores",
        "lag_histogram",
        "staleness",
        "pairs",
        "methods",
        "failures",
        "runs",
        "run-panels",
        "made",
    }
    for said in (
        "Two environments",
        "sampled returns of the final policy",
        "normalised by minmax",
        "1 of 13 runs missing: spo A-v1 seed 2 (Diverged)",
        "staleharness sweep --env A-v1 B-v1 --k 8",
        "mujoco 3.17.0",
        "num_envs 16",
        "spo on A-v1 K=8 seed 2 : Diverged in phase 3: policy loss is nan",
    ):
        assert said in page.text, said


@pytest.mark.long
def test_every_link_of_a_report_leads_to_a_file(report_path: Path, page: Page):
    links = {a["href"] for t, a in page.elements if t == "a"}
    files = {link.partition("#")[0] for link in links if not link.startswith("#")}
    assert all((report_path.parent / link).stat().st_size for link in files)
    assert {"table.csv", "runs.csv", "curves.csv", "learning_curves.png"} <= links


def test_each_drawn_figure_has_a_page_of_the_pdf_of_its_own(report_path: Path, page: Page):
    pages = [a["href"].partition("#page=")[2] for t, a in page.elements if t == "a" and "figures.pdf" in a["href"]]
    drawn = len(list(report_path.parent.glob("*.png")))
    assert pages == [str(i + 1) for i in range(drawn)] and drawn > 3
    assert len(re.findall(rb"/Type /Page\b", (report_path.parent / "figures.pdf").read_bytes())) == drawn


def test_the_page_loads_nothing_and_allows_no_script_but_its_own(report_path: Path, page: Page):
    assert_only_its_own_script(report_path.read_text(), page)
    assert not [t for t, a in page.elements if "href" in a and t not in ("a", "use")]
    assert sum(len((PAGE / name).read_text().splitlines()) for name in SCRIPTS) <= 320


def test_no_id_stands_twice_and_every_reference_finds_its_target(page: Page, report_path: Path):
    wanted = set(re.findall(r"url\(#([^)]+)\)", report_path.read_text()))
    wanted |= {a["href"][1:] for t, a in page.elements if t == "use"}
    assert wanted and wanted <= unique_ids(page)


def test_every_algorithm_is_marked_for_the_filter(page: Page):
    for tag in ("tr", "g"):
        assert {a["data-series"] for t, a in page.elements if t == tag and "data-series" in a} == {"0", "1", "2"}
    marks = Counter(a["data-series"] for t, a in page.elements if t == "g" and "data-series" in a)
    assert len(set(marks.values())) == 1  # lines, bands, bars, names and legends: as many for each
    assert {a["data-panel"] for t, a in page.elements if t == "g" and "data-panel" in a} == {"0", "1"}


def test_logs_are_shown_as_they_looked_at_the_end(page: Page):
    assert "phase 3\ndone\nnan" in page.texts
    assert report_tables.clean("a\x1b]8;;http://x\x07b\x1b[2Kc\x00\td\r\n") == "abc\td\n"


def test_the_page_shows_the_numbers_of_the_table(report_path: Path, page: Page):
    rows = (report_path.parent / "table.csv").read_text().splitlines()
    head, first = rows[0].split(","), rows[1].split(",")
    iqm = float(first[head.index("iqm")])
    assert f"{iqm:.2f}" in page.text
    assert str(iqm) in [a.get("data-v") for t, a in page.elements if t == "td"]


@pytest.mark.long
def test_hostile_names_messages_and_logs_stay_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    drawn = plot_layout.to_bytes
    monkeypatch.setattr(
        plot_layout, "to_bytes", lambda figure, kind: drawn(figure, kind) if kind == "svg" else b"not looked at"
    )
    runs, _ = small(tmp_path, HOSTILE, "{{ 7 * 7 }}", '" onmouseover="alert(1)')
    runs.append(write_run(tmp_path, "vaco", 0, env=HOSTILE[::-1] + HOSTILE, fingerprint={"cpu": HOSTILE}))
    failure = FAILURE | {"label": HOSTILE, "log_tail": HOSTILE, "message": HOSTILE, "class": HOSTILE}
    path = report.write(tmp_path / "x", Results.of(runs), stats.table(runs, reps=50), [failure], HOSTILE, HOSTILE)
    page = Page(path.read_text())
    tags = [t for t, _ in page.elements]
    assert "img" not in tags and tags.count("script") == 1
    assert not any(name.startswith("on") for _, a in page.elements for name in a)
    assert HOSTILE in page.texts and "{{ 7 * 7 }}" in page.text and " 49 " not in page.text


@pytest.mark.long
def test_a_damaged_report_is_rewritten_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    every = registry.sections
    two = ("lag_histogram", "learning_curves")
    monkeypatch.setattr(registry, "sections", lambda results: [s for s in every(results) if s.name in two])
    runs, table = small(tmp_path, "spo", "vaco")
    folder = report.write(tmp_path / "x", Results.of(runs), table, [FAILURE], "command", "title").parent
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    made = (folder / "index.html").stat().st_mtime_ns
    program = """
import json, sys
from pathlib import Path
from staleharness.pages import report
from staleharness.statistics.results import load
from staleharness.statistics.table import Table
table, failure = json.loads(sys.argv[2])
report.write(Path(sys.argv[1]) / "x", load(sys.argv[1]), Table(**table), [failure], "command", "title")
print(sorted({"matplotlib", "pandas", "rliable", "jinja2", "torch", "gymnasium", "mujoco"} &
set(sys.modules)))
"""
    command = [sys.executable, "-c", program, str(tmp_path), json.dumps([table.to_json(), FAILURE])]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "[]"
    assert (folder / "index.html").stat().st_mtime_ns == made

    (folder / "lag_histogram.png").unlink()
    (folder / "table.csv").write_text("torn")
    report.write(folder, Results.of(runs[::-1]), table, [FAILURE], "command", "title")
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_a_report_without_runs_has_no_earlier_figures(tmp_path: Path):
    folder = tmp_path / "x"
    folder.mkdir()
    for name in ("lag_histogram.png", "edited.png", "mine.txt"):
        (folder / name).write_text(name)
    files = {"lag_histogram.png": digest(folder / "lag_histogram.png"), "edited.png": "0" * 64}
    (folder / "report.json").write_text(json.dumps({"key": "earlier", "files": files}))
    wanted = [{"label": "spo", "env": "Hopper-v5", "capacity": 8, "seed": 2, "problem": "Diverged"}]
    path = report.write(folder, Results.of([]), stats.table([], wanted), [FAILURE], "command", "title")
    assert "1 of 1 run missing: spo seed 2 (Diverged)" in Page(path.read_text()).text
    assert not (folder / "lag_histogram.png").exists()
    assert (folder / "edited.png").read_text() == "edited.png" and (folder / "mine.txt").exists()


def test_curves_and_runs_are_exported_in_full(report_path: Path):
    curves = (report_path.parent / "curves.csv").read_text().splitlines()
    assert curves[0] == "algorithm,environment,K,seed,run,score,steps,return"
    assert len(curves) == 1 + 12 * (3 + 1)  # of each run three sampled evaluations and one deterministic
    runs = (report_path.parent / "runs.csv").read_text().splitlines()
    assert len(runs) == 1 + 12 + 1 and runs[-1].startswith("spo,A-v1,8,2,") and "Diverged" in runs[-1]


def test_further_scores_of_a_run_change_no_column(tmp_path: Path) -> None:
    score = {"mean": 0.5, "std": 0.5, "returns": [0.5], "lengths": [1]}
    plain, more = (
        write_run(tmp_path, "spo", seed, said={"scores": {"sampled": score} | dict.fromkeys(names, score)})
        for seed, names in enumerate(((), ("K", "seed", "algorithm", "environment", "accuracy", "sampled_std")))
    )
    first, second = report_tables.run_records([plain, more], [])
    assert second == first | {"seed": 1, "run": more.id}


def test_inline_figures_keep_their_text_and_lose_their_ids():
    svg = b"""<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="10pt"
 viewBox="0 0 504 100"><metadata>x</metadata><defs><path id="mark" d="M 0.123 0"/></defs>
<g id="series-3"><use xlink:href="#mark"/></g>
<image xlink:href="data:image/png;base64,AAAA"/>
<g id="unused"><text id="figure-title">T</text><text>id="mark" &lt;b&gt;</text></g></svg>"""
    out = figure_embedding.inline_svg(svg, "p-", 'a "label"')
    assert 'data-series="3"' in out and 'href="#p-mark"' in out and 'id="p-mark"' in out
    assert 'href="data:image/png;base64,AAAA"' in out
    assert "unused" not in out and ">T<" not in out and "metadata" not in out
    assert 'id="mark" &lt;b&gt;' in out and 'aria-label="a &quot;label&quot;"' in out
    assert 'd="M 0.1 0"' in out and 'viewBox="0 12 504 88"' in out


# --- in a real browser


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: sorting and filtering are not tried")
def test_sorting_and_filtering_work_in_a_browser(report_path: Path, tmp_path: Path):
    page = in_browser(report_path, "scores=2:-1&hide=1&out=0", tmp_path)
    rows = [a for t, a in page.elements if t == "tr" and "data-series" in a]
    scores, runs = rows[:3], rows[3:]
    body = page.elements[[t for t, _ in page.elements].index("tbody") :]
    values = [a["data-v"] for t, a in body if t in ("td", "th") and "data-v" in a]
    columns = len([a for t, a in page.elements if t == "button" and "title" in a])
    iqms = [float(v) for v in values[2 : 3 * columns : columns]]
    assert iqms == sorted(iqms, reverse=True)
    assert [a.get("aria-sort") for t, a in page.elements if t == "th" and a.get("aria-sort")] == ["descending"]
    for row in (*scores, *runs):
        out = row["data-series"] == "1" or row.get("data-panel") == "0"
        assert ("off" in (row.get("class") or "").split()) == out
    groups = [a for t, a in page.elements if t == "g"]
    assert all("off" in (g.get("class") or "") for g in groups if g.get("data-series") == "1")
    assert not any("off" in (g.get("class") or "") for g in groups if g.get("data-series") == "0")
    assert all("dim" in (g.get("class") or "") for g in groups if g.get("data-panel") == "0")


def test_everything_behind_the_page_is_one_download(report_path: Path) -> None:
    with zipfile.ZipFile(report_path.with_name("data.zip")) as archive:
        assert archive.namelist() == ["curves.csv", "pairs.csv", "runs.csv", "table.csv"]
        for name in archive.namelist():
            assert archive.read(name) == report_path.with_name(name).read_bytes()
    page = Page(report_path.read_text(encoding="utf-8"))
    assert ("a", {"href": "data.zip"}) in page.elements
    assert "Hedges’ g" in page.text


def test_only_abandoned_temporary_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "sections", lambda results: [])
    runs, table = small(tmp_path, "spo")
    folder = tmp_path / "report"
    folder.mkdir()
    for name in (".index.html.abcdefgh", ".runs.csv.12345678", ".mine.txt.abcdefgh", ".data.zip.87654321"):
        (folder / name).write_text("half")
        if not name.startswith(".data"):
            os.utime(folder / name, (1e9, 1e9))
    report.write(folder, Results.of(runs), table)
    assert {p.name for p in folder.glob(".*")} == {".mine.txt.abcdefgh", ".data.zip.87654321"}


def test_the_page_is_rendered_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "sections", lambda results: [])
    runs, table = small(tmp_path, "spo", "vaco")
    arguments = ([*runs] * 200, Results.of(runs), table, [], "a command", "many", [], [], tmp_path / "reports" / "x")
    pieces = list(report._page(*arguments))
    assert all(isinstance(piece, bytes) for piece in pieces)
    assert len(pieces) > 5 and max(map(len, pieces)) < sum(map(len, pieces)) / 4


def test_scores_between_0_and_1_have_three_digits_in_the_list() -> None:
    record = {"sampled": 0.9644, "sampled_std": 0.01, "status": "done", "algorithm": "vaco", "environment": "gsm8k"}
    texts = {digits: [e["text"] for e in report_tables.run_row(record, {}, [], digits)["cells"]] for digits in (1, 3)}
    assert "0.964 ± 0.010" in texts[3] and "1.0 ± 0.0" in texts[1]
