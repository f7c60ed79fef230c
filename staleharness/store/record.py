"""The record of a run, `run.json`, and its job, `job.json`: their schema, and what is wrong with one that was read.

Whoever wrote a results folder wrote its digests, too, so nothing in a record is believed before it has these types and
bounds. Readers of results get records from here alone.
"""

from __future__ import annotations

import datetime
import re
import sys
import unicodedata
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
from msgspec import Meta

from ..base.notes import NOTES
from ..errors import shortened

FORMAT = 2
MOST_VERSIONS = 1_000_000  # in the policy buffer: more phases than any run has
NUMBERS = frozenset({int, float})
MOST_TEXT = 4_096  # characters of any text in a record

Name = Annotated[str, Meta(min_length=1, max_length=1_000)]
Text = Annotated[str, Meta(max_length=MOST_TEXT)]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Meta(ge=0, le=2**53)]  # exact as a float, too
Positive = Annotated[int, Meta(ge=1, le=2**53)]
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
# not NaN; all of float32, and powers of it are finite, too. An integer is a number, as far as NumPy takes it for one.
Number = Whole | Annotated[float, Meta(ge=-1e40, le=1e40)]
Seconds = Count | Annotated[float, Meta(ge=0, le=1e12)]
Capacity = Annotated[int, Meta(ge=1, le=MOST_VERSIONS)]
Phases = Annotated[int, Meta(ge=1, le=100_000_000)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Lag = Annotated[int, Meta(ge=0, le=MOST_VERSIONS)]

Scalar = None | bool | Number | Text
Shallow = Scalar | list[Scalar] | dict[Name, Scalar]
Deep = Scalar | list[Shallow] | dict[Name, Shallow]  # of entries that no schema knows: a plugin's
Counts = dict[Name, dict[Name, Count]]  # unit -> what became of it -> how many


class Facts(TypedDict):
    """The kind of task, as `Task.facts` has it."""

    kind: Name
    unit: Name
    measures: dict[Name, Text]
    score: Literal["sampled", "deterministic"]
    normalise: Literal["minmax", "ppo", "frozen", "raw"]
    axes: dict[Name, Name]


class Spec(TypedDict):
    """The settings that readers count on; the others are those of a kind of task, each a `Shallow`."""

    env: Annotated[str, Meta(min_length=1, max_length=150)]  # fits into a figure
    algorithm: Annotated[str, Meta(max_length=1_000)]
    capacity: Capacity
    seed: Seed
    hyper: NotRequired[dict[Name, Shallow]]
    lag: NotRequired[Text]
    steps: NotRequired[Positive]
    epochs: NotRequired[Positive]
    minibatches: NotRequired[Positive]
    completions: NotRequired[Positive]
    warm_phases: NotRequired[Count]


class Score(TypedDict):
    """The final policy scored in one way: an entry per episode."""

    mean: Number
    std: Number
    returns: Annotated[list[Number], Meta(min_length=1)]
    lengths: list[Count]
    wilson: NotRequired[tuple[Number, Number]]
    truncated: NotRequired[Count]
    unparsed: NotRequired[Count]


class Promise(TypedDict):
    """The lag that a lag model announces."""

    cap: Count
    expected: Number | None
    mean: Number | None


class Method(TypedDict):
    """The card of a method in a report."""

    family: NotRequired[Text]
    level: NotRequired[Text]
    summary: NotRequired[Text]
    paper: NotRequired[Text]
    needs: NotRequired[list[Text]]
    touches: NotRequired[dict[Name, Text]]


class Record(TypedDict):
    """`run.json`. Entries that a run of an earlier version lacks are not required."""

    format: Count
    id: Name
    label: Name
    task: Facts
    spec: dict[Name, Shallow]  # and a `Spec`
    before: NotRequired[dict[Name, Shallow]]
    fingerprint: dict[Name, Scalar]
    scores: dict[Name, Score]
    summary: dict[Name, Number]
    seconds: dict[Name, Seconds]
    lag_histogram: dict[Lag, Count]
    phases: Phases
    steps: Positive
    gradient_steps: Count
    evaluation_steps: Count
    metrics_sha256: Digest
    date: datetime.date
    method: NotRequired[Method]
    warnings: NotRequired[list[Text]]
    lags: NotRequired[dict[Name, dict[Lag, Count]]]
    ledger: NotRequired[Counts]
    pipeline_ledger: NotRequired[Counts]
    promise: NotRequired[Promise | None]
    peak_memory: NotRequired[Count]
    checkpoint_bytes: NotRequired[Count]


class Job(TypedDict):
    """`job.json`."""

    label: Name
    spec: dict[Name, Shallow]


# All that is checked of a run, in one call: msgspec keeps what it knows of such a class, and not of a `dict[...]`.
Parts = TypedDict(
    "Parts",
    {
        "spec": NotRequired[Spec],
        "run.json": Record,
        "others": dict[Name, Deep],  # entries of run.json that `Record` does not have
        "method": dict[Name, Shallow],  # and of its method
        "job.json": Job,
    },
)


def parsed(text: str | bytes) -> Any:
    """A record as JSON, its words shared with those of all other records: thousands are held at once, and most of each
    is what the others say, too. Raises `ValueError`, also for NaN, numbers beyond a float's range, nesting too deep to
    read, and for text that is not Unicode or holds control characters, which no page and no terminal bears."""
    try:
        return _shared(msgspec.json.decode(text))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _shared(content: Any) -> Any:
    if type(content) is str:
        return _word(content)
    if type(content) is dict:
        return {_word(name): _shared(value) for name, value in content.items()}
    if type(content) is list and not NUMBERS.issuperset(map(type, content)):
        return list(map(_shared, content))
    return content


def _word(text: str) -> str:
    if not text.isprintable() and any(unicodedata.category(letter) == "Cc" for letter in text):
        raise ValueError(f"{shortened(text)!r} has a control character in it")
    return sys.intern(text)


def is_id(name: str) -> bool:
    """Whether this is how runs are called. Nothing else ever becomes part of a path."""
    return re.fullmatch("[0-9a-f]{12}", name) is not None


def wrong_with(record: Any, run_id: str, job: Any) -> str | None:
    """One line about the first fault of a run's record or job, or None. Of a record in another format nothing but the
    id is read."""
    if not isinstance(record, dict):
        return "run.json is not a record"
    if record.get("id") != run_id:
        return f"its record is that of run {shortened(str(record.get('id')))!r}"
    if record.get("format") != FORMAT:
        return None
    return _fault(record, job) or _contradiction(record)


def note_damaged(run_id: str, problem: str) -> None:
    """Name a run that does not count, and why, in one line."""
    name = run_id if is_id(run_id) else repr(shortened(run_id))
    line = f"run {name} is damaged and does not count ({shortened(problem, 300)})"
    NOTES.warning("%s", " ".join(line.split()))


def _others(content: dict[str, Any], schema: Any) -> dict[str, Any]:
    """The entries that a schema does not know."""
    return {name: value for name, value in content.items() if name not in schema.__annotations__}


def _contradiction(record: dict[str, Any]) -> str | None:
    """A fault between entries that are each well-formed, or None."""
    if absent := [name for name in ("total", "evaluate") if name not in record["seconds"]]:
        return f"run.json.seconds: Object missing required field `{absent[0]}`"
    if (score := record["task"]["score"]) not in record["scores"]:
        return f"run.json.scores: Object missing required field `{score}`, which its task is reported by"
    return None


def _fault(record: dict[str, Any], job: Any) -> str | None:
    """Where and how record or job depart from their schemas, or None."""
    method = record.get("method")
    parts = {
        **({"spec": record["spec"]} if "spec" in record else {}),
        "run.json": record,
        "others": _others(record, Record),
        "method": _others(method, Method) if isinstance(method, dict) else {},
        "job.json": job,
    }
    try:
        msgspec.convert(parts, Parts, str_keys=True)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at ")
        place = re.sub(r"`key` in |[`$]", "", path).lstrip(".")
        return f"{place}: {shortened(problem, 150)}"
    return None
