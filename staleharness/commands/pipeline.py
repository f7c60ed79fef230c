"""`staleharness pipeline`: where lag comes from. Simulates rollout workers, queue, trainer and weight sync."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..base.files import check_creatable, check_own, json_bytes, replace_own, safe_name
from ..base.parsing import user_path
from ..base.table_formatting import fixed_width
from ..base.text_formatting import number, printable
from ..errors import UserError, nearest, shorten
from .shared.arguments import Help, JsonOption, PluginOption

if TYPE_CHECKING:
    from ..pipeline.pipeline_event_log import PipelineRecord
    from ..pipeline.pipeline_settings import Pipeline

LENGTH = 1000  # decisions per row of a lag model
LENGTH_BIAS = 0.03  # smallest bias that is reported
SUMMARY = "pipeline.json"
HEADERS = ["pipeline", "s/step", "rows/s", "lag", "token lag", "p95", "max", "trainer", "slots", "binds"]


@dataclass(frozen=True)
class Command(JsonOption, PluginOption):
    """Simulate an asynchronous pipeline: its lag, its speed, who waits, and which constraint binds. Trains nothing."""

    preset: Annotated[str, Help("NAME,...", "all")] = "sync,one-step-off,async,in-flight"
    """Preset: sync, one-step-off, async, in-flight; or a lag model, such as areal[eta=4] (in steps)."""
    set: Annotated[str | None, Help("NAME=VALUE,...")] = None
    """Settings, e.g. slots=256,cap=4,lengths=lognormal[mean=2000,cv=1.5]; docs/pipeline.md lists them."""
    steps: Annotated[str | None, Help("N", "200")] = None
    """Steps of the trainer."""
    seed: Annotated[str, Help("N", "0")] = "0"
    """Seed of lengths, environments and failures."""
    out: Annotated[str | None, Help("FOLDER")] = None
    """Write the summary, trace and timeline of each pipeline."""


def handle(command: Command) -> int:
    """Simulate, show, and write what was asked for. Raises `UserError` before anything is written."""
    from ..api import load_plugins
    from ..base.parsing import parse_assignments, split_list, whole_number
    from ..pipeline.event_simulation import simulate
    from ..pipeline.pipeline_summary import summary

    load_plugins(command.plugin)
    values = parse_assignments(command.set or "", "SET")
    if command.steps is not None:
        values["steps"] = whole_number(command.steps, "STEPS")
    seed = whole_number(command.seed, "SEED")
    if seed < 0:
        raise UserError(f"SEED={seed} must not be negative")
    names = list(dict.fromkeys(split_list(command.preset)))
    pipelines = {name: _pipeline(name, values, seed) for name in names}
    folder = None if command.out is None else _folder(command.out)
    if folder is not None:
        check_own(folder, [SUMMARY, *(file for name in names for file in _files(name))])
    records, summaries = {}, {}
    for name, pipeline in pipelines.items():
        try:
            records[name] = simulate(pipeline, seed)
            summaries[name] = summary(records[name])
        except UserError as error:
            raise UserError(f"{name}: {error}") from error
    stream = sys.stderr if command.json else sys.stdout
    print("\n".join(map(printable, as_text(summaries))), file=stream)
    if folder is not None:
        for path in _write(folder, records, summaries):
            print(f"wrote {path}", file=stream)
    if command.json:
        print(json.dumps(summaries, sort_keys=True))
    return 0


def _pipeline(name: str, values: Mapping[str, Any], seed: int) -> Pipeline:
    """Return a preset, or the pipeline that a lag model stands for, with some settings changed. Raises `UserError`."""
    from ..idle_options import check_options
    from ..lag import LAGS, read_lag
    from ..pipeline.pipeline_settings import PRESETS, Pipeline, preset
    from ..pipeline_lag_model import PipelineLag
    from ..rollout_schedule import Demand

    model_name = re.split(r"[:\[]", name)[0]
    systems = [model for model in LAGS if issubclass(LAGS[model], PipelineLag)]
    if name in PRESETS:
        return preset(name, values)
    if model_name not in systems:
        raise UserError(f"no preset is called {shorten(name)!r}; {nearest(model_name, PRESETS, systems)}")
    model = read_lag(name)
    check_options(model)
    assert isinstance(model, PipelineLag)
    if model.online:
        raise UserError(
            f"{name}: pace=length needs the lengths of a run's rows, and here there is no run; leave it out"
        )
    plain = Pipeline()
    demand = Demand(plain.steps, plain.groups, plain.group, LENGTH, seed)
    return model.pipeline(demand).with_settings(values)


def as_text(summaries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The table, and for each pipeline why it is no faster and where its rows went."""
    from ..pipeline.pipeline_summary import busy_share

    lines = []
    for name, s in summaries.items():
        lag = s["lag"]
        lines.append(
            [
                name,
                number(s["step_seconds"], 1),
                number(s["rows_per_second"], 2),
                number(lag["start_mean"]),
                number(lag["token_weighted_mean"]),
                number(lag["start_p95"], 0),
                str(lag["start_max"]),
                f"{s['trainer'].get('training', 0):.0%}",
                f"{busy_share(s['slots']):.0%}",
                s["binds"],
            ]
        )
    text = fixed_width(HEADERS, lines)
    text += ["", "lag in versions, of a row's first decision (lag, p95, max) and over all its decisions (token lag)"]
    for name, s in summaries.items():
        text += ["", f"{name}: {s['why']}"]
        text += [f"  trainer  {_shares(s['trainer'])}", f"  slots    {_shares(s['slots'])}"]
        text += [f"  {unit:<8} {_account(account)}" for unit, account in s["ledger"].items()]
        text += [f"  {line}" for line in [*_bounds(s), *_bias(s)]]
    return text


