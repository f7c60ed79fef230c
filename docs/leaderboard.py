"""The leaderboard, docs/leaderboard.md and docs/leaderboard.html, from published runs.

Until the runs of a protocol are published (`results/reference/stalebench_v1_<track>`), its rules for scores are applied
to an earlier study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from earlier_tracks import EARLIER, TOKEN_NAMES, earlier_track
from marks import between_marks
from pictures import write_both

from staleharness.algorithm import ALGORITHMS, make_algorithm
from staleharness.base.options import active_options
from staleharness.base.plugins import source_hash
from staleharness.base.table_formatting import markdown_table
from staleharness.errors import UserError
from staleharness.figures.leaderboard_tracks import draw_scores
from staleharness.pages.leaderboard_page import (
    BETWEEN_CPUS,
    MethodText,
    control_comparisons,
    leaderboard_html,
    p_text,
    robustness,
    run_count,
)
from staleharness.pages.page_parts import picture
from staleharness.running.benchmark_runs import report_plan
from staleharness.running.plan import Plan
from staleharness.statistics.benchmark.benchmark_row import REFERENCE
from staleharness.statistics.benchmark.benchmark_table import benchmark_table
from staleharness.statistics.benchmark.leaderboard_rows import leaderboard_track
from staleharness.statistics.benchmark.protocol import Protocol, read_protocol
from staleharness.statistics.leaderboard_scores import Leaderboard, LeaderboardRow, ScoreEstimate, Track
from staleharness.statistics.method_labels import display_label
from staleharness.statistics.rank_correlation import order_agreement
from staleharness.statistics.results import load
from staleharness.statistics.significance_and_power import ALPHA
from staleharness.store.store import MARKER

MAX_ROWS = 30  # of the table in Markdown and of its picture
README_ROWS = 10
TITLE = "Score of each method at each K, by track"  # of the picture
FEW_ROWS = 5  # a track with fewer has a table of its own, and an earlier study keeps its place
README_MARKS = "<!-- Begin of the table that docs/generate.py writes -->", "<!-- End of the table -->"
HEAD = """<!-- Made by docs/generate.py (`make docs`) from the bundles of results/reference. -->

# Leaderboard

Methods ranked by their scores under policy lag, on the tracks of [StaleBench](stalebench.md). K is the capacity of the
policy buffer; K = 1 is synchronous training. **[The whole leaderboard](leaderboard.html)** is one file to open in a
browser: it sorts and filters, and has every method's formula, curves and runs.

- **score**: area under the evaluation curve, 0 for a random policy and 1 for PPO-clip's mean without lag; interquartile
  mean (IQM) over tasks and seeds, mean over K. **#**: rank by it. **kept**: score at the largest K over that at K = 1.
- **[ ]**: 95 % bootstrap intervals, which cover the true value in about 92 % (control), 93 % (tokens) and 90 % (paper)
  of cases.
- **minus PPO-clip**: difference of means from PPO-clip at the largest K, bold where Welch's test distinguishes it from
  0 at 5 % after Holm's correction over the rows.
