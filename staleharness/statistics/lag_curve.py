"""Score against lag: the runs of one method on one environment, by the mean lag of their data.

A curve begins with a synchronous reference, data of lag 0 (K = 1). Runs without a curve get a one-line reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.parsing import without_n
from ..base.text_formatting import word
from ..errors import UserError, nearest
from ..store.run_grid import flat_settings
from ..store.stored_run import StoredRun
from .method_labels import without_options
from .run_set_matching import by_settings
from .scores import AUTO, SCORES, Array, final_score, random_returns, resolve_auto

LEAST_SEEDS = 3  # of every setting of a curve
OPEN = ("capacity", "lag", "seed")  # settings that may differ along a curve


class Refusal(NamedTuple):
    """Method and environment without a curve, and the reason."""

    algorithm: str
    env: str
    reason: str


@dataclass(frozen=True)
class LagCurve:
    """Scores of m settings by mean lag, counted from the zero of their environment, so that shares are meaningful.

    Lags are realised ones, over decisions and phases: in phases, and in gradient steps where runs recorded them.
    """

    algorithm: str  # label; with its lag model where the results have several
    env: str
    capacities: tuple[int, ...]  # [m]
    lags: Array  # [m], increasing, the first is 0
    gradient_lags: Array | None  # [m]
    scores: tuple[Array, ...]  # [m] of [seeds]
    seeds: tuple[tuple[int, ...], ...]  # [m] of [seeds]
    zero: float  # score that counts as 0
    zero_note: str
    runs: tuple[tuple[StoredRun, ...], ...]  # [m] of [seeds], sorted by seed
    row_lags: Array | None = None  # [m], means over rows at their first decision, where runs recorded them

    def from_rows(self, lag: float) -> float:
        """Convert a mean lag over rows to the mean over decisions that these runs had with it. Where runs
        recorded no lag over rows, versions did not depend on the length of a row, and both means are about the same."""
        return _convert(lag, self.row_lags, self.lags)

    def to_rows(self, lag: float) -> float:
        """Convert a mean lag over decisions to one over rows."""
        return _convert(lag, self.lags, self.row_lags)

    @property
    def is_paired(self) -> bool:
        """Return whether every setting has the same seeds, which then share their noise and are resampled together."""
        return len(set(self.seeds)) == 1

    def resample_seeds(self, reps: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        """Draw indices of seeds, [reps, seeds] for each setting: the same for all where seeds are paired."""
        sizes = [len(scores) for scores in self.scores]
        if self.is_paired:
            return [rng.integers(sizes[0], size=(reps, sizes[0]))] * len(sizes)
        return [rng.integers(n, size=(reps, n)) for n in sizes]

    @property
    def n(self) -> int:
        """Least number of seeds of a setting."""
        return min(map(len, self.scores))

    def around(self, lag: float) -> tuple[Array, ...]:
        """Scores of the two settings on either side of a lag within the data, or of the one with that lag."""
        right = int(np.searchsorted(self.lags, lag))
        return self.scores[right : right + 1] if self.lags[right] == lag else self.scores[right - 1 : right + 1]

    def gradient_steps(self, lag: float) -> float:
        """Convert a lag in phases to gradient steps. Call it where `gradient_steps_per_phase` is known."""
        return lag * (self.gradient_steps_per_phase or 0.0)

    @property
    def gradient_steps_per_phase(self) -> float | None:
        """Slope of lag in gradient steps over lag in phases."""
        if self.gradient_lags is None or len(self.lags) < 2:
            return None
        return float(self.gradient_lags[-1] / self.lags[-1])


def lag_curves(
    runs: Iterable[StoredRun], *, score: str = AUTO, zero: str | float = AUTO
) -> tuple[list[LagCurve], list[Refusal]]:
    """Make a curve for each method, environment and lag model, sorted; and list those without one.

    `zero`: the score that counts as 0. A number; `worst`: the worst run of the environment; `auto`: that of a random
    policy (`normalisation.json`), or 0 for an accuracy. Raises `UserError` for an unknown score, or a number that is
    not finite.
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
    curves, refusals = [], []
    for (algorithm, env), members in sorted(groups.items()):
        models = _by_model(members)
        for model, model_runs in models.items():
            name = f"{algorithm} ({model})" if len(models) > 1 else algorithm
            try:
                zero_score, note = _zero(env, [r for r in runs if r.spec["env"] == env], score, scale, zero)
                curves.append(_curve(name, env, model_runs, score, zero_score, note))
            except UserError as error:
                refusals.append(Refusal(name, env, str(error)))
    return curves, refusals


