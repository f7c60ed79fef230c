"""Advice as text: tables with explanations and, for a log, a conclusion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...base.table_formatting import fit, fixed_width
from ...base.text_formatting import number, span, wrap_lines

if TYPE_CHECKING:
    from ...statistics.advice import Advice
    from ...statistics.advice_per_method import MethodAdvice

WIDTH = 120
VERDICTS = {"kept": "keeps enough", "lost": "loses more"}  # others are printed as they are


def as_text(advice: Advice, source: str, width: int = WIDTH) -> list[str]:
    """Tables with explanations: the pipeline, the log, each environment, refused questions, notes, conclusions."""
    s = advice.settings
    steps = span(steps for _, steps in s["sizes"])
    days = " to ".join(dict.fromkeys((s["dates"][0], s["dates"][-1])))
    head = (
        f"{source} | IQM of {s['measure']} | {s['level']:.0%} bootstrap intervals over seeds | runs of {steps} "
        f"steps, {days}"
    )
    text = wrap_lines([head], width)
    text += _pipeline(advice) if advice.caps else []
    text += ["", *wrap_lines(_log(advice), width)] if advice.log else []
    for env in advice.envs:
        text += ["", *_environment(advice, env, width)]
    text += ["", *wrap_lines(_refusals(advice), width)] if advice.refusals else []
    text += ["", *wrap_lines([f"note: {note}" for note in advice.notes], width)]
    for env in advice.envs:
        text += ["", "conclusion:"] if advice.log and env == advice.envs[0] else []
        text += wrap_lines([f"{'  ' if i else ''}{line}" for i, line in enumerate(advice.conclusion(env))], width)
    return text


def _pipeline(advice: Advice) -> list[str]:
    first = advice.caps[0].step_seconds
    lines = [
        [
            f"cap {c.name}",
            number(c.row_lag),
            number(c.lag),
            number(c.step_seconds, 1),
            f"{first / c.step_seconds:.2f}x",
            c.binds,
        ]
        for c in advice.caps
    ]
    reason = dict.fromkeys(f"{c.binds}: {c.explanation}" for c in advice.caps)
    return ["", *fixed_width(["pipeline", "lag", "token lag", "s/step", "speed", "binds"], lines), *reason]


def _log(advice: Advice) -> list[str]:
    """Say where the lags come from, what their mean is taken over, and what else the log has."""
    assert advice.log is not None
    s = advice.log.to_json()
    over = "rows, each counted once" if s["over"] == "rows" else "decisions, so that long rows count for more"
    count = f"{s['rows']:,} {'step' if s['each'] == 'step' else 'row'}{'' if s['rows'] == 1 else 's'}"
    lines = [
        f"log {s['file']}, column {s['column']}, {s['note']}",
        f"mean lag {s['mean']:.2f} {s['unit'].replace('_', ' ')} over {over} ({count}); {_tail(s)}",
    ]
    lines += [f"the log also has {o['column']}, mean {o['mean']:.2f}: {o['what']}" for o in s["others"]]
    if s["drift"]:
        first, last = s["drift"]["first_quarter"], s["drift"]["last_quarter"]
        lines.append(f"the lag drifts: mean {first:.2f} in the first quarter of the log, {last:.2f} in the last")
    return lines


def _tail(s: Mapping[str, Any]) -> str:
    """Median, 95th percentile and maximum, as far as the log has them: a log of step means has neither median nor
    percentile of rows."""
    if s["step_means"] is None:
        return f"median {s['median']:.3g}, p95 {s['p95']:.3g}, max {s['max']:.3g}"
    columns = [
        f"largest {column['value']:.3g} ({column['column']})"
        if name == "max"
        else f"{name} of a step {column['value']:.3g} on average ({column['column']})"
        for name, column in s["statistics"].items()
    ]
    step_means = f"step means up to {s['step_means']['max']:.3g}"
    return ", ".join(columns or [f"{step_means}: the log has no column of maxima or percentiles"])


def _environment(advice: Advice, env: str, width: int) -> list[str]:
    from ...statistics.log_advice_text import by_share

    methods, keep = by_share(advice.on(env)), advice.settings["keep"]
    digits = 3 if max(abs(m.row["synchronous"]) for m in methods) < 10 else 0
    over = advice.log.over if advice.log and not advice.caps else "decisions"
    budget, gradient, seeds = f"budget {100 * keep:g}%", "in gradient steps", f"seeds for -{100 - 100 * keep:g}%"
    score = "score K=1"
    headers = ["method", "n", score, *_headings(advice, methods), budget, gradient, seeds]
    lines = [
        [
            m.curve.algorithm,
            str(m.curve.n),
            number(m.row["synchronous"], digits),
            *_cells(advice, m),
            _budget(m.row, m.curve.to_rows if over == "rows" else float),
            "–" if m.row["gradient_steps_per_phase"] is None else _budget(m.row, m.curve.gradient_steps, 0),
            "> 1000" if m.row["seeds_to_see_it"] is None else str(m.row["seeds_to_see_it"]),
        ]
        for m in methods
    ]
    headers, lines, hidden = fit(headers, lines, width, (gradient, seeds, "n", score))
    text = [f"{env}: share of the synchronous score that is kept", *fixed_width(headers, lines)]
    text += [f"left out for lack of room (--json has it): {', '.join(hidden)}"] if hidden else []
    best = [_best(point, digits) for point in advice.frontier if point["env"] == env]
    text += ["highest score at each speed:", *wrap_lines(best, width)] if best else []
    return text


def _headings(advice: Advice, methods: Sequence[MethodAdvice]) -> list[str]:
    if advice.caps:
        names = [f"cap {advice.caps[i].name}" for i in _distinct_caps(advice)]
        return [*names, *(["log"] if advice.log else []), "take"]
    if advice.log:
        return ["at the log's lag", "verdict"]
    ks = sorted({(p["k"], round(p["lag"], 1)) for m in methods for p in m.row["points"][1:]})
    return [f"K={k} lag {lag:.1f}" for k, lag in ks]


def _cells(advice: Advice, method: MethodAdvice) -> list[str]:
    row = method.row
    if advice.caps:
        cells = [_share(row["caps"][i]) for i in _distinct_caps(advice)]
        take = row["recommended"]
        name = "–" if take is None else _cap(take["cap"]) + ("" if take["sure"] else " ?")
        return [*cells, *([_share(row["log"])] if advice.log else []), name]
    if advice.log:
        verdict = row["log"]["verdict"]
        return [_share(row["log"]), VERDICTS.get(verdict, verdict)]
    by_place = {f"K={p['k']} lag {p['lag']:.1f}": p for p in row["points"]}
    return [_share(by_place[h]) if h in by_place else "–" for h in _headings(advice, advice.on(row["env"]))]


def _distinct_caps(advice: Advice) -> list[int]:
    """Indices of the caps that allow lag and change lag or speed: one that never holds a row back changes neither."""
    caps = advice.caps
    return [i for i, c in enumerate(caps) if c.lag > 0 and not any(c[1:3] == other[1:3] for other in caps[:i])]


def _cap(cap: float | None) -> str:
    return "no cap" if cap is None else f"cap {cap:g}"


def _share(point: Mapping[str, Any]) -> str:
    """`86% [61, 100]`, or a dash beyond the data."""
    if point["kept"] is None:
        return "–"
    share, low, high = (100 * point[name] for name in ("kept", "kept_low", "kept_high"))
    return f"{share:.0f}% [{low:.0f}, {high:.0f}]"


def _budget(row: Mapping[str, Any], convert: Callable[[float], float], digits: int = 1) -> str:
    """`2.5 [< 1.5, 4.4]`, of lags converted from phases over decisions."""
    from ...statistics.staleness_budget import Limit

    middle, low, high = (
        Limit(convert(row[name]["lag"]), row[name]["kind"]) for name in ("budget", "budget_low", "budget_high")
    )
    return f"{middle.sign(digits)} [{low.sign(digits)}, {high.sign(digits)}]"


def _best(point: Mapping[str, Any], digits: int) -> str:
    alike = ", ".join(
        f"{other['algorithm']} ({'> 1000' if other['seeds_to_tell'] is None else other['seeds_to_tell']})"
        for other in point["cannot_be_told_from"]
    )
    return (
        f"  at {point['step_seconds']:.1f} s/step ({point['speed_up']:.2f}x, {_cap(point['cap'])}, "
        f"{point['binds']} binds): "
        f"{point['algorithm']} {number(point['score'], digits)} "
        f"[{number(point['score_low'], digits)}, {number(point['score_high'], digits)}]"
        + (f"; not distinguishable from it (seeds it would take): {alike}" if alike else "")
    )


def _refusals(advice: Advice) -> list[str]:
    """One line for each reason and environment."""
    methods: dict[tuple[str, str], list[str]] = {}
    for refusal in advice.refusals:
        methods.setdefault((refusal.env, refusal.reason), []).append(refusal.algorithm)
    return [f"no answer for {', '.join(names)} on {env}: {reason}" for (env, reason), names in methods.items()]
