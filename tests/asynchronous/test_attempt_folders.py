"""From the command to the results folder and back: a run with processes, its trace, and the replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from races import but_assigned

import staleharness as sh

ASKED: dict[str, Any] = {
    "env": "Pendulum-v1",
    "algo": ["ppo_clip"],
    "k": 8,
    "seeds": 1,
    "steps": 4 * 4 * 40,
    "jobs": 1,
    "settings": {
        "num_envs": 4,
        "num_steps": 40,
        "minibatches": 2,
        "epochs": 2,
        "evaluations": 1,
        "evaluation_episodes": 1,
        "final_episodes": 1,
    },
}


@pytest.mark.slow
def test_a_stored_trace_replays_its_run(tmp_path: Path) -> None:
    sh.sweep(**ASKED, lag="async[actors=3,delay=0.001,spread=3]", out=tmp_path)
    (first,) = (tmp_path / "runs").iterdir()
    record, sealed = (json.loads((first / name).read_text()) for name in ("run.json", "manifest.json"))
    assert "trace.parquet" in sealed and any("depends on a race of processes" in line for line in record["warnings"])
    sh.sweep(**ASKED, lag="async[actors=3,delay=0.001,spread=3]", out=tmp_path)
    assert len(list((tmp_path / "runs").iterdir())) == 1, "stored like any other run"

    sh.sweep(**ASKED, lag=f"trace:{first / 'trace.parquet'}", out=tmp_path)
    (second,) = (path for path in (tmp_path / "runs").iterdir() if path != first)
    ran, replayed = (pd.read_parquet(path / "metrics.parquet").to_dict("records") for path in (first, second))
    pd.testing.assert_frame_equal(*(pd.DataFrame(but_assigned(each)) for each in (ran, replayed)), check_exact=True)
    again = json.loads((second / "run.json").read_text())
    assert again["scores"] == record["scores"] and not again["warnings"]
