"""Page of early warnings: metrics that change before the reward falls, from all bundles."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from alarm_counts import METRICS, Counts, Metric, Run, best_level, count, halves, intervals, stale_runs

from staleharness.base.table_formatting import markdown_table
from staleharness.statistics.claims.early_warning import FEWEST, WINDOW

WIDTH = 118  # characters of a line
KINDS = {"language": "Tokens", "control": "Control"}
HEAD = f"""<!-- Made by docs/generate.py (`make docs`) from the bundles of results/reference. -->

# Early warnings

Which metrics of a run change before its reward falls, how long before, and how often do they also change without a
fall? Counted over all published runs with stale data. The [definitions](alarm_counts.py) were written before anything
was computed, except for later additions: chains do not count, the time before the fall has an interval, a mean of
returns is over the phases in which an episode ended, a metric with fewer than {FEWEST} falls has no interval, and
phases that fill the buffer are left out.

- **Fall**: the reward of the data (control: the return), averaged over {WINDOW} phases, is below two thirds of its best
  so far, if that is above 0. Phases before twice the largest lag and those that fill the buffer do not count, since
  their data are fresher. Runs that end before then do not count, including all chains.
- **Alarm**: the mean of the metric over the same phases has left its own best so far by more than a level. **Hit**: the
  alarm comes in an earlier phase than the fall. **False alarm**: an alarm in a run without a fall.
- **Level**: chosen on one half of the studies, to maximise the hit rate minus the false-alarm rate; the table shows
  the other half. The first studies were assigned alternately in order of name, later ones by a hash of the name.
  Intervals are 95 %, from resampled triples of study, environment and seed, as runs of one seed share their noise.
  Bold: the interval excludes 0 after Bonferroni correction over the table.
- **The reward itself**, with a looser threshold, is the baseline. A fall passes through that level, so on tokens it
  is nearly always a hit, but it comes late (last column). On HalfCheetah all episodes end in the same phase, one in
  eight (at the ratios of VACO's paper, one in four), so the return falls abruptly.

"""
TAIL = """## Not measured

Falls are rare outside of long runs and high learning rates, so the tables describe studies that have them. KL by age is
stored under `MISMATCH` alone, and the cosine of successive gradients by `gac` alone (`gac[share=0]` is PPO-clip that
records it). Each metric has one level for all methods and environments; a level for a known setup may do better.
[The ESS before a collapse](gallery/async_rl.md) is one study, drawn run by run."""


def row_of(metric: Metric, level: float, counts: Counts, tests: int = 1) -> list[str]:
    """Return a row of the page's table: metric, alarm, hits, false alarms, difference, lead.

    tests: rows of the table with enough falls.
    """
    hits, false_alarms = (f"{x.sum():.0f} of {n.sum():.0f}" for x, n in (counts[1::-1], counts[3:1:-1]))
    lead = f"{counts.lead:.0f}" if counts.hits.sum() else "–"
    if counts.fell.sum() < FEWEST:
        return [metric.name, rule_of(metric, level), hits, false_alarms, "–", lead]
    ranges = intervals(counts)

    def percent(name: str, sign: str = "") -> str:
        low, high = (f"{100 * x:z.0f}" for x in ranges[name])
        return f"{getattr(counts, name):{sign}z.0%} [{low}, {high}]".replace("-", "−")

    gain = percent("gain", "+")
    lowest, highest = intervals(counts, tests)["gain"]
    low, high = ranges["lead"]
    return [
        metric.name,
        rule_of(metric, level),
        f"{hits}, {percent('hit_rate')}",
        f"{false_alarms}, {percent('alarm_rate')}",
        f"**{gain}**" if lowest > 0 or highest < 0 else gain,
        f"{lead} [{low:.0f}, {high:.0f}]" if counts.hits.sum() else lead,
    ]


def rule_of(metric: Metric, level: float) -> str:
    """Return the alarm in words."""
    if metric.rule == "size":
        return f"beyond ±{level:g}"
    if metric.rule == "change":
        return f"{level:g} above its minimum" if metric.rises else f"{level:g} below its maximum"
    return f"above {level:g} × its minimum" if metric.rises else f"below {level:g} × its maximum"


def section(kind: str, runs: Sequence[Run]) -> str:
    """Return the part of the page on one kind of task."""
    choosing, reporting = halves(runs)
    results: list[tuple[Metric, float, Counts]] = []
    silent = []
    for metric in METRICS:
        level = best_level(choosing, metric)
        counts = None if level is None else count(reporting, metric, level)
        if level is None or counts is None or not (counts.fell.sum() and counts.stood.sum()):
            silent.append(metric.name)
        else:
            results.append((metric, level, counts))
    tests = sum(counts.fell.sum() >= FEWEST for _, _, counts in results)
    rows = [row_of(*result, tests) for result in results]
    falls = [sum(bool(np.isfinite(run.fall)) for run in half) for half in (choosing, reporting)]
    studies = [", ".join(sorted({run.study for run in half})) for half in (choosing, reporting)]
    head = ["metric", "alarm", "hits", "false alarms", "hits less false alarms", "phases before the fall"]
    sizes = [
        f"{len(half)} runs with {n} falls ({names})"
        for half, n, names in zip((choosing, reporting), falls, studies, strict=True)
    ]
    about = textwrap.fill(f"Levels were chosen on {sizes[0]}; the table shows {sizes[1]}.", WIDTH)
    parts = [f"## {KINDS[kind]}", about, markdown_table(head, rows)]
    if falls[1] < FEWEST:
        parts.append(f"**{falls[1]} falls are too few to tell metrics apart**, whatever the intervals say.")
    else:
        better = [row[0] for row in rows if row[4].startswith("**+") and row[0] != METRICS[-1].name]
        parts.append(
            f"Apart from the reward, hits exceed false alarms by more than chance for: {', '.join(better) or 'none'}."
        )
    if silent:
        parts.append(textwrap.fill(f"Not stored, or without a fall in one of the halves: {', '.join(silent)}.", WIDTH))
    return "\n\n".join(parts)


def early_warnings(bundles: Path) -> str:
    """Return the page."""
    runs = stale_runs(bundles)
    parts = [section(kind, mine) for kind in KINDS if (mine := [run for run in runs if run.kind == kind])]
    return HEAD + "\n\n".join([*parts, TAIL]) + "\n"
