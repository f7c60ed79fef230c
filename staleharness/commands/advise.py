"""`staleharness advise`: which K, which method, on my system? From stored runs, a pipeline, a real system's log."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..base.files import user_path, write_bytes
from ..base.text import fit, fixed_width, number, printable, wrap_lines
from ..errors import UserError
from .shared.arguments import SWITCH, RunFilters, option

if TYPE_CHECKING:
    from ..pipeline.pipeline_summary import CapResult
    from ..statistics.advice import Advice
    from ..statistics.method_advice import MethodAdvice
    from ..statistics.results import Results

PICTURES = (".png", ".svg", ".pdf")
CAPS = "0,1,2,4,8"
WIDTH = 120
VERDICTS = {
    "kept": "keeps enough",
    "lost": "loses more",
    "cannot tell": "cannot tell",
    "beyond the data": "beyond the data",
}


@dataclass(frozen=True)
class Command(RunFilters):
    """Advise on K and method: staleness budgets from stored runs, score against time from a pipeline, and where the
    lag of a real system lies. Trains nothing, and says nothing beyond the data."""

    results: Annotated[str, option("FOLDER", "results")] = "results"
    """Stored runs at several K, K = 1 among them: a results folder or a bundle."""
    preset: Annotated[str | None, option("NAME", "async")] = None
    """A pipeline to compare them with: sync, one-step-off, async, in-flight."""
    set: Annotated[str | None, option("NAME=VALUE,...")] = None
    """Settings of the pipeline, as in `staleharness pipeline`."""
    cap: Annotated[str | None, option("N,...", CAPS)] = None
    """Caps to try; `none` means no cap. Speeds are relative to the first."""
    log: Annotated[str | None, option("FILE")] = None
    """Lags of a real system: CSV, JSON lines, TensorBoard's event file, or a trace."""
    columns: Annotated[str | None, option("lag=NAME,...")] = None
    """Which column of the log holds the lag (and the count, in a histogram), where its name is not a known one."""
    unit: Annotated[str | None, option("versions|gradient_steps", "the system's")] = None
    """What the log counts."""
    updates: Annotated[str | None, option("N")] = None
    """Gradient steps per version of the pipeline or log; without it a version counts as a phase."""
    keep: Annotated[str, option("SHARE", "0.95")] = "0.95"
    """Share of the synchronous IQM that must be kept."""
    zero: Annotated[str, option("NUMBER|worst", "auto")] = "auto"
    """The score that counts as nothing: that of a random policy (returns) or 0 (accuracies)."""
    score: Annotated[str, option("sampled|deterministic", "auto")] = "auto"
    """Which evaluation counts."""
    out: Annotated[str | None, option("FILE.png|svg|pdf")] = None
    """Draw score against lag and, with a pipeline, against time."""
    json: Annotated[bool, SWITCH] = False
    """Print one JSON object."""


def handle(command: Command) -> int:
    """Print the advice and draw it where asked. Raises `UserError` before anything is written."""
    from ..base.parsing import parse_value
    from ..logs.lag_log import read_log
    from ..statistics.advice import advise

    target = _target(command.out)
    if command.log is None and (command.columns or command.unit):
        raise UserError("COLUMNS and UNIT say how to read a LOG: give LOG=FILE")
    zero = parse_value(command.zero)
    number = isinstance(zero, (int, float)) and not isinstance(zero, bool) and abs(zero) <= sys.float_info.max
    if zero not in ("auto", "worst") and not number:
        raise UserError(f"ZERO={command.zero!r} is not a number, worst or auto")
    keep = _number(command.keep, "KEEP")
    updates = None if command.updates is None else _number(command.updates, "UPDATES")
    log = None if command.log is None else read_log(command.log, command.columns, command.unit)
    runs = _runs(command)
    caps = _caps(command)
    advice = advise(runs, caps=caps, log=log, keep=keep, updates=updates, score=command.score, zero=zero)
    stream = sys.stderr if command.json else sys.stdout
    print("\n".join(map(printable, as_text(advice, command.results))), file=stream)
    if target is not None:
        write_bytes(target, _picture(advice, command.results, target.suffix[1:]))
        print(f"wrote {target}", file=stream)
    if command.json:
        print(json.dumps({"results": command.results, **advice.to_json()}, sort_keys=True))
    return 0