"""
CAPTION = """*Bars: intervals. Dashed: PPO-clip at the largest K. Italic: width controls.*
"""
CONTROLS = """The width controls are PPO-clip with a very wide clip, and V-trace without one (VACO without its filter).
A correction that is not above the first may owe its gain to a wider clip alone (Welch, Holm over all pairs at that
K; [every pair](leaderboard.html)).
"""
TAIL = """[Which corrections survive](corrections.md) tests each study by its own rules;
[staleness budgets](staleness_budgets.md) has what each method keeps at each lag.
"""


def protocol_track(folder: Path, name: str) -> tuple[Track | None, str]:
    """Track from the published runs of its protocol, None while it has no two rows; and what is there, in words."""
    protocol = read_protocol(name)
    bundle = folder / protocol.name
    runs = list(load(bundle)) if (bundle / MARKER).is_file() else []
    sources = {REFERENCE: runs}
    table = benchmark_table(protocol, sources)
    track = leaderboard_track(protocol, table, sources)
    track = replace(track, rows=tuple(_with_code(protocol, row) for row in track.rows))
    words = (
        f"{name} v{protocol.version}: {table.runs_done:,} of {table.runs_total:,} runs of the protocol are published"
    )
    if names := undefined_methods(protocol):
        words += f"; not defined on its tasks: {' · '.join(names)}"
    return (track if len(track.ranking) > 1 else None), words


def _with_code(protocol: Protocol, row: LeaderboardRow) -> LeaderboardRow:
    """Fill in the hash of the method's code where its runs are older than the record of it.

    The code as it is made them: `tests/test_published.py` fails for a published run whose id it no longer gives.
    """
    if row.code:
        return row
    methods = [make_algorithm(run.spec) for run in _plan_of(protocol, row.name).runs]
    return replace(row, code=tuple(sorted({source_hash(type(m), active_options(m)) for m in methods})))


def undefined_methods(protocol: Protocol) -> list[str]:
    """Built-in methods that the tasks of a track refuse, by name."""
    names = []
    for name in ALGORITHMS:
        try:
            _plan_of(protocol, name)
        except UserError:
            names.append(name)
    return names


def _plan_of(protocol: Protocol, name: str) -> Plan:
    """Plan one seed of a row at every capacity. Raises `UserError` for a method that the track cannot run."""
    return report_plan(protocol, name, dict.fromkeys(protocol.capacity, 1.0), look=1)


def board(folder: Path) -> Leaderboard:
    """All tracks of the leaderboard, from the folder of bundles; earlier studies where a protocol has no runs."""
    tracks: dict[str, Track] = {}
    few, notes = [], []
    for name in ("control", "tokens", "paper"):
        track, words = protocol_track(folder, name)
        if track is not None and len(track.ranking) < FEW_ROWS:
            few.append(replace(track, name=f"{name} v1"))
            track = None
        if track is None and name in EARLIER:
            study, about = EARLIER[name]
            track = earlier_track(load(folder / study), name, f"{name} (earlier study {study})", about)
            words += (
                f"; until {FEW_ROWS} rows are complete, it is replaced by {study}, whose buffer fills during "
                "the run, so that early data are younger"
            )
        if track is not None:
            tracks[name] = track
        notes.append(f"{words}.")
    notes.append(_token_settings(folder, tracks["tokens"]))
    return Leaderboard("StaleBench v1", (*tracks.values(), *few), tuple(notes))


def _token_settings(folder: Path, tokens: Track) -> str:
    """Agreement of two token settings on the order of methods, by the protocol and before it, as a sentence."""
    studies = (load(folder / "stress_lags"), load(folder / "corrections_word_problems", k=16))
    before = [_scores(earlier_track(study, "", "", "", TOKEN_NAMES)) for study in studies]
    second, _ = protocol_track(folder, "tokens_uniform")
    assert second is not None
    now = [_scores(track) for track in (tokens, second)]
    names = set.intersection(*map(set, (*before, *now)))
    earlier, later = (order_agreement({name: a[name] for name in names}, b) for a, b in (before, now))
    assert earlier is not None and later is not None
    studies_text = (
        "stress_lags (oldest versions) and corrections_word_problems (uniform lag, larger steps), which neither fill "
        f"the buffer first nor tune learning rates, it is {_signed(earlier.tau)} ({p_text(earlier.p)})"
    )
    holds = later.p < ALPHA and later.tau > earlier.tau
    verdict = "Two settings on tokens agree on the order" if holds else "On tokens an order holds for one setting alone"
    return (
        f"{verdict}: over {len(names)} methods at K = 16, Kendall's τ between the protocol's two settings, the oldest "
        f"versions and uniform lag (one larger gradient step a phase; {run_count(*second.runs)}), is "
        f"{_signed(later.tau)} ({p_text(later.p)}). Between two earlier studies of these methods, {studies_text}."
    )


def _signed(value: float) -> str:
    return f"{value:z.2f}".replace("-", "−")


def _scores(track: Track) -> dict[str, float]:
    """Score of each method at K = 16."""
    scores = {row.name: row.capacities[16].score for row in track.rows}
    return {name: score.value for name, score in scores.items() if score is not None}


def markdown(board: Leaderboard) -> str:
    """Page of the leaderboard as Markdown: picture, one table of all tracks, and how far its order can be trusted."""
    few = [track for track in board.tracks if track.protocol and len(track.ranking) < FEW_ROWS]
    tracks = [track for track in board.tracks if track not in few] or few
    names = row_names(tracks)
    head = ["method"]
    for track in tracks:
        head += [f"{track.name}: #", "score", _head_at_last(track), "kept"]
    labels = {row.name: display_label(row.label) for track in tracks[::-1] for row in track.ranking}
    rows = [[labels[name], *(c for t in tracks for c in _cells(t, name))] for name in names[:MAX_ROWS]]
    parts = [
        HEAD,
        *(f"{note}\n" for note in [*board.notes, *_other_options(tracks)]),
        picture(TITLE, "leaderboard"),
        "",
        CAPTION,
    ]
    parts += [f"- **{track.title}**: {track.about} {run_count(*track.runs)}." for track in board.tracks]
    parts += ["", markdown_table(head, rows), ""]
    if any(BETWEEN_CPUS in cell for row in rows for cell in row):
        parts.append(f"{BETWEEN_CPUS} The row's runs and PPO-clip's are of different kinds of CPU.\n")
    if (n := len(names) - MAX_ROWS) > 0:
        parts.append(f"{n} more rows are on the [whole leaderboard](leaderboard.html).\n")
    parts += [part for track in few if track not in tracks for part in _few_rows(track)]
    for track in board.tracks:
        if others := ", ".join(display_label(row.label) for row in track.rows_without_rank if not row.has_learned):
            parts.append(f"Below half of PPO-clip's score at K = {track.ks[0]} on {track.name}: {others}.\n")
    if controls := [f"- {line}" for line in control_comparisons(board)]:
        parts += ["## Is it the correction, or a wider clip?", "", CONTROLS, *controls, ""]
    parts += ["## Would other seeds give the same order?", "", *(f"- {line}" for line in robustness(board)), "", TAIL]
    return "\n".join(parts)


def readme_table(board: Leaderboard) -> str:
    """Picture and short table of the tracks for the README: scores at the smallest and the largest capacity."""
    tracks = [track for track in board.tracks if len(track.ranking) >= FEW_ROWS]
    names = row_names(tracks)
    labels = {row.name: display_label(row.label) for track in tracks[::-1] for row in track.ranking}
    head = ["method", *(f"{t.name}, K = {k}" for t in tracks for k in (t.ks[0], t.ks[-1]))]
    rows = []
    for name in names[:README_ROWS]:
        found = [next((row for row in t.ranking if row.name == name), None) for t in tracks]
        rows.append(
            [labels[name]]
            + [
                "" if row is None else _interval(row.capacities[k].score)
                for track, row in zip(tracks, found, strict=True)
                for k in (track.ks[0], track.ks[-1])
            ]
        )
    counts = "; ".join(f"{track.title}: {run_count(*track.runs)}" for track in tracks)
    text = (
        "*[StaleBench](docs/leaderboard.md): area under the evaluation curve, 0 for a random policy and 1 for the mean "
        "of PPO-clip without lag; rows are interquartile means (IQM) with 95 % bootstrap intervals, which cover the "
        f"true value in 90 to 93 % of cases ({counts}). The wide window and VACO without its trust region are "
        f"controls: importance weighting with a very wide clip, or without one. "
        f"{' '.join([*_other_options(tracks), _above_controls(tracks)])}*"
    )
    image = picture(TITLE, "leaderboard", "docs/").replace("<img ", '<img width="760" ')
    return f"{image}\n\n{markdown_table(head, rows)}\n\n{text}"


def _other_options(tracks: Sequence[Track]) -> list[str]:
    """Sentences on rows of one name whose options differ between tracks."""
    labels: dict[str, dict[str, str]] = {}
    for track in tracks:
        for row in track.ranking:
            labels.setdefault(row.name, {})[track.name] = display_label(row.label)
    return [
        f"On {track}, {display_label(name)} has {label.removeprefix(f'{display_label(name)}, ')}."
        for name, by_track in labels.items()
        for track, label in by_track.items()
        if len({*by_track.values()}) > 1 and label != display_label(name)
    ]


def _above_controls(tracks: Sequence[Track]) -> str:
    """Sentence on which methods are significantly above each control of their track at the largest capacity."""
    parts = []
    for track in tracks:
        tests = track.pair_tests(track.ks[-1])
        controls = [row.label for row in track.ranking if row.kind == "control"]
        above = [
            display_label(row.label)
            for row in track.methods
            if all(label_pair in tests and tests[label_pair].side == 1 for label_pair in product([row.label], controls))
        ]
        parts += [f"{' · '.join(above) or 'none'} on {track.name}"] if controls else []
    return f"Significantly above both controls at K = {tracks[0].ks[-1]}: {'; '.join(parts)}." if parts else ""


def with_readme_table(page: str, published: Path) -> str:
    """Return the README with its picture and table made anew, between their marks; `ValueError` without these."""
    return between_marks(page, *README_MARKS, f"\n{readme_table(board(published))}\n")


def _few_rows(track: Track) -> list[str]:
    """Table of a track that has few rows yet, with the score at every capacity."""
    rows = [
        [
            display_label(row.label),
            *(_interval(row.capacities[k].score) for k in track.ks[:-1]),
            *_cells(track, row.name)[2:],
        ]
        for row in track.ranking
    ]
    head = ["method", *(f"K = {k}" for k in track.ks[:-1]), _head_at_last(track), "kept"]
    return [f"## Rows of {track.name}", "", markdown_table(head, rows), ""]


def _head_at_last(track: Track) -> str:
    return f"K = {track.ks[-1]} (minus {display_label(track.baseline)})"


def row_names(tracks: Sequence[Track]) -> list[str]:
    """Names of the rows of a table of these tracks, in order."""
    return sorted({row.name for track in tracks for row in track.ranking}, key=lambda name: _place(tracks, name))


def _place(tracks: Sequence[Track], name: str) -> tuple[int, float, str]:
    """Sort key: methods on most tracks first, then by their mean score."""
    scores = [row.score.value for track in tracks for row in track.ranking if row.name == name and row.score]
    return -len(scores), -float(np.mean(scores)), name


def _cells(track: Track, name: str) -> list[str]:
    places = {row.name: str(place) for place, row in enumerate(track.methods, 1)}
    for row in track.ranking:
        if row.name == name:
            last = row.capacities[track.ks[-1]]
            gap = last.difference
            mark = BETWEEN_CPUS if last.between_cpus else ""
            difference = "" if gap is None else f"{gap.value:+z.2f}{mark}".replace("-", "−")
            if last.p is not None and last.p < ALPHA:
                difference = f"**{difference}**"
            kept = "–" if row.retention is None else f"{row.retention.value:.0%}"
            at_last = f"{_interval(last.score)} {difference and f'({difference})'}".rstrip()
            return [places.get(name, ""), _interval(row.score), at_last, kept]
    return [""] * 4


def _interval(estimate: ScoreEstimate | None) -> str:
    if estimate is None:
        return "–"
    ends = "" if estimate.low is None else f" [{estimate.low:z.2f}, {estimate.high:z.2f}]"
    return f"{estimate.value:z.2f}{ends}".replace("-", "−")


def write(folder: Path, published: Path, texts: Mapping[str, MethodText]) -> None:
    """Write leaderboard.md, its picture in two widths, and leaderboard.html into a folder."""
    leaderboard = board(published)
    names = row_names(leaderboard.tracks)[:MAX_ROWS]
    write_both(folder, "leaderboard", lambda width: draw_scores(leaderboard, width, names))
    (folder / "leaderboard.html").write_text(leaderboard_html(leaderboard, texts), encoding="utf-8")
    (folder / "leaderboard.md").write_text(markdown(leaderboard), encoding="utf-8")
