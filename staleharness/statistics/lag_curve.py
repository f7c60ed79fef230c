"""Score against lag: the runs of one method on one environment, by the mean lag of their data.

A curve begins with a synchronous reference, data of lag 0 (K = 1). What cannot make a curve is refused, in one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..base.parsing import canonical_json, split_list
from ..base.text import word
from ..errors import UserError, nearest
from ..store.run_grid import flat_settings
from ..store.stored_run import StoredRun
from .normalise import constants
from .scores import AUTO, SCORES, Array, final_score, resolve_auto

LEAST_SEEDS = 3  # of every setting of a curve
OPEN = ("capacity", "lag", "seed")  # settings that may differ along a curve


class Refusal(NamedTuple):
    """What is not answered, and why."""

    algorithm: str
    env: str
    why: str


@dataclass(frozen=True)
class LagCurve:
    """m settings by mean lag. Scores have the zero of their environment at 0, so that shares of them mean something.

    Lags are realised ones, over decisions and phases: in phases, and in gradient steps where runs recorded them.
    """

    algorithm: str  # as tables name it; with its lag model where the results have several
    env: str
    capacities: tuple[int, ...]  # [m]
    lags: Array  # [m], increasing, the first is 0
    gradient_lags: Array | None  # [m]
    scores: tuple[Array, ...]  # [m] of [seeds]
    seeds: tuple[tuple[int, ...], ...]  # [m] of [seeds]
    zero: float  # the score that counts as nothing
    zero_note: str
    runs: tuple[tuple[StoredRun, ...], ...]  # [m] of [seeds], sorted by seed

    @property
    def paired(self) -> bool:
        """Whether every setting has the same seeds, which then share their noise and are resampled together."""
        return len(set(self.seeds)) == 1

    @property
    def n(self) -> int:
        """The least number of seeds of a setting."""
        return min(map(len, self.scores))

    def around(self, lag: float) -> tuple[Array, ...]:
        """Scores of the settings that a lag within the data lies between, or of the one that has it."""
        right = int(np.searchsorted(self.lags, lag))
        return self.scores[right : right + 1] if self.lags[right] == lag else self.scores[right - 1 : right + 1]

    @property
    def gradient_steps_per_phase(self) -> float | None:
        """Slope of lag in gradient steps over lag in phases."""
        if self.gradient_lags is None or len(self.lags) < 2:
            return None
        return float(self.gradient_lags[-1] / self.lags[-1])


def lag_curves(
    runs: Iterable[StoredRun], *, score: str = AUTO, zero: str | float = AUTO
) -> tuple[list[LagCurve], list[Refusal]]:
    """A curve for each method, environment and lag model, sorted; and those that there is no curve of.

    `zero`: the score that counts as nothing. A number; `worst`: the worst run of the environment; `auto`: that of a
    random policy (`normalisation.json`), or 0 for an accuracy. Raises `UserError` for an unknown score, or a number
    that is not finite.
    """
    runs = list(runs)
    score, scale = resolve_auto(runs, score, AUTO)
    if score not in SCORES:
        raise UserError(f"score={score!r} is not known; {nearest(score, SCORES)}")
    if not isinstance(zero, str) and not np.isfinite(zero):
        raise UserError(f"ZERO={zero:g} is not a finite number, worst or auto")
    groups: dict[tuple[str, str], list[StoredRun]] = {}
    for run in runs:
        groups.setdefault((method_of(run.label), str(run.spec["env"])), []).append(run)
    curves, refused = [], []
    for (algorithm, env), members in sorted(groups.items()):
        models = _by_model(members)
        for model, mine in models.items():
            name = f"{algorithm} ({model})" if len(models) > 1 else algorithm
            try:
                at, note = _zero(env, [r for r in runs if r.spec["env"] == env], score, scale, zero)
                curves.append(_curve(name, env, mine, score, at, note))
            except UserError as error:
                refused.append(Refusal(name, env, str(error)))
    return curves, refused


def method_of(label: str) -> str:
    """The label without what makes its data stale: `ppo_clip[clip=0.1,lag=fixed:2]` is `ppo_clip[clip=0.1]`."""
    found = re.fullmatch(r"([^\[]+)\[(.*)\](.*)", label)
    if found is None:
        return label
    name, inside, rest = found.groups()
    kept = [part for part in split_list(inside) if part.partition("=")[0] not in OPEN]
    return f"{name}[{','.join(kept)}]{rest}" if kept else name + rest


def _by_model(runs: Iterable[StoredRun]) -> dict[str, list[StoredRun]]:
    """Runs by the name of their lag model. Where a model has no synchronous runs of its own, those of all others stand
    for them."""
    runs = list(runs)
    fresh, stale = [r for r in runs if _lag(r) == 0], [r for r in runs if _lag(r) > 0]
    names = sorted({_model(run) for run in stale} or {_model(run) for run in fresh})
    own = {name: [r for r in fresh if _model(r) == name] or fresh for name in names}
    return {name: [*own[name], *(r for r in stale if _model(r) == name)] for name in names}


def _model(run: StoredRun) -> str:
    return re.split(r"[\[:]", str(run.spec.get("lag", "uniform")))[0]


def _lag(run: StoredRun) -> float:
    return float(run.record["summary"].get("lag_mean") or 0.0)


def _curve(algorithm: str, env: str, runs: list[StoredRun], score: str, zero: float, note: str) -> LagCurve:
    held: dict[str, list[StoredRun]] = {}
    for run in sorted(runs, key=lambda r: r.seed):
        held.setdefault(canonical_json({**run.spec, "seed": None}), []).append(run)
    if differ := _differences(runs):
        raise UserError(f"its runs differ in more than lag: {', '.join(differ)}")
    settings = sorted(held.values(), key=lambda s: (_mean(s, "lag_mean") or 0.0, s[0].spec["capacity"]))
    lags = np.array([_mean(s, "lag_mean") or 0.0 for s in settings])
    if lags[0] > 0:
        raise UserError("no synchronous reference: it has no runs at K = 1")
    if len(settings) < 2:
        raise UserError("no stale runs: it has lag 0 only")
    if np.any(np.diff(lags) < 1e-9):
        at = int(np.argmin(np.diff(lags)))
        names = " and ".join(f"K={s[0].spec['capacity']} LAG={s[0].spec.get('lag')}" for s in settings[at : at + 2])
        raise UserError(f"two settings have one mean lag, {lags[at]:.3g}: {names}; choose with K")
    for setting in settings:
        seeds = [run.seed for run in setting]
        if len(set(seeds)) < len(seeds):
            raise UserError(f"K={setting[0].spec['capacity']} has a seed more than once")
        if len(seeds) < LEAST_SEEDS:
            count = "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
            raise UserError(f"{count} at K={setting[0].spec['capacity']}: at least {LEAST_SEEDS} are needed")
    gradient = [_mean(s, "gradient_lag_mean") for s in settings]
    return LagCurve(
        algorithm,
        env,
        tuple(int(s[0].spec["capacity"]) for s in settings),
        lags,
        None if None in gradient else np.array(gradient, dtype=np.float64),
        tuple(np.array([final_score(run, score) - zero for run in s]) for s in settings),
        tuple(tuple(run.seed for run in s) for s in settings),
        zero,
        note,
        tuple(map(tuple, settings)),
    )


def _mean(runs: Iterable[StoredRun], name: str) -> float | None:
    values = [run.record["summary"].get(name) for run in runs]
    return None if None in values else float(np.mean(np.array(values, dtype=np.float64)))


def _differences(runs: Iterable[StoredRun]) -> list[str]:
    """`learning_rate=0.001 or 0.003` of every setting but `OPEN` that has several values."""
    specs = [{k: v for k, v in flat_settings(run.spec).items() if k not in OPEN} for run in runs]
    several: list[str] = []
    for name in sorted({name for spec in specs for name in spec}):
        values = sorted({word(spec.get(name)) for spec in specs})
        several += [f"{name}={' or '.join(values)}"] if len(values) > 1 else []
    return several


def _zero(env: str, runs: list[StoredRun], score: str, scale: str, asked: str | float) -> tuple[float, str]:
    """The zero of an environment, and what it is in words."""
    if isinstance(asked, (int, float)):
        return float(asked), f"{asked:g}, as given"
    if asked == "worst":
        return min(final_score(run, score) for run in runs), "the worst run of these results"
    if asked != AUTO:
        raise UserError(f"zero={asked!r} is not a number, worst or auto")
    if scale == "raw":
        return 0.0, "a score of 0"
    entry: dict[str, Any] = constants()["envs"].get(env, {}).get("random") or {}
    if score not in entry:
        raise UserError("a random policy's score is not known: give ZERO, a number or worst")
    return float(entry[score]["return"]), "a random policy"