def _convert(lag: float, source: Array | None, target: Array | None) -> float:
    """Convert a mean lag of one kind to the other, given both at each setting: linear between settings, in proportion
    beyond the last."""
    if source is None or target is None or np.any(np.diff(source) <= 0):
        return lag
    if lag > source[-1]:
        return float(lag * target[-1] / source[-1])
    return float(np.interp(lag, source, target))


def method_of(label: str) -> str:
    """Remove lag settings from a label: `ppo_clip[clip=0.1,lag=fixed:2]` is `ppo_clip[clip=0.1]`."""
    return without_options(label, *OPEN) + label.removeprefix(without_n(label))


def _by_model(runs: Iterable[StoredRun]) -> dict[str, list[StoredRun]]:
    """Group runs by the name of their lag model. A model without synchronous runs of its own gets those of the model
    that has most: without lag all are the same computation."""
    runs = list(runs)
    fresh, stale = [r for r in runs if _lag(r) == 0], [r for r in runs if _lag(r) > 0]
    fresh_of = {name: [r for r in fresh if _model(r) == name] for name in sorted(map(_model, fresh))}
    others = max(fresh_of.values(), key=len, default=[])
    names = sorted({*map(_model, stale)} or fresh_of)
    return {name: [*fresh_of.get(name, others), *(r for r in stale if _model(r) == name)] for name in names}


def _model(run: StoredRun) -> str:
    return re.split(r"[\[:]", str(run.spec.get("lag", "uniform")))[0]


def _lag(run: StoredRun) -> float:
    return float(run.record["summary"].get("lag_mean") or 0.0)


def _curve(algorithm: str, env: str, runs: list[StoredRun], score: str, zero: float, note: str) -> LagCurve:
    groups = by_settings(sorted(runs, key=lambda r: r.seed))
    if differ := _differences(runs):
        raise UserError(f"runs differ in more than lag: {', '.join(differ)}")
    settings = sorted(groups.values(), key=lambda s: (_mean(s, "lag_mean") or 0.0, s[0].spec["capacity"]))
    lags = np.array([_mean(s, "lag_mean") or 0.0 for s in settings])
    if lags[0] > 0:
        raise UserError("no synchronous reference, as there are no runs at K = 1")
    if len(settings) < 2:
        raise UserError("no stale runs, only runs with lag 0")
    if np.any(np.diff(lags) < 1e-9):
        at = int(np.argmin(np.diff(lags)))
        names = " and ".join(f"K={s[0].spec['capacity']} LAG={s[0].spec.get('lag')}" for s in settings[at : at + 2])
        raise UserError(f"two settings have the same mean lag, {lags[at]:.3g}: {names}; choose one with K or WHERE")
    for setting in settings:
        seeds = [run.seed for run in setting]
        if len(set(seeds)) < len(seeds):
            raise UserError(f"K={setting[0].spec['capacity']} has a seed more than once")
        if len(seeds) < LEAST_SEEDS:
            count = "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
            raise UserError(f"{count} at K={setting[0].spec['capacity']}: at least {LEAST_SEEDS} are needed")
    gradient = [_mean(s, "gradient_lag_mean") for s in settings]
    rows = [_mean(s, "lags/start") for s in settings]
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
        None if None in rows else np.array(rows, dtype=np.float64),
    )


def _mean(runs: Iterable[StoredRun], name: str) -> float | None:
    values = [run.record["summary"].get(name) for run in runs]
    return None if None in values else float(np.mean(np.array(values, dtype=np.float64)))


def _differences(runs: Iterable[StoredRun]) -> list[str]:
    """Settings with several values, apart from `OPEN`: `learning_rate=0.001 or 0.003`."""
    specs = [{k: v for k, v in flat_settings(run.spec).items() if k not in OPEN} for run in runs]
    values = {name: sorted({word(spec.get(name)) for spec in specs}) for name in sorted(set().union(*specs))}
    return [f"{name}={' or '.join(words)}" for name, words in values.items() if len(words) > 1]


def _zero(env: str, runs: list[StoredRun], score: str, scale: str, zero: str | float) -> tuple[float, str]:
    """Return the zero of an environment, and its description."""
    if isinstance(zero, (int, float)):
        return float(zero), f"{zero:g}, as given"
    if zero == "worst":
        return min(final_score(run, score) for run in runs), "the worst run of these results"
    if zero != AUTO:
        raise UserError(f"zero={zero!r} is not a number, worst or auto")
    if scale == "raw":
        return 0.0, "a score of 0"
    returns = random_returns([env], score)
    if env not in returns:
        raise UserError("a random policy's score is not known; set ZERO to a number or worst")
    return returns[env], "a random policy"
