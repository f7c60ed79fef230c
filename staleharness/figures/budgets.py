"""The share of the synchronous score that is kept, in several studies side by side: what the budget does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..errors import UserError
from ..statistics.claims.claim import ClaimPart
from ..statistics.claims.contrast import Contrast
from ..statistics.claims.evidence import Evidence
from ..statistics.claims.part_tests import Term, compare_terms
from ..statistics.labels import display_label
from ..statistics.results import Results
from ..statistics.retention import MIN_GAIN
from ..statistics.scores import Array, final_score
from ..statistics.small_samples import MIN_RUNS
from ..statistics.table import Table, extent
from .canvas import FAINT, PAGE, columns_for, panels, shown
from .marks import dots, highest_first, named_rows
from .palette import Style, styles
from .registry import FIGURES
from .risk_table import lags_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Shares = dict[str, Array]  # {algorithm: [seeds]}
Bars = dict[str, Contrast | None]  # {algorithm: its interval}


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
    over the mean at K = 1, and the mean of them. `envs`: only these. `beside`: the other studies. Raises `UserError`
    where there is nothing to show."""
    studies = [results, *(beside or {}).values()]
    found = {
        (env, i): shares
        for i, study in enumerate(studies)
        for env in study.grid.envs
        if not envs or env.rpartition("-v")[0] in envs
        if (shares := kept(Evidence(study, table), env, k))
    }
    if not found:
        raise UserError(f"no study has runs at K=1 and K={k}")
    places = sorted(found)
    names = sorted({label for shares in found.values() for label in shares})
    means = {n: float(np.mean([s[n].mean() for s in found.values() if n in s])) for n in names}
    looks = {
        label: Style(s.index, s.colour, s.marker, s.dashes, display_label(label))
        for label, s in highest_first(styles(names), means).items()
    }
    ns = sorted({len(values) for shares in found.values() for values in shares.values()})
    span = " to ".join(map(str, dict.fromkeys((ns[0], ns[-1]))))
    subtitle = (
        f"share of the synchronous score that is kept at K = {k}, counted from a random policy's: a dot per seed (its "
        f"score over the mean at K = 1; n = {span} seeds); black: mean, bars: {table.settings['level']:.0%} interval "
        f"(Student's, of {MIN_RUNS} seeds or more, with both means uncertain); in the headings: phases × gradient "
        f"steps of a phase, and mean lag in gradient steps{_left_out(studies, table, found, k)}"
    )
    table = replace(table, settings=table.settings | extent(run for study in studies for run in study))
    columns = columns_for(width, min(3, len(places)))
    with panels(
        "The budget side by side",
        subtitle,
        [0] * len(places),
        table=table,
        columns=columns,
        height=0.62 + 0.19 * len(names),
        width=width,
    ) as (figure, axes):
        bars: list[Bars] = [
            {label: interval(Evidence(studies[study], table), label, env, k) for label in found[env, study]}
            for env, study in places
        ]
        every = [x for shares in found.values() for values in shares.values() for x in values]
        every += [end for bar in bars for b in bar.values() if b for end in (b.low, b.high) if end is not None]
        for i, (ax, (env, study)) in enumerate(zip(axes, places, strict=True)):
            _panel(ax, studies[study], env, found[env, study], bars[i], looks, k, width)
            ax.set_xlim(min(0.0, *every) - 0.05, max(1.0, *every) + 0.05)
            ax.tick_params(axis="y", labelleft=i % columns == 0)
            ax.set_xlabel("share kept" if i + columns >= len(places) else "")
    return figure


def _left_out(studies: Sequence[Results], table: Table, found: Mapping[tuple[str, int], Shares], k: int) -> str:
    """What is to be said where a method with runs has no share."""
    for (env, study), shares in found.items():
        evidence = Evidence(studies[study], table)
        for label in evidence.results.grid.labels:
            if label not in shares and evidence.runs(label, k, env) and evidence.runs(label, 1, env):
                return f"; no row: it gained less than {MIN_GAIN:.0%} of the best one's at K = 1, or has no runs"
    return ""


def kept(evidence: Evidence, env: str, k: int) -> Shares:
    """The share kept by each seed of each method that learned without lag: its score at k over the mean score at
    K = 1."""
    score = evidence.table.settings["score"]
    out = {}
    for label in evidence.results.grid.labels:
        at_k, at_1 = (list(evidence.runs(label, at, env).values()) for at in (k, 1))
        if at_k and at_1 and evidence.has_learned(label, env):
            zero = evidence.zero(env)
            base = float(np.mean([final_score(run, score) for run in at_1])) - zero
            out[label] = np.array([(final_score(run, score) - zero) / base for run in at_k])
    return out


def interval(evidence: Evidence, label: str, env: str, k: int) -> Contrast | None:
    """The share kept with its interval, in which the mean at K = 1 is as uncertain as that at k: what a verdict on it
    takes. None where fewer than `FEWEST` seeds have both runs."""
    part = ClaimPart(label, (label,), what="kept", than=0.0, env=env)
    try:
        made = compare_terms(evidence, [Term(label, k, 1.0, share=True)], part)
    except UserError:
        return None
    return made if made.n >= MIN_RUNS else None


def _panel(
    ax: Axes, study: Results, env: str, shares: Shares, bars: Bars, looks: Mapping[str, Style], k: int, width: float
) -> None:
    rows = {}
    for at, (label, look) in enumerate(looks.items()):
        if label not in shares:
            continue
        values = shares[label]
        dots(ax, at, values.tolist(), look, across=True)
        made = bars[label]
        rows[label] = (float(values.mean()), *((made.low, made.high) if made else (None, None)))
    named_rows(ax, looks, rows, width)
    ax.axvline(1, color=FAINT, linewidth=0.8, linestyle=(0, (1, 2)))
    ax.xaxis.set_major_locator(MaxNLocator(4))
    n = sorted({len(values) for values in shares.values()})
    runs = [run for run in study if run.spec["env"] == env and int(run.spec["capacity"]) == k]
    lag = next(lag for setting, lag in lags_of(Results.of(runs)).items() if setting.k == k)
    phases = int(runs[0].record["phases"])
    steps = int(runs[0].record["gradient_steps"]) // phases
    seeds = f"n = {n[0]}" if len(n) == 1 else f"n = {n[0]} to {n[-1]}"
    ax.set_title(f"{shown(env)}, {seeds}\n{phases} × {steps}, lag {lag:,.0f}", loc="left")
