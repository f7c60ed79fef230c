"""Sweeps of three kinds of task whose workers are SIGKILLed again and again, wherever in a run: every run that ends is
the run that nothing has happened to.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import kill_points
import pytest
from killing import files, records
from needs import hint
from sweeping import TINY, Silent

from staleharness.running.plan import PlannedRun, plan
from staleharness.running.runners import local
from staleharness.running.runners.local import LocalPool
from staleharness.running.supervision import Limits
from staleharness.running.sweep_event_loop import sweep
from staleharness.store.store import Store
from staleharness.study import sweep_request

EVERY_PHASE = Limits(checkpoint=0.0)
POINTS = set(kill_points.MOST)


def control(seeds: int) -> tuple[PlannedRun, ...]:
    asked = {"env": "Hopper", "k": "2", "algo": "ppo_clip", "settings": TINY, "steps": str(64 * 8)}
    return plan(sweep_request(**asked, seeds=str(seeds))).runs


def chain(seeds: int) -> tuple[PlannedRun, ...]:
    settings = "batch=8,horizon=8,evaluations=2"
    return plan(sweep_request(env="bit-chain", k="3", algo="spo", settings=settings, steps="8", seeds=str(seeds))).runs


def words(seeds: int, folder: Path) -> tuple[PlannedRun, ...]:
    pytest.importorskip("transformers", reason=hint("llm"))
    from tiny_model import write_model

    write_model(folder / "tiny")
    settings = (
        f"model={folder / 'tiny'},prompts=2,completions=2,prompt_tokens=64,completion_tokens=6,evaluations=1,"
        "evaluation_problems=2"
    )
    asked = {"env": "word-problems", "k": "2", "algo": "ppo_clip", "settings": settings, "steps": "6"}
    return plan(sweep_request(**asked, seeds=str(seeds))).runs


def soak(folder: Path, runs: tuple[PlannedRun, ...], kills: int, seed: int) -> tuple[Counter[str], int]:
    """Sweep folder after folder until so many workers have died. Returns deaths by point and how often finished runs
    were resumed from a checkpoint."""

    def swept(out: Path, pool: LocalPool) -> set[str]:
        store = Store(out)
        store.open_for_writing()
        outcome = sweep(runs, store, pool, Silent(), EVERY_PHASE)  # type: ignore[arg-type]
        assert sorted([*outcome.done, *outcome.skipped, *outcome.failed]) == sorted(r.run_id for r in runs)
        assert {failure["class"] for failure in outcome.failed.values()} <= {"Killed"}
        return set(outcome.failed)

    assert not swept(folder / "straight", LocalPool(2))
    straight = records(folder / "straight")
    assert len(straight) == len(runs)
    draw, deaths, resumed, round_ = random.Random(seed), Counter[str](), 0, 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "_in_child", kill_points.child)
        while deaths.total() < kills:
            round_ += 1
            out, finished, failed = folder / str(round_), dict[str, str](), {""}
            while failed:
                pool = kill_points.KillingPool(2, draw, kills - deaths.total())
                failed = swept(out, pool)
                deaths += pool.kills
                hashes = files(out)
                assert finished.items() <= hashes.items(), "a finished run has changed"
                finished = hashes
            found = records(out)
            assert found.keys() == straight.keys(), "a run is lost"
            for run_id, (record, metrics) in straight.items():
                assert json.loads(found[run_id][0]) == json.loads(record) and found[run_id][1] == metrics
            assert list((out / "attempts").iterdir()) == [] and not (out / "damaged").exists()
            logs = (path.read_text() for path in out.glob("runs/*/log.txt"))
            resumed += sum(text.count("resumed after phase") for text in logs)
    return deaths, resumed


SOAKS = [("control", 4, 110), ("chain", 6, 150), ("words", 2, 40)]
assert sum(kills for _, _, kills in SOAKS) == 300


@pytest.mark.faults
@pytest.mark.parametrize("task, seeds, kills", SOAKS)
def test_three_hundred_deaths_change_no_run(tmp_path: Path, task: str, seeds: int, kills: int) -> None:
    runs = {"control": control, "chain": chain, "words": lambda n: words(n, tmp_path)}[task](seeds)
    deaths, resumed = soak(tmp_path, runs, kills, seed=kills)
    assert deaths.total() == kills and set(deaths) == POINTS
    assert min(deaths.values()) >= kills // 12 and resumed >= kills // 2
