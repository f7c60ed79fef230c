"""Page of a leaderboard: one file that works with a script, without one, and with hostile names."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest
from boards import board, row, track
from browser import CHROMIUM, Page, assert_only_its_own_script, in_browser, unique_ids
from pressing import press

from staleharness.pages.leaderboard_page import MethodText, control_comparisons, leaderboard_html, robustness, run_count
from staleharness.statistics.leaderboard_scores import CapacityResult, Leaderboard

TEXTS = {"method_01": MethodText("One line.", "L = min(r A, clip(r) A)\n  r ≤ 1", "A. Author 2026", "methods/m.md")}
HOSTILE = "</script><img src=x onerror=alert(1)>"
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: the page is not opened")


@pytest.fixture(scope="module")
def text() -> str:
    return leaderboard_html(board(), TEXTS)


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def rows_of(page: Page, table: int) -> list[list[str]]:
    """Sort values of the cells of a table's rows."""
    found: list[list[str]] = []
    tables = -1
    for tag, attributes in page.elements:
        tables += tag == "table" and "data-sortable" in attributes
        if tables == table and tag == "tr" and "data-series" in attributes:
            found.append([])
        elif tables == table and found and tag in ("td", "th") and "data-v" in attributes:
            found[-1].append(attributes["data-v"] or "")
        elif tables == table and tag == "details":
            break
    return found


def test_the_page_loads_nothing_and_allows_no_script_but_its_own(text: str, page: Page) -> None:
    assert_only_its_own_script(text, page)
    assert not re.search(r"@import|https?://(?!www\.w3\.org)", text)


def test_ids_are_unique_and_links_inside_the_page_have_targets(page: Page) -> None:
    inside = {a["href"][1:] for t, a in page.elements if t == "a" and a["href"].startswith("#")}
    assert inside == {f"method-{i}" for i in range(4)} <= unique_ids(page)


def test_rows_come_sorted_by_score_with_numbers_and_tests(page: Page) -> None:
    first = rows_of(page, 0)
    assert [cells[1] for cells in first] == ["PPO-clip", "method_00", "method_01", "method_02"]
    assert [cells[0] for cells in first] == ["1", "2", "3", "4"]
    assert first[1][2:6] == ["0.98", "1.176", "1.078", "0.98"]
    assert [cells[1] for cells in rows_of(page, 1)] == ["method_02", "method_01", "method_00", "PPO-clip"]
    assert "+0.68, p = 0.03" in page.text and "80 % [70, 90]" in page.text


def test_a_card_has_formula_source_curves_and_runs(text: str) -> None:
    card = html.unescape(text).partition('id="method-1"')[2].partition('<details class="card"')[0]
    for words in ("One line.", "L = min(r A, clip(r) A)\n  r ≤ 1", "A. Author 2026", "methods/m.md", "000010000001"):
        assert words in card
    assert card.count("<polyline") == 2 * 2 * 3  # its own and the baseline's, at each K of both tracks
    assert card.count("A-v1: ") == 2 * 3 and "Test CPU" in card and "abc123" in card


def test_everything_is_there_without_the_script(page: Page) -> None:
    """The script only sorts, hides and highlights: nothing is hidden in the file."""
    assert not any("off" in (a.get("class") or "").split() or "hidden" in a for _, a in page.elements)
    for label in ("PPO-clip", "method_02", "Read this first.", "Would other seeds give the same order?", "Protocol"):
        assert label in page.text


def test_rows_apart_and_missing_runs_are_stated() -> None:
    whole = row("spo", 0.8)
    partial = row("vaco", 0.8)
    partial = replace(partial, capacities={**partial.capacities, 16: CapacityResult(None, expected=4)})
    rows = [
        row("ppo_clip", 0.9),
        whole,
        partial,
        row("impala", 0.1, has_learned=False),
        row("wide", 0.7, kind="control"),
    ]
    made = Page(leaderboard_html(Leaderboard("B", (track("control", rows),)), {}))
    ranked = rows_of(made, 0)
    assert [cells[0] for cells in ranked] == ["1", "2", "3", "", ""]  # a width control and a row apart have no place
    assert [cells[1] for cells in ranked] == ["PPO-clip", "SPO", "VACO", "wide", "IMPALA"]
    assert "56 of 60 runs" in made.text and "8 of 12" in made.text and "width control" in made.text
    assert "Apart: did not reach half of PPO-clip’s score at K = 1" in made.text
    assert run_count(3, 3) == "3 runs" and run_count(1200, 1300) == "1,200 of 1,300 runs"