def _bounds(s: Mapping[str, Any]) -> list[str]:
    """Lines on the effect of the bounds that were set: a cap is not a lag."""
    cap, max_lag, lag = s["pipeline"]["cap"], s["pipeline"]["max_lag"], s["lag"]
    share = f"{lag['share_at_bound'] or 0:.1%} of the rows trained on are at it"
    if cap is not None and max_lag is None and cap % 1:  # a row's lag is a whole number of versions
        share = f"{1 - lag['share_above_bound']:.1%} of the rows trained on are below it"
    lines = []
    if cap is not None:
        idle = "" if s["slots"].get("admission") else "; it never holds a row back"
        above = "" if max_lag is not None else f": {share}, {lag['share_above_bound']:.1%} above"
        lines.append(f"cap      {cap:g}{above}{idle}")
    if max_lag is not None:
        tokens = s["ledger"]["tokens"]
        idle = "" if tokens["dropped_stale"] or tokens["masked"] else "; no row was ever too old"
        lines.append(f"max_lag  {max_lag}: {share}{idle}")
    return lines


def _bias(s: Mapping[str, Any]) -> list[str]:
    """Line on the length of trained rows against generated rows, where they differ."""
    lag = s["lag"]
    if abs(lag["length_bias"]) < LENGTH_BIAS:
        return []
    trained, started_mean = number(lag["tokens_trained_mean"], 0), number(lag["tokens_begun_mean"], 0)
    return [f"lengths  {trained} of the rows trained on, {started_mean} of all, on average: {lag['length_bias']:+.0%}"]


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{state} {share:.1%}" for state, share in shares.items())


def _account(account: Mapping[str, int]) -> str:
    parts = [f"{n:,} {name.replace('_', ' ')}" for name, n in account.items() if n and name != "generated"]
    return f"{account['generated']:,} generated = {' + '.join(parts)}"


def _folder(out: str) -> Path:
    path = user_path(out)
    if path.exists() and not path.is_dir():
        raise UserError(f"OUT={out} is a file; give a folder")
    check_creatable(path)
    return path


def _files(name: str) -> tuple[str, str]:
    """Names of a pipeline's trace and timeline, which LAG=trace:FILE can take."""
    stem = safe_name(name, name)
    return f"{stem}.parquet", f"{stem}.png"


def _write(folder: Path, records: Mapping[str, PipelineRecord], summaries: Mapping[str, Any]) -> list[Path]:
    from ..figures.plot_layout import to_bytes
    from ..figures.timelines import timeline
    from ..pipeline.pipeline_rows import to_parquet

    contents = {SUMMARY: json_bytes(summaries)}
    for name, record in records.items():
        trace, picture = _files(name)
        contents |= {trace: to_parquet(record), picture: to_bytes(timeline(record, name), "png")}
    return replace_own(folder, contents)
