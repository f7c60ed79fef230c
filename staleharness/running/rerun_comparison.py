"""Rerun of a stored run and comparison: equal bits on the same kind of machine, within a bound on another."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..base.console_log import LOGGER
from ..base.text_formatting import listing, plural
from ..base.typed_values import plain_value
from ..errors import UserError, shorten
from ..store.run_grid import Cell, cell_of
from ..store.stored_run import StoredRun
from ..training.lag_and_sample_totals import ACCOUNTS
from .plan import PlannedRun
from .run_identity import read_stored, run_id
from .run_record import fingerprint_differences, means_and_lags

if TYPE_CHECKING:
    import pandas as pd

# Bound for the first phase on another kind of machine: greatest difference of a metric, relative to its size or 1.
# Published runs of 12 methods, executed on an Intel Xeon and an AMD EPYC, differed by up to 4e-7 on Hopper and
# Walker2d, 0 on bit chains, and up to 0.12 on HalfCheetah, whose 128 uninterrupted steps are chaotic. Later phases
# agree in distribution only.
BOUND = 0.2
ROUNDING = 1e-9  # of a mean on another machine, relative to it


@dataclass(frozen=True)
class RerunComparison:
    """Comparison of a rerun with the stored run."""

    run: StoredRun
    phases: int  # number of leading phases with equal bits, in all columns that both have
    first: str  # first difference, for users; empty if there is none
    difference: float  # greatest relative difference in the first phase
    machine_changes: list[str]  # differences between the machines and their libraries, as `name: stored -> here`
    code: str  # change of the plugins since, for users; empty if there is none
    damage: str = ""  # part of the stored record that does not follow from its metrics, for users; then also `first`

    @property
    def identical(self) -> bool:
        """True if all bits that both have are equal."""
        return not self.first

    @property
    def holds(self) -> bool:
        """True if the promise holds: equal bits on the same kind of machine, the bound on another."""
        return self.identical or (not self.damage and bool(self.machine_changes) and self.difference <= BOUND)

    @property
    def text(self) -> str:
        """Result for users, in lines."""
        all_phases = self.run.record["phases"]
        if self.damage:
            result = f"DAMAGED: {self.damage}"
        elif self.identical:
            result = f"the same bits in all {all_phases} phases and the final scores"
        elif self.holds:
            result = (
                f"another kind of machine, within {BOUND} in the first phase ({self.difference:.1g}), equal bits in "
                f"the first {self.phases} of {all_phases} phases, then {self.first}"
            )
        else:
            result = f"DIFFERS after {self.phases} of {all_phases} equal phases: {self.first}"
        lines = [result]
        if self.machine_changes:
            lines.append(f"made with other software or hardware: {'; '.join(self.machine_changes)}")
        return "\n    ".join([*lines, self.code] if self.code else lines)


def replan(run: StoredRun) -> PlannedRun:
    """Plan the run again; its id differs if its plugins' files have changed since. Raises `UserError` if it cannot be
    planned any more."""
    spec, family = read_stored(run.spec, f"run {run.id}")
    return PlannedRun(run_id(spec, family), run.label, spec)


def without_expired(runs: Iterable[StoredRun]) -> list[StoredRun]:
    """Leave out, with a line in the log, the runs of a cell and seed for which there is one of the present code of
    their plugins. A run whose plugins are not there counts as one of earlier code."""
    runs = list(runs)
    claims: dict[tuple[Cell, int], list[StoredRun]] = {}
    for run in runs:
        claims.setdefault((cell_of(run), run.seed), []).append(run)
    earlier = set[str]()
    for members in claims.values():
        present = [run for run in members if len(members) > 1 and _is_present(run)]
        earlier |= {run.id for run in members if len(present) == 1 and run is not present[0]}
    if earlier:
        labels = listing(list(dict.fromkeys(run.label for run in runs if run.id in earlier)), 9)
        LOGGER.warning("left out: %s of earlier code of %s", plural(len(earlier), "run"), labels)
    return [run for run in runs if run.id not in earlier]


def _is_present(run: StoredRun) -> bool:
    """Return whether a run would have the same id today."""
    try:
        return replan(run).run_id == run.id
    except UserError:
        return False


def compare(stored_run: StoredRun, rerun: StoredRun) -> RerunComparison:
    """Compare phase by phase, then the final scores."""
    frames = stored_run.metrics(), rerun.metrics()
    common = sorted(set(frames[0].columns) & set(frames[1].columns))
    a, b = (_plain(frame[common].to_dict("records")) for frame in frames)
    pairs = enumerate(zip(a, b, strict=False))
    differing = ((i, name) for i, (x, y) in pairs for name in common if _text(x[name]) != _text(y[name]))
    phase, name = next(differing, (None, ""))
    equal = min(len(a), len(b)) if phase is None else phase
    scores = [_text(_plain(run.record["scores"])) for run in (stored_run, rerun)]
    first = ""
    if phase is not None:
        first = f"phase {phase}: {name} {shorten(_text(a[phase][name]))} -> {shorten(_text(b[phase][name]))}"
    elif len(a) != len(b):
        first = f"{len(a)} phases -> {len(b)}"
    elif scores[0] != scores[1]:
        first = "the final scores"
    damage = _damage(stored_run, frames[0])
    sums = [run.record["metrics_sha256"] for run in (stored_run, rerun)]
    if not first and not damage and _types(frames[0]) == _types(frames[1]) and sums[0] != sums[1]:
        damage = "its metrics_sha256 is not that of its metrics"
    same_code = rerun.id == stored_run.id
    code = "" if same_code else f"its plugins have changed since, so that its id is now {rerun.id}"
    changes = fingerprint_differences(stored_run.record["fingerprint"], rerun.record["fingerprint"])
    return RerunComparison(stored_run, equal, damage or first, _difference(a[0], b[0]), changes, code, damage)


def _damage(run: StoredRun, metrics: pd.DataFrame) -> str:
    """Return the first number of a record that does not follow from its metrics, for users; empty if all do. Names
    that one of them lacks do not count: versions differ in what they measure."""
    if missing := sorted({"phase", "lag_histogram"} - set(metrics.columns)):
        return f"its metrics lack {missing[0]}"
    spec, _ = read_stored(run.spec, f"run {run.id}")
    for part, values in means_and_lags(metrics, spec.fill_phases).items():
        for name, value in values.items():
            number = run.record.get(part, {}).get(name, value)
            if not math.isclose(number, value, rel_tol=ROUNDING, abs_tol=1e-12):
                return f"its {part} says {name} = {number:.6g}, its metrics {value:.6g}"
    return ""


def _types(metrics: pd.DataFrame) -> dict[str, str]:
    """Map the columns on which the checksum of a record rests to their types."""
    return {name: str(kind) for name, kind in metrics.dtypes.items() if not str(name).startswith(ACCOUNTS)}


def _plain(value: Any) -> Any:
    """Convert numbers of any type to float, and NaN to None."""
    value = plain_value(value)
    if isinstance(value, Mapping):
        return {key: _plain(content) for key, content in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(content) for content in value]
    if isinstance(value, (int, float)):
        return None if math.isnan(value) else float(value)
    return value


def _text(value: Any) -> str:
    """Return JSON, in which 0.0 and -0.0 differ."""
    return json.dumps(value, sort_keys=True)


def _difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    """Return the greatest difference of two numbers of one name, relative to the larger of them and 1."""
    pairs = [(a[name], b[name]) for name in a if isinstance(a[name], float) and isinstance(b[name], float)]
    return max((abs(x - y) / max(abs(x), abs(y), 1.0) for x, y in pairs), default=0.0)