def _runs(command: Command) -> Results:
    from ..base.reference_results import results_path
    from ..statistics.results import Results
    from ..store.store import Store

    store = Store(results_path(command.results))
    store.check_readable(f"RESULTS={command.results}")
    runs = Results.of(store.read_all()).select(env=command.env, k=command.k, algo=command.algo, where=command.where)
    if not runs:
        raise UserError(f"RESULTS={command.results} holds no finished run that matches")
    return runs


def _caps(command: Command) -> list[CapResult]:
    """Pipelines, one per cap; none where no pipeline is described."""
    from ..base.parsing import parse_assignments, split_list
    from ..pipeline.pipeline_settings import preset
    from ..pipeline.pipeline_summary import over_caps

    if command.preset is None and command.set is None and command.cap is None:
        return []
    values = parse_assignments(command.set or "", "SET")
    if "cap" in values:
        raise UserError("SET has cap: give the caps to try as CAP=0,1,2")
    texts = split_list(CAPS if command.cap is None else command.cap)
    caps = list(dict.fromkeys(None if word == "none" else _number(word, "CAP") for word in texts))
    return over_caps(preset(command.preset or "async", values), caps)


def _number(text: str, name: str) -> float:
    from ..base.parsing import convert, parse_value

    try:
        return float(convert(parse_value(text), float, name))
    except UserError as error:
        raise UserError(f"{name}={text!r} is not a number") from error


def _picture(advice: Advice, source: str, kind: str) -> bytes:
    from ..figures.plot_layout import to_bytes
    from ..figures.staleness_cost import draw_advice

    return to_bytes(draw_advice(advice, source), kind, source)


def _target(out: str | None) -> Path | None:
    """Path of the picture, checked before anything is computed."""
    if out is None:
        return None
    path = user_path(out)
    if path.suffix not in PICTURES or path.is_dir():
        raise UserError(f"OUT={out!r} is not the name of a picture; give one that ends in {', '.join(PICTURES)}")
    if not path.parent.is_dir():
        raise UserError(f"OUT={out}: there is no folder {path.parent}")
    return path


def as_text(advice: Advice, source: str, width: int = WIDTH) -> list[str]:
    """Tables with explanations: the pipeline, the log, each environment, refused questions, notes."""
    s = advice.settings
    sizes = sorted(steps for _, steps in s["sizes"])
    steps = " to ".join(f"{n:,}" for n in dict.fromkeys((sizes[0], sizes[-1])))
    days = " to ".join(dict.fromkeys((s["dates"][0], s["dates"][-1])))
    head = (
        f"{source} | IQM of {s['measure']} | {s['level']:.0%} bootstrap intervals over seeds | runs of {steps} "
        f"steps, {days}"
    )
    text = wrap_lines([head], width)
    text += _pipeline(advice) if advice.caps else []
    text += ["", *wrap_lines([_log(advice)], width)] if advice.log else []
    for env in advice.envs:
        text += ["", *_environment(advice, env, width)]
    text += ["", *wrap_lines(_refusals(advice), width)] if advice.refusals else []
    return [*text, "", *wrap_lines([f"note: {note}" for note in advice.notes], width)]


def _pipeline(advice: Advice) -> list[str]:
    first = advice.caps[0].step_seconds
    lines = [
        [f"cap {c.name}", number(c.lag), number(c.step_seconds, 1), f"{first / c.step_seconds:.2f}x", c.binds]
        for c in advice.caps
    ]
    reason = dict.fromkeys(f"{c.binds}: {c.explanation}" for c in advice.caps)
    return ["", *fixed_width(["pipeline", "mean lag", "s/step", "speed", "binds"], lines), *reason]


