"""Synthetic results, written through the real store, for tests of what reads results."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from staleharness.chain.task import ChainTask
from staleharness.control.task import ControlTask
from staleharness.language.task import LanguageTask
from staleharness.store.store import FORMAT, Store, StoredRun
from staleharness.task import Task

ALGORITHMS = ("a3po", "decoupled_ppo", "impala", "ppo_clip", "ppo_kl", "spo", "vaco")
FINGERPRINT = {
    "staleharness": "0.1.0",
    "commit": "abc1234",
    "python": "3.11.9",
    "torch": "2.13.0",
    "numpy": "2.4.6",
    "gymnasium": "1.4.0",
    "mujoco": "3.17.0",
    "cpu": "Test CPU",
    "threads": 1,
    "device": "cpu",
}

KINDS: dict[str, type[Task]] = {"control": ControlTask, "language": LanguageTask, "chain": ChainTask}
SPENT = {
    "control": {"collect": 1 / 2, "learn": 1 / 3, "evaluate": 1 / 6},
    "chain": {"collect": 1 / 2, "learn": 1 / 3, "evaluate": 1 / 6, "loss": 1 / 9, "proximal": 0, "train": 2 / 9},
    "language": {"generate": 1 / 2, "score": 1 / 6, "proximal": 0, "loss": 1 / 9, "train": 1 / 9, "evaluate": 1 / 9},
}


def write_run(
    root: Path,
    label: str = "vaco",
    seed: int = 0,
    *,
    kind: str = "control",
    env: str = "Hopper-v5",
    capacity: int = 8,
    sampled: float = 100.0,
    deterministic: float | None = None,
    curve: list[float] | None = None,
    phases: int = 12,
    seconds: float = 60.0,
    settings: dict[str, Any] | None = None,
    fingerprint: dict[str, Any] | None = None,
    said: dict[str, Any] | None = None,
    columns: dict[str, list[float]] | None = None,
) -> StoredRun:
    """Publish one run whose final scores are given; `curve` are its sampled evaluations, evenly spread over
    phases. `said` is added to its record, `columns` to its metrics.
    """
    spec = {
        "algorithm": label.split("[")[0],
        "env": env,
        "capacity": capacity,
        "seed": seed,
        "hyper": {},
        "lag": "uniform",
        "mechanism": "reexecute",
        "num_envs": 16,
        "num_steps": 128,
        "steps": phases * 2048,
        **(settings or {}),
    }
    run_id = hashlib.sha256(json.dumps([label, spec], sort_keys=True).encode()).hexdigest()[:12]
    deterministic = sampled * 1.1 if deterministic is None else deterministic
    store = Store(root)
    if not (root / "attempts").is_dir():
        store.open_for_writing()
    attempt = store.attempt_dir(run_id)
    attempt.mkdir()
    rng = np.random.default_rng([seed, capacity, len(label)])
    rows = _metrics(rng, phases, capacity, sampled, deterministic, curve)
    metrics: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]} | (columns or {})
    parquet.write_table(pa.table(metrics), attempt / "metrics.parquet")
    (attempt / "timing.parquet").write_bytes(_timing(phases))
    (attempt / "job.json").write_text(json.dumps({"label": label, "spec": spec}))
    (attempt / "log.txt").write_text(f"{label} on {env}\n")
    histogram = np.sum([r["lag_histogram"] for r in rows], axis=0)
    names = ("lag_mean", "lag_max", "tv_data", "ess_data", "kl_k3_data", "clipped")
    record = {
        "format": FORMAT,
        "id": run_id,
        "label": label,
        "task": KINDS[kind].facts(),
        "spec": spec,
        "metrics_sha256": hashlib.sha256(json.dumps(rows).encode()).hexdigest(),
        "fingerprint": {**FINGERPRINT, **(fingerprint or {})},
        "scores": {
            mode: {"mean": mean, "std": 1.0, "returns": [mean] * 20, "lengths": [1000] * 20}
            for mode, mean in (("sampled", sampled), ("deterministic", deterministic))
        },
        "summary": {n: float(np.mean([r[n] for r in rows])) for n in names}
        | {n: float(np.mean(values)) for n, values in (columns or {}).items() if n.startswith("mismatch/")},
        "lag_histogram": {str(i): int(n) for i, n in enumerate(histogram)},
        "steps": phases * 2048,
        "phases": phases,
        "gradient_steps": phases * 80,
        "evaluation_steps": 20_000,
        "seconds": {"total": seconds, **{part: share * seconds for part, share in SPENT[kind].items()}},
        "date": "2026-11-20",
        **(said or {}),
    }
    (attempt / "run.json").write_text(json.dumps(record, sort_keys=True))  # as the store writes it
    store.publish(run_id)
    run = store.read(run_id)
    assert run is not None
    return run


@functools.cache
def _timing(phases: int) -> bytes:
    return bytes(pd.DataFrame([{"collect": 1.0, "learn": 1.0, "evaluate": 0.0}] * phases).to_parquet())


def _metrics(
    rng: np.random.Generator,
    phases: int,
    capacity: int,
    sampled: float,
    deterministic: float,
    curve: list[float] | None,
) -> list[dict[str, Any]]:
    rows = []
    grid = np.linspace(0, 1, phases)
    if curve is None:
        heights = sampled * grid**0.7 + 0.04 * abs(sampled) * rng.standard_normal(phases)
        heights[-1] = sampled
        evaluated = {p: float(heights[p]) for p in range(0, phases, 2)} | {phases - 1: sampled}
    else:
        phases_of_curve = np.linspace(0, phases - 1, len(curve)).round().astype(int)
        evaluated = {int(p): float(v) for p, v in zip(phases_of_curve, curve, strict=True)}
    for phase in range(phases):
        versions = min(phase + 1, capacity)
        lags = rng.multinomial(2048, [1 / versions] * versions).tolist() + [0] * (capacity - versions)
        tv = 0.02 * (versions - 1) * (1 + 0.1 * rng.random())
        rows.append(
            {
                "phase": phase,
                "steps": (phase + 1) * 2048,
                "gradient_steps": (phase + 1) * 80,
                "learning_rate": 3e-4,
                "lag_mean": float(np.average(range(capacity), weights=lags)),
                "lag_p95": float(versions - 1),
                "lag_max": float(versions - 1),
                "lag_histogram": lags,
                "gradient_lag_mean": 80.0 * (versions - 1) / 2,
                "tv_data": tv,
                "ess_data": 1 / (1 + 4 * tv),
                "kl_k1_data": tv / 2,
                "kl_k3_data": tv / 2,
                "tv_end": tv + 0.03,
                "ess_end": 0.8,
                "tv_forward": 0.03 + 0.01 * rng.random(),
                "clipped": 0.05 + tv,
                "clipped_first": tv,
                "clipped_last": 0.08 + tv,
                "policy_loss": -0.01,
                "value_loss": 1.0,
                "entropy": 2.0,
                "grad_norm": 0.5,
                "explained_variance": 0.5,
                "statistics_drift": 0.01,
                "rollout_length": 100.0,
                "rollout_return": None if phase == 0 else sampled * float(grid[phase]),
                "eval_sampled": evaluated.get(phase),
                "eval_deterministic": None if phase < phases - 1 else deterministic,
            }
        )
    return rows


def write_grid(
    root: Path,
    algorithms: tuple[str, ...] = ALGORITHMS,
    *,
    envs: tuple[str, ...] = ("Hopper-v5",),
    capacities: tuple[int, ...] = (8,),
    seeds: int = 3,
    phases: int = 12,
) -> list[StoredRun]:
    """A full grid whose scores fall with capacity, more for some algorithms than for others."""
    runs = []
    for e, env in enumerate(envs):
        for k in capacities:
            for a, label in enumerate(algorithms):
                for seed in range(seeds):
                    noise = np.random.default_rng([e, k, a, seed]).standard_normal()
                    robustness = 0.05 + 0.03 * (len(algorithms) - a)
                    level = (1500 + 800 * e) * (1.0 - robustness * np.log2(k)) + 120 * noise
                    options: dict[str, Any] = {"env": env, "capacity": k, "phases": phases, "seconds": 50 + 3.0 * a}
                    runs.append(write_run(root, label, seed, sampled=float(level), **options))
    return runs
