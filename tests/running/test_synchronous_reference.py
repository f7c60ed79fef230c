"""Runs at K = 1 that a sweep at larger K is compared with."""

from __future__ import annotations

from pathlib import Path

import pytest
from tabular_runs import carry_out

from staleharness.running import plan_execution
from staleharness.running.plan import plan
from staleharness.running.runner_interface import Job
from staleharness.store.store import Store
from staleharness.study import sweep_request

RATE = "learning_rate=0.1"


def train_without_lag(root: Path, *, algo: str = "spo", settings: str | None = None) -> None:
    store = Store(root)
    store.open_for_writing()
    for run in plan(
        sweep_request(env="random-mdp-0", k="1", algo=algo, seeds="1", steps="256", settings=settings)
    ).runs:
        carry_out(Job(run.run_id, run.label, run.spec.to_dict(), str(root)))


@pytest.mark.parametrize("published", [False, True])
def test_runs_without_lag_have_the_labels_of_the_plan(
    published: bool, tmp_path: Path, tabular: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two learning rates, each stored by a sweep of its own as `spo`, are two methods of a later one."""
    train_without_lag(tmp_path / "stored")
    train_without_lag(tmp_path / "stored", settings=RATE)
    mine = tmp_path / ("mine" if published else "stored")
    monkeypatch.setattr(plan_execution, "published_bundles", lambda: [tmp_path / "stored"] if published else [])
    monkeypatch.setattr(plan_execution, "unchecked_ids", lambda root: {run.id for run in Store(root).read_all()})
    later = plan(sweep_request(env="random-mdp-0", k="2", algo=f"spo,spo[{RATE}]", seeds="1", steps="256"))
    lag_reference = plan_execution.synchronous_reference(later, Store(mine))
    runs = lag_reference.published if published else lag_reference.user_runs
    assert {run.label: run.spec["learning_rate"] for run in runs} == {"spo": 0.05, f"spo[{RATE}]": 0.1}
    assert lag_reference.settings["algorithms"] == (["spo", f"spo[{RATE}]"] if published else [])
    assert [run.label for run in Store(tmp_path / "stored").read_all()] == ["spo", "spo"]  # as it is on disk