def _log(advice: Advice) -> str:
    assert advice.log is not None
    summary = advice.log.to_json()
    return (
        f"log {summary['file']}, column {summary['column']}, {summary['note']}: mean {summary['mean']:.2f}, median "
        f"{summary['median']:.3g}, p95 {summary['p95']:.3g}, max {summary['max']:.3g} over {summary['rows']:,} rows"
    )


def _environment(advice: Advice, env: str, width: int) -> list[str]:
    methods, keep = advice.on(env), advice.settings["keep"]
    digits = 3 if max(abs(m.row["synchronous"]) for m in methods) < 10 else 0
    budget, gradient, seeds = f"budget {keep:.0%}", "in gradient steps", f"seeds for -{1 - keep:.0%}"
    score = "score K=1"
    headers = ["method", "n", score, *_headings(advice, methods), budget, gradient, seeds]
    lines = [
        [
            m.curve.algorithm,
            str(m.curve.n),
            number(m.row["synchronous"], digits),
            *_cells(advice, m),
            _budget(m.row),
            _budget(m.row, m.row["gradient_steps_per_phase"]),
            "> 1000" if m.row["seeds_to_see_it"] is None else str(m.row["seeds_to_see_it"]),
        ]
        for m in methods
    ]
    headers, lines, hidden = fit(headers, lines, width, (gradient, seeds, "n", score))
    text = [f"{env}: share of the synchronous score that is kept", *fixed_width(headers, lines)]
    text += [f"no room for {', '.join(hidden)}: --json has them"] if hidden else []
    best = [_best(point, digits) for point in advice.frontier if point["env"] == env]
    return [*text, *(["highest score at each speed:"] if best else []), *wrap_lines(best, width)]


def _headings(advice: Advice, methods: Sequence[MethodAdvice]) -> list[str]:
    if advice.caps:
        names = [f"cap {advice.caps[i].name}" for i in _telling(advice)]
        return [*names, *(["log"] if advice.log else []), "take"]
    if advice.log:
        return ["at the log's lag", "verdict"]
    ks = sorted({(p["k"], round(p["lag"], 1)) for m in methods for p in m.row["points"][1:]})
    return [f"K={k} lag {lag:.1f}" for k, lag in ks]


def _cells(advice: Advice, method: MethodAdvice) -> list[str]:
    row = method.row
    if advice.caps:
        cells = [_share(row["caps"][i]) for i in _telling(advice)]
        take = row["recommended"]
        name = "–" if take is None else _cap(take["cap"]) + ("" if take["sure"] else " ?")
        return [*cells, *([_share(row["log"])] if advice.log else []), name]
    if advice.log:
        return [_share(row["log"]), VERDICTS[row["log"]["verdict"]]]
    by_place = {f"K={p['k']} lag {p['lag']:.1f}": p for p in row["points"]}
    return [_share(by_place[h]) if h in by_place else "–" for h in _headings(advice, advice.on(row["env"]))]


def _telling(advice: Advice) -> list[int]:
    """Places of the caps that make stale data and do something: not those that never hold a row back."""
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


def _budget(row: Mapping[str, Any], scale: float | None = 1.0) -> str:
    """`2.5 [< 1.5, 4.4]`; in gradient steps with their number in a phase."""
    from ..statistics.retention import Limit

    if scale is None:
        return "–"
    middle, low, high = (
        Limit(row[name]["lag"] * scale, row[name]["kind"]) for name in ("budget", "budget_low", "budget_high")
    )
    digits = 1 if scale == 1.0 else 0
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
        + (f"; cannot be told from it (seeds that would): {alike}" if alike else "")
    )


def _refusals(advice: Advice) -> list[str]:
    """One line for each reason and environment."""
    held: dict[tuple[str, str], list[str]] = {}
    for refusal in advice.refusals:
        held.setdefault((refusal.env, refusal.reason), []).append(refusal.algorithm)
    return [f"no answer for {', '.join(names)} on {env}: {reason}" for (env, reason), names in held.items()]
