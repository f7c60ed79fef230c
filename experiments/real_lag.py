"""Is a simulated lag the real one? Runs whose actors are processes that race, each made again four ways: under its own
recorded trace with a fresh seed, under a pipeline model fitted to the trace, and under a uniform buffer of equal mean
lag. Lag histograms and final scores side by side.

    python experiments/real_lag.py --out results/real_lag                    # 2 tasks x 3 methods x 5 seeds x 3 loads
    python experiments/real_lag.py --out /tmp/tiny --scale tiny --seeds 2    # minutes: does it work?

Nothing is made twice: the same command goes on where it was stopped. Recorded runs are made one at a time, for they
race; the others `--jobs` at a time. Writes OUT/summary.json, OUT/real_lag.png and the traces, OUT/traces/*.parquet.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import staleharness as sh
from staleharness.running.execution import carry_out
from staleharness.running.plan import Plan, PlannedRun
from staleharness.store.store import Store
from staleharness.store.stored_run import TRACE, StoredRun
from staleharness.trace import read_trace

METHODS = ("ppo_clip", "vaco", "spo")
FRESH = 100  # added to a recorded run's seed where it is made again
ENVS_PER_ACTOR = 2
SCALES: dict[str, dict[str, Any]] = {
    "tiny": {"envs": ("Pendulum-v1",), "steps": 6 * 8 * 64, "num_envs": 8, "num_steps": 64, "final_episodes": 2},
    "small": {"envs": ("Hopper", "HalfCheetah"), "steps": 202_752, "num_envs": 16, "num_steps": 128,
              "final_episodes": 20},
}  # fmt: skip
CAPACITY = 16  # the bound on lag: far off, so that the load decides
# A load is how actors and learner are matched: who waits for whom.
LOADS = {
    "actors wait": "async[actors=4,queue=1.0]",
    "a long queue": "async[actors=4,queue=4.0]",
    "a few slow": "async[actors=8,queue=2.0,delay=0.0005,spread=8.0]",
}
WAYS = ("recorded", "replayed", "pipeline", "uniform")


@dataclass(frozen=True)
class Cell:
    """A recorded run, and what is made of it."""

    env: str
    method: str
    load: str
    seed: int

    def __str__(self) -> str:
        return f"{self.env}-{self.method}-{self.load.replace(' ', '_')}-{self.seed}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results/real_lag"))
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    scale = SCALES[asked.scale]
    cells = [
        Cell(env, method, load, seed)
        for seed in range(asked.seeds) for env in scale["envs"] for method in METHODS for load in LOADS
    ]  # fmt: skip
    store = Store(asked.out)
    recorded = run(store, [planned(cell, scale, LOADS[cell.load]) for cell in cells], jobs=1)
    kept = asked.out / "traces"
    kept.mkdir(exist_ok=True)
    again: dict[tuple[Cell, str], PlannedRun] = {}
    for cell, real in zip(cells, recorded, strict=True):
        trace = kept / f"{cell}.parquet"
        shutil.copyfile(real.path / TRACE, trace)
        fresh = replace(cell, seed=cell.seed + FRESH)
        again[cell, "replayed"] = planned(fresh, scale, f"trace:{trace}")
        again[cell, "pipeline"] = planned(fresh, scale, fitted(cell, trace))
        again[cell, "uniform"] = planned(fresh, scale, "uniform", capacity=1 + round(2 * mean_lag(real)))
    made = dict(zip(again, run(store, list(again.values()), asked.jobs), strict=True))
    found = {**made, **{(cell, "recorded"): real for cell, real in zip(cells, recorded, strict=True)}}
    summary = summarised(found)
    (asked.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw(summary, asked.out / "real_lag.png")
    show(summary)


def planned(cell: Cell, scale: dict[str, Any], lag: str, capacity: int = CAPACITY) -> PlannedRun:
    """One run."""
    settings = {key: value for key, value in scale.items() if key not in ("envs", "steps")}
    settings |= {"envs_per_actor": ENVS_PER_ACTOR, "evaluations": 1}
    return sh.plan(
        env=cell.env, algo=cell.method, k=capacity, seeds=[cell.seed], lag=lag, steps=scale["steps"],
        settings=settings,
    ).runs[0]  # fmt: skip


def run(store: Store, runs: Sequence[PlannedRun], jobs: int) -> list[StoredRun]:
    """What is stored of these runs once all are made, in their order."""
    _, stored = carry_out(
        Plan(tuple({each.run_id: each for each in runs}.values()), "real_lag", ""), store, jobs, _told
    )
    by_id = {each.id: each for each in stored}
    if missing := [each.label for each in runs if each.run_id not in by_id]:
        raise SystemExit(
            f"{len(missing)} runs are missing, the first of {missing[0]}; the same command goes on"
        )
    return [by_id[each.run_id] for each in runs]


@contextlib.contextmanager
def _told(done: int) -> Iterator[Any]:
    yield _Lines()


class _Lines:
    """A line for each run that ends."""

    def started(self, run: PlannedRun) -> None: ...
    def phase(self, run: PlannedRun, progress: dict[str, Any]) -> None: ...
    def stopping(self) -> None: ...

    def ended(self, run: PlannedRun, event: dict[str, Any]) -> None:
        print(
            event["event"],
            run.label,
            run.spec.env,
            run.spec.lag,
            run.spec.seed,
            event.get("message", ""),
            flush=True,
        )


def fitted(cell: Cell, trace: Path) -> str:
    """The pipeline of free actors and a queue whose times are those of a trace, in training steps."""
    rows = read_trace(str(trace))[1]
    trained = rows[rows["fate"] == "trained"]
    step = np.diff(trained.groupby("phase")["trained_at"].first()).mean()
    groups = trained.drop_duplicates("group")
    seconds = groups["made_at"] - groups["began_at"]
    options = dict(
        item.split("=") for item in LOADS[cell.load].removesuffix("]").partition("[")[2].split(",")
    )
    batch = groups.groupby("phase").size().iloc[0]
    room = max(1.0, float(options["queue"]))
    return (
        f"queue[capacity={room},max_lag={CAPACITY - 1},slots={int(options['actors']) / batch:.4g},"
        f"row_time={seconds.mean() / step:.4g},cv={seconds.std() / seconds.mean():.3g}]"
    )


def histogram(run: StoredRun) -> list[float]:
    """Share of the decisions that were trained on, by lag in phases."""
    counts = {int(lag): count for lag, count in run.record["lag_histogram"].items()}
    total = sum(counts.values())
    return [counts.get(lag, 0) / total for lag in range(max(counts) + 1)]


def mean_lag(run: StoredRun) -> float:
    return sum(lag * share for lag, share in enumerate(histogram(run)))


def summarised(found: dict[tuple[Cell, str], StoredRun]) -> list[dict[str, Any]]:
    """A row per environment, method, load and way: final scores with a 95 % bootstrap interval of their mean over
    seeds, and the lags of all seeds together."""
    rows = []
    frame = pd.DataFrame([{**vars(cell), "way": way, "run": run} for (cell, way), run in found.items()])
    for (env, method, load, way), part in frame.groupby(["env", "method", "load", "way"], sort=False):
        scores = np.array([run.record["scores"]["sampled"]["mean"] for run in part["run"]])
        shares = [histogram(run) for run in part["run"]]
        widest = max(map(len, shares))
        rows.append({
            "env": env, "method": method, "load": load, "way": way, "scores": scores.tolist(),
            "score": float(scores.mean()), "interval": interval(scores),
            "mean_lag": float(np.mean([mean_lag(run) for run in part["run"]])),
            "histogram": np.mean([each + [0.0] * (widest - len(each)) for each in shares], axis=0).tolist(),
        })  # fmt: skip
    return sorted(rows, key=lambda r: (r["env"], r["method"], r["load"], WAYS.index(r["way"])))


def interval(scores: np.ndarray, reps: int = 10_000) -> list[float]:
    """95 % percentile bootstrap of the mean."""
    picked = np.random.default_rng(0).integers(0, len(scores), (reps, len(scores)))
    return np.percentile(scores[picked].mean(1), [2.5, 97.5]).tolist()


def draw(summary: Sequence[dict[str, Any]], to: Path) -> None:
    """Above the lags of each load, below the scores."""
    from matplotlib.figure import Figure

    envs = list(dict.fromkeys(row["env"] for row in summary))
    figure = Figure(figsize=(4 * len(LOADS), 3 * (1 + len(envs))), layout="constrained")
    axes = figure.subplots(1 + len(envs), len(LOADS), squeeze=False)
    for column, load in enumerate(LOADS):
        mine = [row for row in summary if row["load"] == load]
        for i, way in enumerate(WAYS):
            of_way = [row for row in mine if row["way"] == way]
            widest = max(len(row["histogram"]) for row in of_way)
            shares = np.mean(
                [row["histogram"] + [0.0] * (widest - len(row["histogram"])) for row in of_way], axis=0
            )
            axes[0, column].bar(np.arange(widest) + (i - 1.5) * 0.2, shares, 0.2, label=way)
            for below, env in enumerate(envs, start=1):
                rows = [row for row in of_way if row["env"] == env]
                place = np.arange(len(rows)) + (i - 1.5) * 0.18
                low, high = np.array([row["interval"] for row in rows]).T
                score = np.array([row["score"] for row in rows])
                axes[below, column].errorbar(
                    place, score, [score - low, high - score], fmt="o", ms=4, label=way
                )
                axes[below, column].set_xticks(range(len(rows)), [row["method"] for row in rows])
                axes[below, column].set_ylabel(f"{env}: final score")
        axes[0, column].set(title=load, xlabel="lag in phases", ylabel="share of decisions")
    axes[0, 0].legend()
    figure.savefig(to, dpi=120)


def show(summary: Sequence[dict[str, Any]]) -> None:
    for row in summary:
        low, high = row["interval"]
        name = f"{row['env']} {row['method']} {row['load']}"
        print(
            f"{name:45} {row['way']:9} lag {row['mean_lag']:5.2f}  score {row['score']:9.1f} [{low:.1f}, {high:.1f}]"
        )


if __name__ == "__main__":
    main()
