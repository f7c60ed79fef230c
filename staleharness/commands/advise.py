"""`staleharness advise`: advice on K and method for a system, from stored runs, a simulated pipeline and a log of real
lags."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from ..base.files import check_replaceable, write_bytes
from ..base.text_formatting import printable
from ..errors import UserError
from .shared.advise_output import as_text
from .shared.arguments import Help, JsonOption, RunFilters, output_file

if TYPE_CHECKING:
    from ..logs.lag_log_reader import LagLog
    from ..pipeline.pipeline_summary import CapResult

CAPS = "0,1,2,4,8"
MARK = "staleharness advise: "  # in the metadata of a picture, before the folder of its runs
LARGEST = 2**24  # bytes of a picture that are searched for the mark
TOKENS, CONTROL = "results/reference/stress_lags", "results/reference/vaco_control"
KINDS = {TOKENS: "language", CONTROL: "control"}


@dataclass(frozen=True)
class Command(JsonOption, RunFilters):
    """Advise on K and method: staleness budgets from stored runs, score against time from a pipeline, and where the lag
    of a real system lies. Trains nothing and extrapolates nothing."""

    results: Annotated[str | None, Help("FOLDER", "results")] = None
    """Stored runs at several K, including K = 1: a results folder or a bundle. With --log, the default is the published
    runs on the kind of task that the log's system trains."""
    preset: Annotated[str | None, Help("NAME", "async with --set or --cap, else none")] = None
    """Pipeline to compare the runs with: sync, one-step-off, async, in-flight."""
    set: Annotated[str | None, Help("NAME=VALUE,...")] = None
    """Settings of the pipeline, as in `staleharness pipeline`."""
    cap: Annotated[str | None, Help("N,...", CAPS)] = None
    """Caps to try with the pipeline; `none` means no cap. Speeds are relative to the first."""
    log: Annotated[str | None, Help("FILE")] = None
    """Lags of a real system: CSV, JSON Lines, a TensorBoard event file, or a trace."""
    columns: Annotated[str | None, Help("lag=NAME,...")] = None
    """Column of the log that holds the lag (and that of the count, in a histogram), if its name is not recognised."""
    unit: Annotated[str | None, Help("versions|gradient_steps|samples", "the system's")] = None
    """Unit of the lags in the log."""
    batch: Annotated[str | None, Help("N")] = None
    """Samples per version, if the log counts samples."""
    updates: Annotated[str | None, Help("N")] = None
    """Gradient steps per version of the pipeline or log; without this option, a version counts as a phase."""
    keep: Annotated[str, Help("SHARE", "0.95")] = "0.95"
    """Share of the synchronous IQM that must be kept."""
    zero: Annotated[str, Help("NUMBER|worst", "auto")] = "auto"
    """The score that counts as zero: that of a random policy (returns) or 0 (accuracies)."""
    score: Annotated[str, Help("sampled|deterministic", "auto")] = "auto"
    """Evaluation to use."""
    out: Annotated[str | None, Help("FILE.png|svg|pdf")] = None
    """Plot score against lag and, with a pipeline, against time."""


def handle(command: Command) -> int:
    """Print the advice and draw it if requested. Raises `UserError` before anything is written."""
    from ..base.parsing import parse_value
    from ..base.reference_results import results_path
    from ..logs.lag_log_reader import read_log
    from ..statistics.advice import advise
    from ..store.store import Store

    target = output_file(command.out, "picture", ".png", ".svg", ".pdf")
    if target is not None:
        check_replaceable(target, MARK, "a picture made by advise", within=LARGEST)
    if command.log is None and (command.columns or command.unit or command.batch):
        raise UserError("COLUMNS, UNIT and BATCH say how to read a LOG: give LOG=FILE")
    zero = parse_value(command.zero)
    is_number = isinstance(zero, (int, float)) and not isinstance(zero, bool) and abs(zero) <= sys.float_info.max
    if zero not in ("auto", "worst") and not is_number:
        raise UserError(f"ZERO={command.zero!r} is not a number, worst or auto")
    keep = _number(command.keep, "KEEP")
    updates = None if command.updates is None else _number(command.updates, "UPDATES")
    batch = None if command.batch is None else _number(command.batch, "BATCH")
    log = None if command.log is None else read_log(command.log, command.columns, command.unit, batch)
    source = command.results or ("results" if log is None else _published_folder(log, command.env))
    runs = command.select(Store(results_path(source)), f"RESULTS={source}")
    caps = _caps(command)
    advice = advise(runs, caps=caps, log=log, keep=keep, updates=updates, score=command.score, zero=zero)
    stream = sys.stderr if command.json else sys.stdout
    print("\n".join(map(printable, as_text(advice, source))), file=stream)
    if log is not None:
        from ..logs.log_table import find_log
        from ..statistics.log_advice_text import training_command

        file = str(find_log(str(command.log)))
        train = training_command(advice.envs[0], advice.on(advice.envs[0]), log, file, command.columns, batch)
        print(printable(f"to train under these lags: {train}"), file=stream)
        if command.results is None:
            print(
                f"this advice rests on published runs on {KINDS[source]}, {source}; RESULTS=FOLDER uses others",
                file=stream,
            )
    if target is not None:
        from ..figures.plot_layout import to_bytes
        from ..figures.score_retention import draw_advice

        origin = MARK + source.encode("ascii", "backslashreplace").decode()  # a PDF stores other letters as UTF-16
        write_bytes(target, to_bytes(draw_advice(advice, source), target.suffix[1:], origin))
        print(f"wrote {target}", file=stream)
    if command.json:
        print(json.dumps({"results": source, **advice.to_json()}, sort_keys=True))
    return 0


def _published_folder(log: LagLog, env: str | None) -> str:
    """Return the folder of published runs on the kind of task of the first name in `env`; for None, on the kind that
    the log's system trains. Raises `UserError` for an unknown environment."""
    from ..base.parsing import split_list
    from ..task import find_env

    names = split_list(env or "")
    kind = find_env(names[0])[1].kind if names else log.system.kind
    return CONTROL if kind == "control" else TOKENS


def _caps(command: Command) -> list[CapResult]:
    """Pipelines, one per cap; none where no pipeline is described."""
    from ..base.parsing import parse_assignments, split_list
    from ..pipeline.pipeline_settings import preset
    from ..pipeline.pipeline_summary import over_caps

    if command.preset is None and command.set is None and command.cap is None:
        return []
    values = parse_assignments(command.set or "", "SET")
    if "cap" in values:
        raise UserError("SET takes no cap here: give the caps to try as CAP=0,1,2")
    texts = split_list(CAPS if command.cap is None else command.cap)
    caps = list(dict.fromkeys(None if word == "none" else _number(word, "CAP") for word in texts))
    return over_caps(preset(command.preset or "async", values), caps)


def _number(text: str, name: str) -> float:
    from ..base.parsing import parse_value
    from ..base.typed_values import convert

    try:
        return float(convert(parse_value(text), float, name))
    except UserError as error:
        raise UserError(f"{name}={text!r} is not a number") from error
