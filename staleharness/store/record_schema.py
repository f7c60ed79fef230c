"""Schema of a run's record (`run.json`) and job (`job.json`), and their validation.

The author of a forged results folder also writes its digests, so nothing in a record is trusted before its types and
bounds are checked. Readers of results get records from here alone.
"""

from __future__ import annotations

import datetime
import re
import sys
import unicodedata
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
from msgspec import Meta

from ..base.console_log import LOGGER
from ..errors import shorten

FORMAT = 2
MAX_VERSIONS = 1_000_000  # in the policy buffer: more phases than any run has
NUMBERS = frozenset({int, float})
MAX_TEXT = 4_096  # characters of any text in a record

Name = Annotated[str, Meta(min_length=1, max_length=1_000)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Meta(ge=0, le=2**53)]  # exact as a float, too
Positive = Annotated[int, Meta(ge=1, le=2**53)]
Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
# Not NaN; all of float32, and its powers are finite too. Integers count as numbers within NumPy's range.
Number = Integer | Annotated[float, Meta(ge=-1e40, le=1e40)]
Seconds = Count | Annotated[float, Meta(ge=0, le=1e12)]
Capacity = Annotated[int, Meta(ge=1, le=MAX_VERSIONS)]
Phases = Annotated[int, Meta(ge=1, le=100_000_000)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Lag = Annotated[int, Meta(ge=0, le=MAX_VERSIONS)]

Scalar = None | bool | Number | Text
Shallow = Scalar | list[Scalar] | dict[Name, Scalar]
Deep = Scalar | list[Shallow] | dict[Name, Shallow]  # for entries that no schema lists: those of a plugin
Counts = dict[Name, dict[Name, Count]]  # unit -> fate -> count


class TaskSchema(TypedDict):
    """Kind of task, from `Task.facts`."""

    kind: Name
    unit: Name
    measures: dict[Name, Text]
    score: Literal["sampled", "deterministic"]
    normalise: Literal["minmax", "ppo", "frozen", "raw"]
    axes: dict[Name, Name]


class OptionalSettings(TypedDict):
    """Settings that readers rely on where a run has them; also those of `before`, which complete older runs."""

    hyper: NotRequired[dict[Name, Shallow]]
    lag: NotRequired[Text]
    steps: NotRequired[Positive]
    epochs: NotRequired[Positive]
    minibatches: NotRequired[Positive]
    completions: NotRequired[Positive]
    fill_phases: NotRequired[Count]
    warm_phases: NotRequired[Count]


class SpecSchema(OptionalSettings):
    """Settings that readers rely on; the others belong to a kind of task, each a `Shallow`."""

    env: Annotated[str, Meta(min_length=1, max_length=150)]  # fits into a figure
    algorithm: Annotated[str, Meta(max_length=1_000)]
    capacity: Capacity
    seed: Seed


class ScoreSchema(TypedDict):
    """Scores of the final policy in one evaluation mode: an entry per episode."""

    mean: Number
    std: Number
    returns: Annotated[list[Number], Meta(min_length=1)]
    lengths: list[Count]
    wilson: NotRequired[tuple[Number, Number]]
    truncated: NotRequired[Count]
    unparsed: NotRequired[Count]
    complete_right: NotRequired[Count]


class PromiseSchema(TypedDict):
    """Lag that a lag model announces."""

    cap: Count
    expected: Number | None
    mean: Number | None


class MethodSchema(TypedDict):
    """Card of a method in a report."""

    family: NotRequired[Text]
    level: NotRequired[Text]
    summary: NotRequired[Text]
    paper: NotRequired[Text]
    needs: NotRequired[list[Text]]
    touches: NotRequired[dict[Name, Text]]


class RecordSchema(TypedDict):
    """Content of `run.json`. Entries that a run of an earlier version lacks are not required."""

    format: Count
    id: Name
    label: Name
    task: TaskSchema
    spec: dict[Name, Shallow]  # including a `SpecSchema`
    before: NotRequired[dict[Name, Shallow]]
    fingerprint: dict[Name, Scalar]
    scores: dict[Name, ScoreSchema]
    summary: dict[Name, Number]
    seconds: dict[Name, Seconds]
    lag_histogram: dict[Lag, Count]
    phases: Phases
    steps: Positive
    gradient_steps: Count
    evaluation_steps: Count
    metrics_sha256: Digest
    date: datetime.date
    method: NotRequired[MethodSchema]
    warnings: NotRequired[list[Text]]
    lags: NotRequired[dict[Name, dict[Lag, Count]]]
    ledger: NotRequired[Counts]
    pipeline_ledger: NotRequired[Counts]
    promise: NotRequired[PromiseSchema | None]
    peak_memory: NotRequired[Count]
    checkpoint_bytes: NotRequired[Count]


class JobSchema(TypedDict):
    """Content of `job.json`."""

    label: Name
    spec: dict[Name, Shallow]


# Everything that is checked of a run, in one call: msgspec caches the type information of such a class.
Parts = TypedDict(
    "Parts",
    {
        "spec": NotRequired[SpecSchema],
        "run.json": RecordSchema,
        "before": NotRequired[OptionalSettings],
        "others": dict[Name, Deep],  # entries of run.json that `RecordSchema` does not list
        "method": dict[Name, Shallow],  # further entries of its method
        "job.json": JobSchema,
    },
)


def parse_record(text: str | bytes) -> Any:
    """Parse a record, its strings interned: thousands of similar records are in memory at once.

    Raises `ValueError`, also for NaN, numbers beyond a float's range, nesting too deep to read, text that is not
    Unicode, and control characters, which are unsafe in pages and terminals.
    """
    try:
        return _intern(msgspec.json.decode(text))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _intern(content: Any) -> Any:
    if type(content) is str:
        return _intern_text(content)
    if type(content) is dict:
        return {_intern_text(name): _intern(value) for name, value in content.items()}
    if type(content) is list and not NUMBERS.issuperset(map(type, content)):
        return list(map(_intern, content))
    return content


def _intern_text(text: str) -> str:
    if not text.isprintable() and any(unicodedata.category(letter) == "Cc" for letter in text):
        raise ValueError(f"{shorten(text)!r} has a control character in it")
    return sys.intern(text)


def is_id(name: str) -> bool:
    """Return whether the name is a run id. Nothing else ever becomes part of a path."""
    return re.fullmatch("[0-9a-f]{12}", name) is not None


def record_problem(record: Any, run_id: str, job: Any) -> str | None:
    """Describe the first fault of a run's record or job in one line, or return None. For a record in another format
    only the id is checked."""
    if not isinstance(record, dict):
        return "run.json is not a record"
    if record.get("id") != run_id:
        return f"its record is that of run {shorten(str(record.get('id')))!r}"
    if record.get("format") != FORMAT:
        return None
    return _schema_problem(record, job) or _inconsistency(record, job)


def warn_damaged(run_id: str, problem: str) -> None:
    """Log a run that does not count, with the reason, in one line."""
    name = run_id if is_id(run_id) else repr(shorten(run_id))
    line = f"run {name} is damaged and does not count ({shorten(problem, 300)})"
    LOGGER.warning("%s", " ".join(line.split()))


def _others(content: dict[str, Any], schema: Any) -> dict[str, Any]:
    """Return the entries that a schema does not list."""
    return {name: value for name, value in content.items() if name not in schema.__annotations__}


def _inconsistency(record: dict[str, Any], job: dict[str, Any]) -> str | None:
    """Describe an inconsistency between entries that are each well-formed, or return None."""
    for place, content, name in _needs(record):
        if name not in content:
            return f"run.json.{place}: Object missing required field `{name}`"
    if (score := record["task"]["score"]) not in record["scores"]:
        return f"run.json.scores: Object missing required field `{score}`, which its task is reported by"
    values, job_values = ({"label": content["label"], **content["spec"]} for content in (record, job))
    absent = object()
    others = [name for name in values | job_values if values.get(name, absent) != job_values.get(name, absent)]
    if others:
        return f"run.json: {shorten(others[0])} is not that of job.json"
    lag = max((int(lag) for lag, count in record["lag_histogram"].items() if count), default=0)
    if lag >= (capacity := record["spec"]["capacity"]):
        return f"run.json.lag_histogram has a lag of {lag} phases, and capacity={capacity}"
    for unit, entries in record.get("ledger", {}).items():
        if sum(entries.values()) != 2 * entries.get("generated", 0) + entries.get("reused", 0):
            return f"run.json.ledger of {shorten(unit)}: generated is not the sum of what became of it"
    return None


def _needs(record: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield (place, content there, name) of entries that readers rely on, given the entries that a record has."""
    spec, scores, summary = record["spec"], record["scores"], record["summary"]
    yield from (("seconds", record["seconds"], name) for name in ("total", "evaluate"))
    for mode, score in scores.items():
        if "wilson" in score:
            yield from (("scores[...]", score, name) for name in ("unparsed", "truncated"))
        if f"untrained/{mode}" in summary:
            yield "summary", summary, f"untrained/{mode}_error"
    if record.get("promise"):
        yield "spec", spec, "lag"


def _schema_problem(record: dict[str, Any], job: Any) -> str | None:
    """Describe the first violation of a schema, or return None."""
    method = record.get("method")
    parts = {
        **({"spec": record["spec"]} if "spec" in record else {}),
        "run.json": record,
        **({"before": record["before"]} if "before" in record else {}),
        "others": _others(record, RecordSchema),
        "method": _others(method, MethodSchema) if isinstance(method, dict) else {},
        "job.json": job,
    }
    try:
        msgspec.convert(parts, Parts, str_keys=True)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at ")
        place = re.sub(r"`key` in |[`$]", "", path).lstrip(".")
        return f"{place}: {shorten(problem, 150)}"
    return None
