"""Protocol of a track of StaleBench: tasks, budgets, seeds, ladder of learning rates and scale, read from TOML; and the
runs that follow it, by row, with the learning rate that the ladder chooses.

A protocol never changes: its digest is in every row, and different rules make a new version.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...base.parsing import canonical_json, read_toml
from ...base.plugins import builtin_folder
from ...base.typed_values import build
from ...errors import UserError, nearest
from ...store.stored_run import StoredRun
from ...store.study_runs import equals_setting
from ..aggregate import area
from ..method_labels import without_options
from ..scores import Normaliser

FOLDER = "stalebench_v1"  # of experiments/, and the beginning of the names of published bundles
BASELINE = "ppo_clip"  # method that all others are compared with
LEARNT = 0.5  # of the baseline's score at K = 1: a method below it did not learn
# Fields of a protocol that change no score: texts, and which methods have rows.
NOT_IN_DIGEST = ("question", "source", "methods", "controls")


@dataclass(frozen=True)
class WidthControl:
    """A row that tells what a wider clip, or none, does by itself: a correction that does not beat it has shown no more
    than that."""

    name: str
    title: str
    methods: Mapping[str, str]  # capacity -> method with its options


class ProtocolPlace(NamedTuple):
    """Place of a run in a protocol."""

    env: str
    capacity: int
    seed: int
    factor: float  # of the learning rate
    tuning: bool  # of the seeds that choose the factor


@dataclass(frozen=True)
class Protocol:
    """Rules of a track. Also the schema of its TOML file."""

    version: int
    track: str
    question: str
    env: tuple[str, ...]
    capacity: tuple[int, ...]
    lag: str
    score: str  # `sampled` or `deterministic`
    seeds: tuple[int, ...]  # reported ones
    tuning_seeds: tuple[int, ...]  # for the choice of the learning rate, of each method and capacity
    rates: tuple[float, ...]  # factors of the learning rate in `settings`
    settings: Mapping[str, Any]  # of every run
    random: Mapping[str, float]  # score of an untrained policy, by environment: 0 on the scale
    reference: Mapping[str, float]  # area of PPO-clip at K = 1, by environment: 1 on the scale
    source: str  # of these constants
    methods: tuple[str, ...]  # that have published rows, in the order in which they are run
    controls: tuple[WidthControl, ...] = field(default_factory=tuple)

    @property
    def digest(self) -> str:
        """Digest of all that a score depends on, in twelve hex digits."""
        content = {key: value for key, value in asdict(self).items() if key not in NOT_IN_DIGEST}
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """Name of the protocol and of its published bundle."""
        return f"{FOLDER}_{self.track}"

    @property
    def scale(self) -> Normaliser:
        """Scale on which an untrained policy has 0 and PPO-clip without lag 1."""
        return Normaliser("frozen", dict(self.random), dict(self.reference), self.source)

    def rate(self, factor: float) -> float:
        """Learning rate of a step of the ladder, to six digits."""
        return float(f"{self.settings['learning_rate'] * factor:.6g}")

    def entry_methods(self, name: str) -> dict[int, str]:
        """Return capacity -> method of a row: a control's by its name, otherwise the method at every capacity."""
        for control in self.controls:
            if control.name == name:
                return {k: control.methods[str(k)] for k in self.capacity}
        return dict.fromkeys(self.capacity, name)

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of all rows that are to be published."""
        return (*self.methods, *(control.name for control in self.controls))

    def entry_of(self, method: str) -> str:
        """Name of the row of a method: a control's, where its method is none of the track's own."""
        rows = (c.name for c in self.controls if method in c.methods.values() and method not in self.methods)
        return next(rows, method)

    def title_of(self, name: str) -> str:
        """Title of a width control; empty for other rows."""
        return next((control.title for control in self.controls if control.name == name), "")

    def place_of(self, run: StoredRun) -> ProtocolPlace | None:
        """Return the place of a stored run, or None where it does not follow the protocol."""
        return self.place_of_spec(run.spec)

    def place_of_spec(self, spec: Mapping[str, Any]) -> ProtocolPlace | None:
        """Return the place of a run with these settings, as `place_of`."""
        rules = {**self.settings, "lag": self.lag}
        if any(not equals_setting(spec.get(key), value) for key, value in rules.items() if key != "learning_rate"):
            return None
        if spec["env"] not in self.env or spec["capacity"] not in self.capacity:
            return None
        factors = [f for f in self.rates if math.isclose(self.rate(f), float(spec["learning_rate"]), rel_tol=1e-9)]
        seed = int(spec["seed"])
        if not factors or seed not in (*self.seeds, *self.tuning_seeds):
            return None
        return ProtocolPlace(str(spec["env"]), int(spec["capacity"]), seed, factors[0], seed in self.tuning_seeds)


def protocol_folder() -> Path:
    """Folder of the protocols, one file a track."""
    return builtin_folder("experiments") / FOLDER / "tracks"


def read_protocol(track: str) -> Protocol:
    """Read the protocol of a track. Raises `UserError` for an unknown one."""
    folder = protocol_folder()
    tracks = sorted(path.stem for path in folder.glob("*.toml"))
    if track not in tracks:
        raise UserError(f"TRACK={track!r} is unknown; {nearest(track, tracks)}")
    path = folder / f"{track}.toml"
    return build(Protocol, read_toml(path), f"protocol {path.name}")


@functools.cache
def all_protocols() -> tuple[Protocol, ...]:
    return tuple(read_protocol(path.stem) for path in sorted(protocol_folder().glob("*.toml")))


PREVIEW_SEEDS = 2  # of a quick look


def preview_seeds(protocol: Protocol, quick: bool, one_rate: bool, algo: str | None = "") -> int:
    """Return the number of seeds of a look; 0: none, but the whole row. Raises `UserError` for both kinds of look, and
    for one without a method."""
    if algo is None and (quick or one_rate):
        name = "QUICK" if quick else "ONE_RATE"
        raise UserError(f"{name} is for a preview of a method, and ADD has whole rows; give ALGO, or leave {name} out")
    if quick and one_rate:
        raise UserError(
            f"QUICK and ONE_RATE: {PREVIEW_SEEDS} seeds or {len(protocol.seeds)} at one rate; give one of them"
        )
    return PREVIEW_SEEDS if quick else len(protocol.seeds) if one_rate else 0


def count_runs(protocol: Protocol) -> int:
    """Number of runs of one method, those of the ladder included, at one capacity."""
    return (len(protocol.seeds) + len(protocol.rates) * len(protocol.tuning_seeds)) * len(protocol.env)


def method_of(run: StoredRun) -> str:
    """Return the label of a run's method without its learning rate, which is the ladder's."""
    return without_options(run.label, "learning_rate")


def digest_of(run: StoredRun) -> str:
    """Return the digest of the protocol that a run has a place in, or an empty string."""
    return next((protocol.digest for protocol in all_protocols() if protocol.place_of(run) is not None), "")


def benchmark_command(runs: Iterable[StoredRun]) -> str:
    """Return the commands, one per method, that make these runs if all follow one protocol; else an empty string."""
    runs = list(runs)
    methods = sorted({method_of(run) for run in runs})
    for protocol in all_protocols():
        if runs and all(protocol.place_of(run) is not None for run in runs):
            names = dict.fromkeys(protocol.entry_of(method) for method in methods)
            return " && ".join(f"staleharness benchmark --track={protocol.track} --algo='{name}'" for name in names)
    return ""


@dataclass
class MethodRuns:
    """Runs of one row, by their place: (environment, factor of the rate) -> seed -> run."""

    tuning: dict[tuple[str, float], dict[int, StoredRun]] = field(default_factory=dict)
    report: dict[tuple[str, float], dict[int, StoredRun]] = field(default_factory=dict)
    divergences: set[ProtocolPlace] = field(default_factory=set)  # places of runs that diverged, which no store has

    @property
    def diverged_rates(self) -> set[float]:
        """Steps of the ladder at which a tuning run diverged."""
        return {place.factor for place in self.divergences if place.tuning}


Divergences = Mapping[tuple[str, int], set[ProtocolPlace]]  # (label without the learning rate, capacity) -> places


def choose_rate(areas: Mapping[float, Sequence[float]]) -> float:
    """Return the factor of the rate with the highest mean over its tuning runs; the one nearest to 1 on a tie."""
    return max(areas, key=lambda factor: (np.mean(areas[factor]), -abs(np.log(factor))))


def chosen_rate(protocol: Protocol, runs: MethodRuns, gaps: bool = False) -> float | None:
    """Return the step of the ladder that a method takes at one capacity; None while a tuning run is missing.

    A rate at which a tuning run diverged is left out. gaps: choose among the rates whose tuning runs are all there.
    """
    areas: dict[float, list[float]] = {}
    rates = [factor for factor in protocol.rates if factor not in runs.diverged_rates]
    for factor in rates:
        by_env = [runs.tuning.get((env, factor), {}) for env in protocol.env]
        if all(len(by_seed) == len(protocol.tuning_seeds) for by_seed in by_env):
            areas[factor] = [area_of(protocol, run) for by_seed in by_env for run in by_seed.values()]
    return choose_rate(areas) if areas and (gaps or len(areas) == len(rates)) else None


def is_complete(protocol: Protocol, name: str, runs: Iterable[StoredRun], gaps: bool = False) -> bool:
    """Return whether these runs are all that a row needs, each once. gaps: as in `chosen_rate`."""
    try:
        rows = runs_by_row(protocol, runs)
    except UserError:
        return False
    for k, label in protocol.entry_methods(name).items():
        members = rows.get((label, k), MethodRuns())
        rate = chosen_rate(protocol, members, gaps)
        if rate is None or any(len(members.report.get((env, rate), {})) < len(protocol.seeds) for env in protocol.env):
            return False
    return True


def preview_rates(protocol: Protocol, runs: Iterable[StoredRun]) -> dict[int, float]:
    """Return capacity -> step of the ladder that the baseline chose, which a look takes too: at another one the
    comparison would be one of rates. 1 where the baseline's runs are absent."""
    rows = runs_by_row(protocol, (run for run in runs if method_of(run) == BASELINE))
    rates = {k: chosen_rate(protocol, rows.get((BASELINE, k), MethodRuns())) for k in protocol.capacity}
    return {k: 1.0 if rate is None else rate for k, rate in rates.items()}


def area_of(protocol: Protocol, run: StoredRun) -> float:
    """Mean height of a run's evaluation curve on the protocol's scale."""
    return area(run, protocol.scale, protocol.score)


def runs_by_row(
    protocol: Protocol, runs: Iterable[StoredRun], divergences: Divergences | None = None
) -> dict[tuple[str, int], MethodRuns]:
    """Sort runs by (label without the learning rate, capacity). Runs outside the protocol are left out. Raises
    `UserError` where two runs claim one place."""
    rows = {row: MethodRuns(divergences=set(places)) for row, places in (divergences or {}).items()}
    for run in runs:
        if (place := protocol.place_of(run)) is None:
            continue
        members = rows.setdefault((method_of(run), place.capacity), MethodRuns())
        group = members.tuning if place.tuning else members.report
        seeds = group.setdefault((place.env, place.factor), {})
        if (other := seeds.setdefault(place.seed, run)).id != run.id:
            raise UserError(
                f"runs {other.id} and {run.id} are both {run.label} on {place.env} at K={place.capacity}, seed "
                f"{place.seed}: its plugin was changed in between; leave one of them out, e.g. by "
                f"`staleharness pack FOLDER BUNDLE --code={run.code}`"
            )
    return rows
