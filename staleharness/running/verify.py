"""Making a stored run again, and saying how far the two are one: to the bit on a machine of its kind, within a bound on
another."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..lag import read_lag
from ..store.stored_run import StoredRun
from .fingerprint import same_bits
from .identity import read_stored, run_id
from .plan import PlannedRun

if TYPE_CHECKING:
    import pandas as pd

# Of the first phase, made on another kind of machine: the greatest difference of a metric, relative to its size or 1.
# Published runs of 12 methods, made on an Intel Xeon and again on an AMD EPYC, were up to 4e-7 apart on Hopper and
# Walker2d and 0 on bit chains; and up to 0.12 on HalfCheetah, whose 128 steps without an end are chaotic. Later phases
# agree in distribution alone.
BOUND = 0.2


@dataclass(frozen=True)
class Verdict:
    """How a run that was made again compares with the stored one."""

    run: StoredRun
    phases: int  # from the first on that are equal to the bit, in all that both say
    first: str  # the first difference in words; empty where there is none
    apart: float  # the greatest relative difference in the first phase
    made_with: list[str]  # what differs between the machines, as `name: stored -> here`
    code: str  # what differs between the plugins then and now, in words, or empty

    @property
    def same(self) -> bool:
        """Every bit that both say something of."""
        return not self.first

    @property
    def elsewhere(self) -> bool:
        """Whether the machine, or a library, is of another kind. Another version of the harness is no excuse."""
        return any(not line.startswith("staleharness:") for line in self.made_with)

    @property
    def holds(self) -> bool:
        """What is promised: the same bits on one kind of machine, the bound on another."""
        return self.same or (self.elsewhere and self.apart <= BOUND)

    @property
    def text(self) -> str:
        """What there is to say, in lines."""
        all_phases = self.run.record["phases"]
        if self.same:
            said = f"the same bits in all {all_phases} phases and the final scores"
        elif self.holds:
            said = (
                f"another kind of machine, within {BOUND} in the first phase ({self.apart:.1g}), equal bits in the "
                f"first {self.phases} of {all_phases} phases, then {self.first}"
            )
        else:
            said = f"DIFFERS after {self.phases} of {all_phases} equal phases: {self.first}"
        lines = [said]
        if self.made_with:
            lines.append(f"made with something else: {'; '.join(self.made_with)}")
        return "\n    ".join([*lines, self.code] if self.code else lines)


def raced(run: StoredRun) -> bool:
    """Whether processes raced in it: then it is no function of its settings, and only its trace replays it."""
    return read_lag(str(run.spec["lag"])).real


def again(run: StoredRun) -> PlannedRun:
    """The run as it would be planned today; its id is another where its plugins' files have changed since. Raises
    `UserError` where it could not be planned at all."""
    spec, family = read_stored(run.spec, f"run {run.id}")
    return PlannedRun(run_id(spec, family), run.label, spec)


def copied(stored: StoredRun, there: StoredRun) -> bool:
    """Whether the one is the other, or a copy of it: made again, it would not take the same time to the last digit."""
    return bool(stored.record["seconds"] == there.record["seconds"])


def compare(stored: StoredRun, made: StoredRun) -> Verdict:
    """Phase by phase, then the final scores."""
    frames = stored.metrics(), made.metrics()
    shared = sorted(set(frames[0].columns) & set(frames[1].columns))
    a, b = (list(_phases(frame, shared)) for frame in frames)
    differing = (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if _digest(x) != _digest(y))
    phase = next(differing, None)
    equal = min(len(a), len(b)) if phase is None else phase
    scores = [_plain(run.record["scores"]) for run in (stored, made)]
    first = ""
    if phase is not None:
        name = next(name for name in shared if a[phase][name] != b[phase][name])
        first = f"phase {phase}: {name} {_shown(a[phase][name])} -> {_shown(b[phase][name])}"
    elif len(a) != len(b):
        first = f"{len(a)} phases -> {len(b)}"
    elif scores[0] != scores[1]:
        first = "the final scores"
    changed = "" if made.id == stored.id else f"its plugins have changed since, so that today it is run {made.id}"
    made_with = same_bits(stored.record["fingerprint"], made.record["fingerprint"])
    return Verdict(stored, equal, first, _apart(a[0], b[0]), made_with, changed)


def _phases(frame: pd.DataFrame, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    for row in frame[columns].to_dict("records"):
        yield {str(name): _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    """Numbers as floats, whatever type a table keeps them in; what is missing as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(content) for key, content in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(content) for content in value]
    if isinstance(value, (int, float)):
        return None if math.isnan(value) else float(value)
    return value


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _apart(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    """The greatest difference of two numbers of one name, relative to the larger of them and 1."""
    pairs = [(a[name], b[name]) for name in a if isinstance(a[name], float) and isinstance(b[name], float)]
    return max((abs(x - y) / max(abs(x), abs(y), 1.0) for x, y in pairs), default=0.0)


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, float) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
