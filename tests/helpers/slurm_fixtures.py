"""The clusters as fixtures: PATH leads to one, and the runner looks often."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import HELPERS, ROOT
from slurm_clusters import Cluster, Real, StandIn, missing

from staleharness.running.runners import slurm


@pytest.fixture(scope="session")
def real_slurm() -> Iterator[Real]:
    if why := missing():
        pytest.skip(why)
    cluster = Real()
    yield cluster
    cluster.close()


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    (tmp_path / "cluster").mkdir()
    made = StandIn(tmp_path / "cluster")
    _lead_to(made, monkeypatch)
    yield made
    made.clear()


@pytest.fixture(params=["stand-in", "real"])
def cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Each in turn: what holds of one has to hold of the other."""
    if request.param == "stand-in":
        yield request.getfixturevalue("stand_in")
        return
    made = request.getfixturevalue("real_slurm")
    _lead_to(made, monkeypatch)
    yield made
    made.clear()


def _lead_to(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**cluster.env, "PYTHONPATH": os.pathsep.join([str(ROOT), str(HELPERS)])}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(slurm, "LOOKS", (0.2, 0.4))
    monkeypatch.setattr(slurm, "READS", 0.05)
    monkeypatch.setattr(slurm, "REPEAT", 1.0)
    monkeypatch.setattr(slurm, "VISIBLE", 0.5)
    monkeypatch.setattr(slurm, "GRACE", 10.0)
