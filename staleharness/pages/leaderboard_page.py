"""Page of a leaderboard: one HTML file that loads nothing. Tables by track, a plot, and a card for each method."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from ..base.files import write_bytes
from ..base.text_formatting import number, plural
from ..figures.leaderboard_tracks import draw_scores, track_looks
from ..figures.palette import Style
from ..statistics.benchmark.benchmark_table import BenchmarkTable
from ..statistics.benchmark.leaderboard_rows import leaderboard_track
from ..statistics.benchmark.protocol import Protocol, method_of
from ..statistics.leaderboard_scores import CapacityResult, Leaderboard, LeaderboardRow, PairTest, ScoreEstimate, Track
from ..statistics.method_labels import display_label
from ..statistics.significance_and_power import ALPHA
from ..store.stored_run import StoredRun
from .page_parts import read_template, shell

KINDS = {"method": "", "control": "width control"}  # of rows; others are called as they are
WIDTH, HEIGHT = 240.0, 96.0  # of a learning curve in a card
MARGIN = 16.0
FEWEST = 3  # methods whose order is worth a sentence
BETWEEN_CPUS = "†"  # mark of a difference between rows of different kinds of CPU


@dataclass(frozen=True)
class MethodText:
    """Texts about a method on its card."""

    summary: str = ""
    formula: str = ""
    """Plain text, lines kept."""
    source: str = ""
    link: str = ""
    """Address of the method's page; empty for none."""


def leaderboard_html(board: Leaderboard, texts: Mapping[str, MethodText]) -> str:
    """Render the page; equal rows give equal text. texts: by name of the method without options."""
    from markupsafe import Markup

    looks = track_looks(board.tracks)
    return read_template("leaderboard.html.j2").render(
        **shell("leaderboard.css"),
        title=board.title,
        notes=board.notes,
        tracks=[_track(i, track, looks) for i, track in enumerate(board.tracks)],
        ks=sorted({k for track in board.tracks for k in track.ks}),
        looks=list(looks.values()),
        plots={form: Markup(svg) for form, svg in _plots(board).items()},
        robustness=robustness(board),
        controls=control_comparisons(board),
        cards=[_card(name, look, board, texts) for name, look in looks.items()],
    )


def _plots(board: Leaderboard) -> dict[str, str]:
    from ..figures.plot_layout import FORMS, to_bytes
    from .figure_embedding import hover_axes, inline_svg

    drawings = {form: draw_scores(board, width) for form, width in FORMS.items()}
    return {
        form: inline_svg(to_bytes(figure, "svg"), f"{form}-", "Score at each K", hover_axes(figure))
        for form, figure in drawings.items()
    }


def _track(index: int, track: Track, looks: Mapping[str, Style]) -> dict[str, Any]:
    ranks = {row.label: str(place) for place, row in enumerate(track.methods, 1)}
    return {
        "index": index,
        "track": track,
        "runs": run_count(*track.runs),
        "baseline": display_label(track.baseline),
        "rows": [_row(row, track, looks, ranks) for row in track.ranking],
        "without_rank": [_row(row, track, looks, {}) for row in track.rows_without_rank],
        "between_cpus": any(r.between_cpus for row in track.rows for r in row.capacities.values()),
        "squares": [square for k in track.ks if (square := _square(track, k, looks))],
    }


def _square(track: Track, k: int, looks: Mapping[str, Style]) -> dict[str, Any]:
    """Table of all pairs at one capacity; empty without any."""
    tests = track.pair_tests(k)
    rows = [row for row in track.ranking if any(row.label in pair for pair in tests)]
    names = [display_label(row.label) for row in rows]
    cells = [[_pair_cell(tests.get((a.label, b.label))) for b in rows] for a in rows]
    lines = list(zip([looks[row.name] for row in rows], names, cells, strict=True))
    return {"k": k, "names": names, "lines": lines} if tests else {}


def _pair_cell(test: PairTest | None) -> dict[str, str]:
    if test is None:
        return {"text": "", "more": "", "side": ""}
    return {
        "text": _difference_text(test.value),
        "more": ", ".join(filter(None, [_interval(test), p_text(test.p)])),
        "side": ("", "above", "below")[test.side],
    }


