"""Values shown under the pointer and with the arrow keys are those of the runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import CHROMIUM, Page
from pressing import press
from quick_figures import draw_quickly
from results_helper import write_grid

from staleharness.pages import report
from staleharness.statistics import aggregate as stats
from staleharness.statistics.results import Results
from staleharness.statistics.table import Table

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: values under the pointer")
LOOK = """
const svg = document.querySelector('#%s .wide svg'), out = [];
const key = (k) => svg.dispatchEvent(new KeyboardEvent('keydown', { key: k, bubbles: true, cancelable: true }));
const say = () => [...document.querySelectorAll('.tip > *')].map((e) => e.textContent);
"""


@pytest.fixture(scope="module")
def report_page(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Table]:
    root = tmp_path_factory.mktemp("results")
    runs = write_grid(root, ("ppo_clip", "vaco"), capacities=(1, 8), phases=6, seeds=4)
    table = stats.table(runs, reps=50)
    with pytest.MonkeyPatch.context() as patch:
        draw_quickly(patch)
        page = report.write(root / "reports" / "x", Results.of(runs), table, [], "", "Values")
    return page.read_text(encoding="utf-8"), table


def numbers(text: str) -> list[float]:
    return [float(n.replace(",", "").replace("−", "-")) for n in re.findall(r"[−\d][\d,.]*", text.partition(":")[2])]


@pytest.mark.long
def test_arrow_keys_go_through_the_scores_with_their_intervals(report_page: tuple[str, Table], tmp_path: Path) -> None:
    text, table = report_page
    script = (
        LOOK % "score_against_capacity"
        + "for (let i = 0; i < 4; i++) { key('ArrowRight'); out.push(say()); } return out;"
    )
    tips = press(text, tmp_path, script)
    for (name, value, place), row in zip(
        tips, sorted(table.rows, key=lambda r: (r["algorithm"], r["capacity"])), strict=True
    ):
        assert name == {"ppo_clip": "PPO-clip", "vaco": "VACO"}[row["algorithm"]]
        assert numbers(value) == pytest.approx([row["iqm"], row["iqm_low"], row["iqm_high"]], abs=0.005)
        assert place.endswith(f": {row['capacity']}")


def test_the_pointer_shows_the_mark_below_it(report_page: tuple[str, Table], tmp_path: Path) -> None:
    text, _ = report_page
    script = (
        LOOK % "score_against_capacity"
        + """
    for (let i = 0; i < 4; i++) { key('ArrowRight'); }
    const ring = svg.querySelector('.ring').getBoundingClientRect(), first = say();
    key('Escape');
    out.push(document.querySelector('.tip').hidden);
    const at = { clientX: ring.x + ring.width / 2 + 2, clientY: ring.y + ring.height / 2 - 2, bubbles: true };
    svg.dispatchEvent(new PointerEvent('pointermove', at));
    out.push(say().join() === first.join(), document.querySelector('.tip').hidden);
    svg.dispatchEvent(new PointerEvent('pointermove', { ...at, clientX: 1, clientY: 1 }));
    out.push(document.querySelector('.tip').hidden);
    document.querySelector('input[data-filter=series][value="1"]').click();
    key('ArrowRight'); key('ArrowDown');
    out.push(say()[0]);
    return out;"""
    )
    assert press(text, tmp_path, script) == [True, True, False, True, "PPO-clip"]


def test_rows_show_the_share_with_its_interval(report_page: tuple[str, Table], tmp_path: Path) -> None:
    text, table = report_page
    ((name, value, title),) = [
        press(text, tmp_path, LOOK % "retained_shares" + "key('ArrowRight'); return [say()];")[0]
    ]
    best = max((r for r in table.rows if r["retained"] is not None), key=lambda r: r["retained"])
    assert name == "VACO" and best["algorithm"] == "vaco" and title == "K = 8"
    wanted = [100 * best[k] for k in ("retained", "retained_low", "retained_high")]
    assert value.startswith("share retained") and numbers(value) == pytest.approx(wanted, abs=0.5)


def test_bars_of_no_method_show_their_height(report_page: tuple[str, Table], tmp_path: Path) -> None:
    text, _ = report_page
    tips = press(text, tmp_path, LOOK % "lag_histogram" + "key('PageDown'); key('PageDown'); return [say()];")
    assert tips[0][0].startswith("K = 8") and re.fullmatch(r"share of decisions: [\d.]+%", tips[0][1])
    assert tips[0][2] == "lag in phases: 0"


def test_the_switch_changes_to_dark_and_back(report_page: tuple[str, Table], tmp_path: Path) -> None:
    text, _ = report_page
    script = """
    const paper = () => getComputedStyle(document.body).backgroundColor, out = [];
    const picture = () => getComputedStyle(document.querySelector('.wide svg')).backgroundColor;
    const button = document.querySelector('button.theme');
    for (let i = 0; i < 3; i++) {
      out.push(button.textContent, paper(), picture());
      button.click();
    }
    return out;"""
    white, black = "rgb(255, 255, 255)", "rgb(23, 25, 27)"
    assert press(text, tmp_path, script) == ["☾ Dark", white, white, "☀ Light", black, white, "☾ Dark", white, white]


@pytest.mark.parametrize("width", [400, 1600])
def test_the_report_is_no_wider_than_the_window(report_page: tuple[str, Table], tmp_path: Path, width: int) -> None:
    text, _ = report_page
    script = "const first = [...document.querySelectorAll('figure svg')].find((e) => e.getBoundingClientRect().height);"
    script += "return [document.documentElement.scrollWidth, first.getBoundingClientRect().top];"
    wide, top = press(text, tmp_path, script, width)
    assert wide <= width and top < 900  # a figure is on the first screen


def test_nothing_is_hidden_without_the_script(report_page: tuple[str, Table]) -> None:
    page = Page(report_page[0])
    assert not any("hidden" in a or "off" in (a.get("class") or "").split() for _, a in page.elements)
    assert not any(t == "button" and a.get("class") == "theme" for t, a in page.elements)
    assert not any(t == "details" and "open" in a for t, a in page.elements)
