"""Records of runs of every kind: times, and all entries that readers rely on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from staleharness.chain.task import ChainTask
from staleharness.errors import UserError
from staleharness.running.plan import plan
from staleharness.running.runner_interface import Job
from staleharness.running.worker import execute
from staleharness.store.store import Store
from staleharness.study import sweep_request
from staleharness.training import checkpoint
from staleharness.training.loop import simulation_of


def job_of(root: Path, env: str, **asked: str) -> Job:
    (run,) = plan(sweep_request(env=env, seeds="1", **asked)).runs
    Store(root).open_for_writing()
    return Job(run.run_id, run.label, run.spec.to_dict(), str(root))


def test_the_parts_of_a_phase_s_time_are_not_counted_twice(tmp_path: Path) -> None:
    job = job_of(tmp_path, "bit-chain", algo="seq_is", steps="4", settings="horizon=4,batch=8,evaluations=1")
    path = execute(job, lambda message: None, lambda: False)
    seconds = json.loads((path / "run.json").read_text())["seconds"]
    assert seconds["total"] == pytest.approx(sum(seconds[part] for part in ("collect", "learn", "evaluate")))
    assert 0 < seconds["train"] < seconds["learn"]  # a part of a part


def test_a_run_says_how_large_its_checkpoints_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    save = checkpoint.save

    def watch(folder: Path, phase: int, state: dict[str, Any]) -> None:
        save(folder, phase, state)
        sizes.append((folder / f"checkpoint-{phase:08d}.pt").stat().st_size)

    monkeypatch.setattr(checkpoint, "save", watch)
    job = job_of(tmp_path, "bit-chain", algo="seq_is", steps="4", settings="horizon=4,batch=8,evaluations=1")
    path = execute(job, lambda message: None, lambda: False)
    assert sizes and json.loads((path / "run.json").read_text())["checkpoint_bytes"] == max(sizes)


@pytest.mark.parametrize(
    ("part", "name"), [("metrics", "lag_histogram"), ("metrics", "eval_sampled"), ("seconds", "evaluate")]
)
@pytest.mark.usefixtures("tabular")
def test_a_kind_that_leaves_out_what_readers_count_on_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, name: str
) -> None:
    job = job_of(tmp_path, "random-mdp-0", algo="spo", steps="128")
    kind: Any = type(
        simulation_of(plan(sweep_request(env="random-mdp-0", algo="spo", seeds="1", steps="128")).runs[0].spec)
    )
    advance = kind.advance

    def forgetful(self: Any) -> Any:
        record = advance(self)
        kept = {key: value for key, value in getattr(record, part).items() if key != name}
        return dataclasses.replace(record, **{part: kept})

    monkeypatch.setattr(kind, "advance", forgetful)
    with pytest.raises(UserError, match=f"the simulation's {part} of a phase lack {name}"):
        execute(job, lambda message: None, lambda: False)


def test_accounts_are_in_the_record_and_outside_the_checksum(tmp_path: Path) -> None:
    """The checksum is of the lines as they were before there were accounts, to the byte."""
    settings = "horizon=4,batch=8,evaluations=1"
    job = job_of(tmp_path, "bit-chain", algo="seq_is", steps="4", k="8", settings=settings)
    path = execute(job, lambda message: None, lambda: False)
    record = json.loads((path / "run.json").read_text())
    made = 4 * 8 * 4
    entries = {"generated": made, "trained": made, "dropped": 0, "masked": 0, "queued": 0, "reused": 0}
    assert record["ledger"]["decisions"] == entries
    assert record["ledger"]["sequences"] == {key: n // 4 for key, n in entries.items()}
    lags = record["lags"]
    assert lags["realised"] == lags["trained"] == record["lag_histogram"] and sum(lags["assigned"].values()) == 32
    assert record["promise"] == {"mean": 3.5, "cap": 7, "expected": 0.75} and "pipeline_ledger" not in record
    assert record["summary"]["untrained/sampled"] == pytest.approx(0.1, rel=1e-6)
    assert not [name for name in record["summary"] if name.startswith(("decisions/", "sequences/"))]
    spec = (
        plan(sweep_request(env="bit-chain", seeds="1", algo="seq_is", steps="4", k="8", settings=settings)).runs[0].spec
    )
    begun = ("lags/", "gradient_lags/", "untrained/", "decisions/", "sequences/")
    lines = [
        json.dumps({k: v for k, v in phase.metrics.items() if not k.startswith(begun)}, sort_keys=True) + "\n"
        for phase in simulation_of(spec)
    ]
    assert record["metrics_sha256"] == hashlib.sha256("".join(lines).encode()).hexdigest()


def test_an_invalid_record_is_refused_when_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tmp_path, "bit-chain", algo="seq_is", steps="4", settings="horizon=4,batch=8,evaluations=1")
    monkeypatch.setattr(ChainTask, "normalise", "log")
    with pytest.raises(UserError, match=r"cannot be stored: run\.json\.task\.normalise: Invalid enum value 'log'"):
        execute(job, lambda message: None, lambda: False)
    assert not Store(tmp_path).read_all()