def control_comparisons(board: Leaderboard) -> list[str]:
    """Sentences on which methods are above a width control under lag: what a correction gains beyond a larger step."""
    lines = []
    for track in board.tracks:
        for control in (row for row in track.ranking if row.kind == "control"):
            for k in track.ks[1:]:
                tests, twins = track.pair_tests(k), track.twins(k)
                sides: dict[int, list[str]] = {1: [], 0: [], -1: []}
                copies = [m.label for m in track.methods if twins.get(m.label) == twins.get(control.label, "")]
                for row in track.methods:
                    if (test := tests.get((row.label, control.label))) is not None:
                        sides[test.side].append(display_label(row.label))
                if any(sides.values()):
                    above, between, below = (" · ".join(names) or "none" for names in sides.values())
                    equal = f" the same results: {' · '.join(map(display_label, copies))};" if copies else ""
                    lines.append(
                        f"{track.title}, K = {k}: above {display_label(control.label)}: {above};{equal} not "
                        f"significantly different: {between}; below: {below}."
                    )
    return lines


def run_count(have: int, expected: int) -> str:
    """`n of m runs`, or `n runs` where none is missing."""
    return plural(have, "run") if have == expected else f"{have:,} of {expected:,} runs"


def _row(row: LeaderboardRow, track: Track, looks: Mapping[str, Style], ranks: Mapping[str, str]) -> dict[str, Any]:
    tv = row.capacities.get(track.ks[-1], CapacityResult(None)).tv
    have, expected = (sum(values) for values in zip(*((r.n, r.expected) for r in row.capacities.values()), strict=True))
    return {
        "look": looks[row.name],
        "rank": ranks.get(row.label, ""),
        "name": display_label(row.label),
        "kind": KINDS.get(row.kind, row.kind),
        "score": _estimate(row.score),
        "cells": [{"k": k, **_capacity(row.capacities.get(k, CapacityResult(None)))} for k in track.ks],
        "retained": _estimate(row.retention, percent=True),
        "tv": {"value": "" if tv is None else round(tv, 6), "text": number(tv, 3)},
        "runs": f"{have}" if have >= expected else f"{have} of {expected}",
        "run_count": have,
    }


def _capacity(result: CapacityResult) -> dict[str, Any]:
    d, p = result.difference, result.p
    return {
        **_estimate(result.score),
        "difference": "" if d is None else _difference_text(d.value),
        "interval_of_difference": "" if d is None else _interval(d),
        "p": "" if p is None else p_text(p),
        "mark": BETWEEN_CPUS if result.between_cpus else "",
        "distinct": p is not None and p < ALPHA,
    }


def _estimate(estimate: ScoreEstimate | None, percent: bool = False) -> dict[str, Any]:
    if estimate is None:
        return {"value": "", "text": "–", "interval": ""}
    scale, digits, unit = (100, 0, " %") if percent else (1, 2, "")
    text = f"{scale * estimate.value:z.{digits}f}{unit}".replace("-", "−")
    return {"value": round(estimate.value, 6), "text": text, "interval": _interval(estimate, scale, digits)}


def _interval(estimate: ScoreEstimate | PairTest, scale: float = 1, digits: int = 2) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f"[{scale * estimate.low:z.{digits}f}, {scale * estimate.high:z.{digits}f}]".replace("-", "−")


def _difference_text(difference: float) -> str:
    return f"{difference:+z.2f}".replace("-", "−")


