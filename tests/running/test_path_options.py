"""Files that a plugin's options name: found from where the run is planned, part of its id by their content."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from known_plugins import loaded_plugins

import staleharness as sh
from staleharness.errors import UserError
from staleharness.lag import read_lag
from staleharness.running.plan import Plan, plan
from staleharness.running.run_identity import lag_identity
from staleharness.study import sweep_request

PLUGIN = """
from dataclasses import dataclass
from pathlib import Path

from staleharness.algorithm import ALGORITHMS, Algorithm, Decisions, PolicyLoss, option
from staleharness.lag import LAGS, Assignment, Draw, LagModel, keep


@ALGORITHMS.register("tabled")
@dataclass(frozen=True)
class Tabled(Algorithm):
    \"\"\"A policy gradient scaled by the number in a file.\"\"\"

    paper = "unpublished"
    table: str = option("", path=True)

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return PolicyLoss(-float(Path(self.table).read_text()) * d.target_logp * d.advantage, {})


@LAGS.register("filed")
@dataclass(frozen=True)
class Filed(LagModel):
    \"\"\"The lag in a file.\"\"\"

    file: str = option("", path=True)

    def assign(self, draw: Draw) -> Assignment:
        return keep([max(0, draw.phase - int(Path(self.file).read_text()))] * draw.slots)

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        return {max(0, phase - int(Path(self.file).read_text())): 1.0}
"""
TINY = "num_envs=2,num_steps=32,epochs=1,minibatches=2,evaluations=1,evaluation_episodes=1,final_episodes=1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "tabled.py").write_text(PLUGIN)
    (tmp_path / "inside").mkdir()
    (tmp_path / "number").write_text("1")
    monkeypatch.chdir(tmp_path)
    with loaded_plugins(tmp_path / "tabled.py"):
        yield tmp_path


def plan_of(algo: str, lag: str = "uniform") -> Plan:
    return plan(sweep_request(env="Pendulum", algo=algo, seeds="1", k="2", lag=lag, steps="128", settings=TINY))


def test_one_file_from_two_working_folders_is_one_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = plan_of("tabled[table=number]", "filed:number").runs[0]
    monkeypatch.chdir(folder / "inside")
    there = plan_of("tabled[table=../number]", "filed[file=../number]").runs[0]
    assert here.run_id == there.run_id and os.path.isabs(str(here.spec.hyper["table"]))
    (folder / "copy").write_text("1")
    assert plan_of(f"tabled[table={folder / 'copy'}]", "filed:../copy").runs[0].run_id == here.run_id
    (folder / "number").write_text("0")
    assert plan_of("tabled[table=../number]", "filed:../number").runs[0].run_id != here.run_id


def test_a_run_reads_its_file_in_a_folder_of_its_own(folder: Path) -> None:
    """Planned where `number` lies, executed where it does not."""
    out = folder / "results"
    (run,) = sh.sweep(
        env="Pendulum", algo="tabled[table=number]", lag="filed:number", seeds=1, k=2, steps=128, settings=TINY, out=out
    )
    assert run.record["summary"]["lag_mean"] == pytest.approx(0.5)


def test_a_file_that_is_not_there_is_one_line(folder: Path) -> None:
    with pytest.raises(UserError, match=r"ALGO=tabled: table='.*': there is no such file"):
        plan_of("tabled[table=nowhere]")
    with pytest.raises(UserError, match=r"LAG=filed: file='.*': there is no such file"):
        plan_of("ppo_clip", "filed:nowhere")
    assert lag_identity("filed") == "" and read_lag("filed").text == "filed"
