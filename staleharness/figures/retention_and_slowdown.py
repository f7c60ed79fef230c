"""Share of the synchronous score that methods retain, in one study or in several, and slowdown by stale data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..base.text_formatting import listing, span
from ..errors import UserError
from ..statistics.aggregate import MIN_RUNS
from ..statistics.claims.claim_schema import ClaimPart
from ..statistics.claims.part_tests import Term, compare_terms
from ..statistics.claims.study_evidence import Evidence
from ..statistics.lag_curve import lag_curves
from ..statistics.results import Results
from ..statistics.retained_share import MIN_GAIN, retained_shares
from ..statistics.row_diagnostics import budget_phases
from ..statistics.scores import AUTO, Array, final_score, resolve_auto
from ..statistics.slowdown import LEVEL, Slowdown, slowdowns
from ..statistics.table import Table, extent
from ..study import without_version
from .captions import size
from .lag_tables import lags_of
from .palette import Style, looks_of, looks_of_curves, styles, with_names
from .plot_layout import INK, LETTER, PAGE, columns_for, gid, label_edges, panels, percent_axis, short_label
from .plot_marks import REFERENCE_LINE, dots, draw_interval, highest_first, log_axis, named_rows, row_axis
from .registry import FIGURES, Section

TOP = 2.0  # an axis of shares ends here at most


Shares = dict[str, Array]  # {algorithm: [seeds]}
Rows = dict[str, tuple[float, float | None, float | None]]  # {algorithm: its mean share and interval}


@FIGURES.register("budgets")
def budgets(
    results: Results,
    table: Table,
    width: float = PAGE,
    *,
    k: int = 16,
    envs: tuple[str, ...] = (),
    beside: Mapping[str, Results] | None = None,
) -> Figure:
    """The share kept at capacity k of each method, a panel per study and environment: a dot per seed, its score at k
    over the mean at K = 1, and their mean. `envs`: only these. `beside`: the other studies. Raises `UserError`
    if no study has a share."""
    studies = [Evidence(study, table) for study in (results, *(beside or {}).values())]
    panel_shares = {
        (env, i): shares
        for i, study in enumerate(studies)
        for env in study.results.grid.envs
        if not envs or without_version(env) in envs
        if (shares := kept_shares(study, env, k))
    }
    if not panel_shares:
        raise UserError(f"no study has runs at K=1 and K={k}")
    places = sorted(panel_shares)
    names = sorted({label for shares in panel_shares.values() for label in shares})
    means = {n: float(np.mean([s[n].mean() for s in panel_shares.values() if n in s])) for n in names}
    looks = with_names(highest_first(styles(names), means))
    n = span(len(values) for shares in panel_shares.values() for values in shares.values())
    subtitle = (
        f"share of the synchronous score that is kept at K = {k}, counted from a random policy's: a dot per seed (its "
        f"score over the mean at K = 1; n = {n} seeds); upright line: mean, bars: {table.settings['level']:.0%} "
        f"interval (Student's, of {MIN_RUNS} seeds or more, with both means uncertain); in the headings: phases × "
        f"gradient steps of a phase, and mean lag in gradient steps{_left_out(studies, panel_shares, k)}"
    )
    table = replace(table, settings=table.settings | extent(run for study in studies for run in study.results))
    columns = columns_for(width, min(3, len(places)))
    title, height = "The budget side by side", 0.62 + 0.19 * len(names)
    with panels(title, subtitle, [0] * len(places), table, width, height, columns) as (figure, axes):
        rows: dict[tuple[str, int], Rows] = {
            (env, i): {name: (float(x.mean()), *interval(studies[i], name, env, k)) for name, x in shares.items()}
            for (env, i), shares in panel_shares.items()
        }
        ends = [x for shares in panel_shares.values() for values in shares.values() for x in values]
        ends += [end for of_panel in rows.values() for _, *bar in of_panel.values() for end in bar if end is not None]
        for i, (ax, (env, study)) in enumerate(zip(axes, places, strict=True)):
            place = env, study
            _budget_panel(ax, studies[study].results, env, panel_shares[place], rows[place], looks, k, width)
            ax.set_xlim(min(0.0, *ends) - 0.05, max(1.0, *ends) + 0.05)
            ax.tick_params(axis="y", labelleft=i % columns == 0)
            ax.set_xlabel("share kept" if i + columns >= len(places) else "")
    return figure


def _left_out(studies: Sequence[Evidence], panel_shares: Mapping[tuple[str, int], Shares], k: int) -> str:
    """Note for the second line if a method with runs has no share."""
    for (env, study), shares in panel_shares.items():
        evidence = studies[study]
        for label in evidence.results.grid.labels:
            if label not in shares and evidence.runs(label, k, env) and evidence.runs(label, 1, env):
                return f"; no row: it gained less than {MIN_GAIN:.0%} of the best one's at K = 1, or has no runs"
    return ""


def kept_shares(evidence: Evidence, env: str, k: int) -> Shares:
    """Share kept by each seed of each method that learned without lag: its score at k over the mean score at K = 1,
    where runs of methods that are the same computation count too."""
    score = evidence.table.settings["score"]
    out = {}
    for label in evidence.results.grid.labels:
        if not (evidence.runs(label, k, env) and evidence.runs(label, 1, env)):
            continue
        at_k, at_1 = (evidence.pool(label, at, env) for at in (k, 1))
        if evidence.has_learned(label, env):
            zero = evidence.zero(env)
            base = float(np.mean([final_score(run, score) for run in at_1])) - zero
            out[label] = np.array([(final_score(run, score) - zero) / base for run in at_k])
    return out


def interval(evidence: Evidence, label: str, env: str, k: int) -> tuple[float | None, float | None]:
    """Interval of the share kept, in which the mean at K = 1 is as uncertain as that at k, as verdicts use it. Its ends
    are None if fewer than `MIN_RUNS` seeds have a run at k, or at K = 1."""
    part = ClaimPart(label, (label,), what="kept", than=0.0, env=env)
    try:
        contrast = compare_terms(evidence, [Term(label, k, 1.0)], part)
    except UserError:
        return None, None
    return (contrast.low, contrast.high) if min(contrast.n) >= MIN_RUNS else (None, None)


def _budget_panel(
    ax: Axes, study: Results, env: str, shares: Shares, rows: Rows, looks: Mapping[str, Style], k: int, width: float
) -> None:
    for at, (label, look) in enumerate(looks.items()):
        if label in shares:
            dots(ax, at, shares[label].tolist(), look, across=True)
    named_rows(ax, looks, rows, width)
    ax.axvline(1, **REFERENCE_LINE)
    ax.xaxis.set_major_locator(MaxNLocator(4))
    seeds = f"n = {span(map(len, shares.values()))}"
    runs = [run for run in study if run.spec["env"] == env and int(run.spec["capacity"]) == k]
    lag = next((f", lag {lag:,.0f}" for lag in lags_of(Results.of(runs)).values()), "")
    steps = int(runs[0].record["gradient_steps"]) // int(runs[0].record["phases"])
    ax.set_title(f"{short_label(env)}, {seeds}\n{budget_phases(runs[0])} × {steps}{lag}", loc="left")


@FIGURES.register("slowdown")
def slowdown(
    results: Results, table: Table, width: float = PAGE, *, level: float = LEVEL, k: int | None = None
) -> Figure:
    """Steps at `k` (None: the largest) over steps at K = 1 until both reach `level` of the method's best synchronous
    score: a row per method, a panel per environment. Raises `UserError` if there is none."""
    score = table.settings["score"]
    curves, refusals = lag_curves(results, score=score)
    k = max((c.capacities[-1] for c in curves), default=0) if k is None else k
    by_env: dict[str, dict[str, Slowdown]] = {}
    missing = [f"{r.algorithm} on {r.env}" for r in refusals]
    for curve in curves:
        try:
            at_k = [s for s in slowdowns(curve, score, level) if s.k == k]
        except UserError:
            at_k = []
        if at_k:
            by_env.setdefault(curve.env, {})[curve.algorithm] = at_k[0]
        else:
            missing.append(f"{curve.algorithm} on {curve.env}")
    if not by_env:
        if k == 0:
            raise UserError("a slowdown needs runs with K above 1 beside those at K = 1")
        raise UserError(f"no slowdown at K={k} can be read from these results")
    by_env = dict(sorted(by_env.items()))
    factors = {
        name: [rows[name].factor for rows in by_env.values() if name in rows]
        for name in sorted({n for rows in by_env.values() for n in rows})
    }
    # The least slowed first, by the geometric mean over environments. Methods with a lower bound, which may be any
    # amount slower, come last.
    sort_keys = {
        name: -sum(math.log(f.value) for f in fs) / len(fs) - 1e3 * sum(f.never for f in fs)
        for name, fs in factors.items()
    }
    looks = highest_first(looks_of_curves(table, sort_keys), sort_keys)
    subtitle = (
        f"steps at K = {k} over steps at K = 1 until both reach {level:.0%} of the method's best synchronous "
        f"{table.settings['measure']} (n = {span(c.n for c in curves)} seeds); bars: "
        f"{table.settings['level']:.0%} bootstrap interval; arrow: no upper end, as the level was not reached within "
        "the run; dashed: the estimate itself is a lower bound; such methods are sorted last"
    )
    zeros = " or ".join(sorted({c.zero_note for c in curves}))
    subtitle += f"; scores are counted from {zeros}"
    subtitle += f"; no answer for {listing(missing, 4)}" if missing else ""
    columns, height = columns_for(width, min(3, len(by_env))), 0.5 + 0.2 * len(looks)
    with panels("Slowdown by stale data", subtitle, [0] * len(by_env), table, width, height, columns) as (figure, axes):
        x_values = [f.value for rows in by_env.values() for r in rows.values() for f in (r.low, r.factor, r.high)]
        ends = min(0.8, *x_values) / 1.1, max(2.0, *x_values) * math.sqrt(2)
        for i, (ax, (env, rows)) in enumerate(zip(axes, by_env.items(), strict=True)):
            _slowdown_panel(ax, rows, looks, ends)
            ax.set_title(env, loc="left")
            row_axis(ax, [short_label(look.name, width) for look in looks.values()], spine=True)
            ax.tick_params(axis="y", labelleft=i % columns == 0)
    return figure


def _slowdown_panel(
    ax: Axes, rows: Mapping[str, Slowdown], looks: Mapping[str, Style], ends: tuple[float, float]
) -> None:
    """Draw a row per method, from top to bottom; one without a slowdown on this environment keeps its row, empty. A
    bound is an arrow from it to the edge. ends: of the axis, the same in all panels."""
    ax.axvline(1, color=INK, linewidth=0.7, dashes=(4, 2))
    for at, (name, look) in enumerate(looks.items()):
        if name not in rows:
            continue
        row, edge = rows[name], ends[1] / 1.04
        draw_interval(ax, look, [row.low.value, edge if row.high.never else row.high.value], [at, at], 3, 0.25)
        pen: dict[str, Any] = {"color": look.colour, "gid": gid(look), "clip_on": False}
        if row.high.never:
            ax.plot(edge, at, marker=">", markersize=5, **pen)
        if row.factor.never:
            ax.plot([row.factor.value, edge], [at, at], linewidth=1.1, dashes=(2, 1), **pen)
        else:
            ax.plot(row.factor.value, at, color=look.colour, marker=look.marker, markersize=5, gid=gid(look))
    log_axis(ax)
    ax.set_xlim(*ends)
    ax.set_xlabel("times as many steps")


def _has_retained_shares(results: Results) -> bool:
    grid = results.grid
    if 1 not in grid.capacities or len(grid.capacities) < 2:
        return False
    score, normalise = resolve_auto(results, AUTO, AUTO)
    return bool(retained_shares(grid, score, normalise == "raw"))


@FIGURES.register(
    "retained_shares",
    Section(
        5,
        "Share of the score without lag that is retained",
        "Line: the score at K over that at K = 1, each above a random policy's (an accuracy: above 0). Bar: its "
        "interval, Student's, cut at the edge.",
        _has_retained_shares,
    ),
)
def retained_shares_by_method(results: Results, table: Table, width: float = PAGE) -> Figure:
    """Retained share of each method, best first, with Student's interval: a panel per K beyond 1."""
    looks = looks_of(table)
    rows: dict[int, Rows] = {}
    for row in table.rows:
        if row["retained"] is not None:
            estimate = row["retained"], row["retained_low"], row["retained_high"]
            rows.setdefault(row["capacity"], {})[row["algorithm"]] = estimate
    ks = sorted(rows) or table.settings["capacities"][-1:]  # by a score other than the usual, none may have learned
    ends = [end for of_k in rows.values() for values in of_k.values() for end in values if end is not None]
    low, high = max(-0.5, min([0.0, *ends])), min(TOP, max([1.05, *ends]))
    height = 0.5 + 0.17 * max(map(len, rows.values()), default=1)
    subtitle = f"{size(table)}; bars: {table.settings['level']:.0%} Student's interval; dotted: as without lag"
    beyond = any(not low <= value <= high for of_k in rows.values() for value, *_ in of_k.values())
    subtitle += "; a number: a share beyond the axis" if beyond else ""
    subtitle += "" if rows else f"; no method learned at K = 1 by {table.settings['measure']}"
    longest = max((len(short_label(look.name or label, width)) for label, look in looks.items()), default=0)
    columns = columns_for(width, min(3, len(ks)), 1.0 + LETTER * longest)  # each panel has names of its own
    with panels("Share of the score that is retained", subtitle, ks, table, width, height, columns) as (figure, axes):
        for ax, k in zip(axes, ks, strict=True):
            of_k = rows.get(k, {})
            looks_at_k = {label: look for label, look in looks.items() if label in of_k}
            order = highest_first(looks_at_k, {label: values[0] for label, values in of_k.items()})
            ax.axvline(1.0, **REFERENCE_LINE)
            named_rows(ax, order, of_k, width)
            ax.set_title(f"K = {k}", loc="left")
            ax.set_xlim(low, high)
            percent_axis(ax, across=True)
            for at, (label, look) in enumerate(order.items()):
                _write_beyond_axis(ax, at, of_k[label][0], look)
        label_edges(axes, "share retained", "")
    return figure


def _write_beyond_axis(ax: Axes, at: float, value: float, look: Style) -> None:
    """Write a share that lies beyond the axis at its edge."""
    low, high = ax.get_xlim()
    if not low <= value <= high:
        x, side = (high, "right") if value > high else (low, "left")
        ax.text(x, at, f"{value:.0%}", ha=side, va="center", fontsize=6.5, color=INK, gid=gid(look))