def p_text(p: float) -> str:
    """Format a p value: `p < 0.001`, `p = 0.03`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def robustness(board: Leaderboard) -> list[str]:
    """Sentences on how far the orders would be reproduced, and how far tracks agree."""
    lines = []
    for track in board.tracks:
        n = len(track.methods)
        if n >= FEWEST and (tau := track.replication) is not None:
            lines.append(
                f"{track.title}: for {n} methods, the expected Kendall's τ with the order from other seeds is "
                f"{tau:.2f} ({(1 + tau) / 2:.0%} of pairs agree)."
            )
    lines += [
        f"{a.name} and {b.name}: over the {agreement.methods} methods on both, the orders agree by "
        f"τ = {agreement.tau:.2f} ({p_text(agreement.p)})."
        for a, b in combinations(board.tracks, 2)
        if (agreement := a.agreement(b)) is not None
    ]
    return lines


def _card(name: str, look: Style, board: Leaderboard, texts: Mapping[str, MethodText]) -> dict[str, Any]:
    rows = [(track, row) for track in board.tracks for row in track.rows if row.name == name]
    return {
        "look": look,
        "text": texts.get(name, texts.get(re.split(r"\[| \(", name)[0], MethodText())),
        "tracks": [_card_track(track, row) for track, row in rows],
        "cpus": sorted({cpu for _, row in rows for cpu in row.cpus}),
        "code": sorted({code for _, row in rows for code in row.code}),
    }


def _card_track(track: Track, row: LeaderboardRow) -> dict[str, Any]:
    results = [(k, row.capacities[k]) for k in track.ks if k in row.capacities]
    others = next((r.capacities for r in track.rows if r.label == track.baseline and r is not row), {})
    return {
        "track": track,
        "row": row,
        "kind": KINDS.get(row.kind, row.kind),
        "baseline": display_label(track.baseline),
        "curves": _curves(
            [(k, r.curve) for k, r in results], [(k, others[k].curve) for k, _ in results if k in others]
        ),
        "ks": [
            {
                "k": k,
                **_capacity(r),
                "lag": number(r.lag, 1),
                "rate": "–" if r.learning_rate is None else f"{r.learning_rate:.2g}",
                "tv": number(r.tv, 3),
                "ess": number(r.ess),
                "n": run_count(r.n, max(r.expected, r.n)),
                "envs": r.runs,
            }
            for k, r in results
        ],
    }


Curve = tuple[tuple[float, float], ...]


def _curves(lines: Sequence[tuple[int, Curve]], others: Sequence[tuple[int, Curve]]) -> dict[str, Any] | None:
    """Lines of an SVG picture: of the method, and of the baseline at the same capacities; None without evaluations."""
    heights = [y for _, curve in lines for _, y in curve]
    if not heights:
        return None
    low, high = min(0.0, *heights), max(1.0, *heights)

    def at(y: float) -> float:
        return round(HEIGHT - 8 - (y - low) / (high - low) * (HEIGHT - 16), 1)

    def points(curve: Curve) -> str:
        inside = ((x, min(max(y, low), high)) for x, y in curve)
        return " ".join(f"{MARGIN + x * (WIDTH - MARGIN - 4):.1f},{at(y):g}" for x, y in inside)

    return {
        "width": WIDTH,
        "height": HEIGHT,
        "margin": MARGIN,
        "zero": at(0.0),
        "one": at(1.0),
        "own": [{"k": k, "shade": i % 3, "points": points(curve)} for i, (k, curve) in enumerate(lines) if curve],
        "others": [{"k": k, "shade": i % 3, "points": points(curve)} for i, (k, curve) in enumerate(others) if curve],
    }


def write_page(
    folder: Path,
    table: BenchmarkTable,
    protocol: Protocol,
    sources: Mapping[str, Iterable[StoredRun]],
    notes: Sequence[str] = (),
) -> Path:
    """Write the page of a table and return its path. sources: those that the table was made from."""
    track = leaderboard_track(protocol, table, sources)
    board = Leaderboard(f"StaleBench {track.title}", (track,), tuple(notes))
    texts: dict[str, MethodText] = {}  # those of published runs come first
    for source, runs in sources.items():
        for run in runs:
            texts.setdefault(str(run.spec["algorithm"]), _text(run))
            texts.setdefault(f"{method_of(run)} ({source})", _text(run))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{table.track}.html"
    write_bytes(path, leaderboard_html(board, texts).encode())
    return path


def _text(run: StoredRun) -> MethodText:
    """Return the texts about a method from the record of a run."""
    method = run.record.get("method", {})
    return MethodText(summary=str(method.get("summary", "")), source=str(method.get("paper", "")))