def test_controls_are_compared_with_each_method_under_lag() -> None:
    rows = [row(x, s, seeds=4) for x, s in (("ppo_clip", 0.7), ("spo", 0.9), ("vaco", 0.801))]
    made = track("control", [*rows, row("wide", 0.8, seeds=4, kind="control")])
    lines = control_comparisons(Leaderboard("B", (made, track("tokens", rows))))
    assert lines == [
        f"Control, K = {k}: above wide: SPO; not significantly different: VACO; below: PPO-clip." for k in (4, 16)
    ]
    text = Page(leaderboard_html(Leaderboard("B", (made,)), {})).text
    assert lines[0] in text and "Every row against every other" in text
    test = made.pair_tests(16)["spo", "wide"]
    assert f"+{test.value:.2f} [{test.low:.2f}, {test.high:.2f}], p < 0.001" in text


def test_a_row_made_elsewhere_has_the_text_of_its_method() -> None:
    rows = [row("ppo_clip", 0.9), replace(row("method_01 (theirs)", 0.5), kind="added")]
    assert "One line." in leaderboard_html(Leaderboard("B", (track("control", rows),)), TEXTS)


def test_hostile_names_and_texts_stay_text() -> None:
    rows = [row("ppo_clip", 0.9), row(HOSTILE, 0.5), row("{{ 7 * 7 }}", 0.4)]
    made = replace(track(HOSTILE, rows), about=HOSTILE, protocol=HOSTILE)
    bad = MethodText(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    text = leaderboard_html(Leaderboard(HOSTILE, (made,), (HOSTILE,)), {HOSTILE: bad})
    found = Page(text)
    assert [t for t, _ in found.elements].count("script") == 1 and "img" not in {t for t, _ in found.elements}
    assert not any(name.startswith("on") for _, a in found.elements for name in a)
    assert "{{ 7 * 7 }}" in found.text


def test_sentences_on_the_order_state_what_the_rows_say() -> None:
    made = board(methods=5)
    lines = robustness(made)
    assert len(lines) == 3 and f"is {made.tracks[0].replication:.2f} (" in lines[0]
    assert "over the 5 methods on both, the orders agree by τ = -1.00 (p = 0.017)" in lines[2]


def test_a_difference_between_kinds_of_cpu_has_a_mark_and_a_note() -> None:
    base, other = row("ppo_clip", 0.7), row("spo", 0.9)
    note = "† its runs and those of PPO-clip are of different kinds of CPU."
    assert "†" not in Page(leaderboard_html(Leaderboard("B", (track("control", [base, other]),)), {})).text
    marked = replace(other, capacities={k: replace(r, between_cpus=k == 4) for k, r in other.capacities.items()})
    text = Page(leaderboard_html(Leaderboard("B", (track("control", [base, marked]),)), {})).text
    difference = other.capacities[4].difference
    assert text.count("†") == 3 and note in text and f"+{difference.value:.2f}†, p = 0.03" in text


@pytest.mark.long
def test_thirty_methods_weigh_less_than_two_megabytes() -> None:
    made = board(methods=30, tracks=("control", "tokens", "paper"), seeds=8)
    assert 200_000 < len(leaderboard_html(made, TEXTS).encode()) < 2_000_000


def test_the_same_board_gives_the_same_page(text: str) -> None:
    assert text == leaderboard_html(board(), TEXTS)


@needs_browser
def test_sorting_and_filtering_work_in_a_browser(text: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    made = in_browser(path, "track0=2:1&hide=1&k=4&track=1", tmp_path / "profile")
    assert [float(cells[2]) for cells in rows_of(made, 0)] == [0.94, 0.96, 0.98, 1.0]

    def is_off(attributes: dict[str, str | None]) -> bool:
        return "off" in (attributes.get("class") or "").split()

    for _, a in made.elements:
        if "data-k" in a and "data-series" not in a:
            assert is_off(a) == (a["data-k"] == "4")
        if "data-track" in a:
            assert is_off(a) == (a["data-track"] == "1")
        if "data-series" in a:
            assert is_off(a) == (a["data-series"] == "1")
    boxes = {(a["data-filter"], a["value"]) for t, a in made.elements if t == "input"}
    assert {("track", "0"), ("k", "16"), ("series", "3")} <= boxes


@needs_browser
def test_a_link_to_a_card_opens_it_in_a_browser(text: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    made = in_browser(path, "method-2", tmp_path / "profile")
    assert [a["id"] for t, a in made.elements if t == "details" and "open" in a] == ["method-2"]


@needs_browser
def test_clicks_and_keys_work_in_a_browser(text: str, tmp_path: Path) -> None:
    """A second script, which the page's own policy would refuse, presses what a person would."""
    press = """<script>
const q = (s) => document.querySelector(s), out = [];
q('[data-sortable=track0] thead th:nth-child(3) button').click();
out.push(q('[data-sortable=track0] tbody tr th').dataset.v);
q('[data-sortable=track0] thead th:nth-child(3) button').click();
out.push(q('[data-sortable=track0] tbody tr th').dataset.v);
q('button[data-all][data-check="0"]').click();
out.push(document.querySelectorAll('main tr[data-series]:not(.off)').length);
q('button[data-all][data-check="1"]').click();
out.push(document.querySelectorAll('main tr[data-series].off').length);
q('main tr[data-series="2"] a').focus();
out.push([...new Set([...document.querySelectorAll('#plot g.on')].map((g) => g.dataset.series))].join());
out.push(document.querySelectorAll('.scroll:not([tabindex])').length);
q('main tr[data-series="2"] a').click();
setTimeout(() => {
  out.push(document.querySelectorAll('details.card[open]').length, location.hash);
  document.title = JSON.stringify(out);
}, 200);
</script></body>"""
    path = tmp_path / "page.html"
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    path.write_text(free.replace("</body>", press), encoding="utf-8")
    made = in_browser(path, "", tmp_path / "profile", "--virtual-time-budget=2000")
    title = made.elements and re.search(r'\["[^]]*\]', made.text)
    assert title and title[0].replace('"', "") == "[PPO-clip,method_02,0,0,2,0,1,#method-2]"


@needs_browser
def test_arrow_keys_show_each_score_of_a_row_with_its_interval(text: str, tmp_path: Path) -> None:
    script = """
const svg = document.querySelector('#plot .wide svg'), out = [];
for (let i = 0; i < 4; i++) {
  svg.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true, cancelable: true }));
  out.push([...document.querySelectorAll('.tip > *')].map((e) => e.textContent));
}
return out;"""
    tips = press(text, tmp_path, script)
    assert [(name, track) for name, _, track in tips] == [*[("PPO-clip", "Control")] * 3, ("method_00", "Control")]
    for (_, value, _), score in zip(tips, (1.2, 1.1, 1.0, 1.176), strict=True):  # K = 1, 4, 16, 1
        numbers = [float(number) for number in re.findall(r"[\d.]+", value.partition("score: ")[2])]
        assert numbers == pytest.approx([score, score - 0.05, score + 0.05], abs=0.002)


@needs_browser
@pytest.mark.parametrize("width", [400, 1600])
def test_the_page_is_no_wider_than_the_window(text: str, tmp_path: Path, width: int) -> None:
    measure = """<script>document.title = `${document.documentElement.scrollWidth} of ${innerWidth}`;</script></body>"""
    path = tmp_path / "page.html"
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    frame = html.escape(free.replace("</body>", measure.replace("document.title", "parent.document.title")), quote=True)
    path.write_text(f'<title></title><iframe style="width:{width}px;height:900px" srcdoc="{frame}"></iframe>')
    made = in_browser(path, "", tmp_path / "profile", "--virtual-time-budget=3000")
    measured = re.search(r"(\d+) of (\d+)", made.text)
    assert measured and int(measured[1]) <= int(measured[2]) == width
