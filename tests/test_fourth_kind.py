"""A kind of task that the harness does not know is one file: it is listed, planned, swept, resumed, reported, exported
and packed through the same doors as the others, and nothing else is written for it.
"""

from __future__ import annotations

import contextlib
import csv
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from known_plugins import TABULAR, loaded_plugins, tabular  # noqa: F401
from sweeping import Silent, message, staleharness, without_report

from staleharness.errors import UserError
from staleharness.running.plan import PlannedRun, plan
from staleharness.running.runners.local import LocalPool
from staleharness.running.sweep_event_loop import Outcome, sweep
from staleharness.store.store import Store
from staleharness.study import sweep_request
from staleharness.task import find_env
from staleharness.training.loop import simulation_of

STEPS = 640  # five phases
ASKED = f"--env random-mdp-0 --k 4 --n 1,4 --algo spo --seeds 2 --steps {STEPS}".split()


@dataclass(frozen=True)
class Session:
    """A user's session with the plugin file and one results folder."""

    out: Path
    plugin: Path

    def call(self, *arguments: str) -> CompletedProcess[str]:
        """The command line in this process; it must end well."""
        done = staleharness(*arguments)
        assert done.returncode == 0, done.stderr
        return done

    def sweep(self, *arguments: str, report: bool = False) -> dict[str, Any]:
        places = ["--out", str(self.out), "--plugin", str(self.plugin)]
        with contextlib.nullcontext() if report else without_report():
            return message(self.call("sweep", *ASKED, *places, "--json", *arguments))


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """After a sweep: two methods of forward lag, two seeds."""
    with loaded_plugins():
        made = Session(tmp_path_factory.mktemp("fourth") / "out", TABULAR)
        made.sweep()
        yield made


@pytest.mark.long
def test_it_is_listed(session: Session) -> None:
    listed = message(session.call("list", "--plugin", str(session.plugin), "--json"))
    (found,) = [env for env in listed["envs"] if env["name"] == "random-mdp-0"]
    assert (found["family"], found["file"]) == ("tabular", str(session.plugin))


@pytest.mark.long
def test_its_axis_is_planned_and_what_is_stored_is_not_run_again(session: Session) -> None:
    cells = session.sweep("--dry")["plan"]
    assert [(cell["label"], cell["spec"]["epochs"], cell["spec"]["seed"]) for cell in cells] == [
        ("spo N=1", 1, 0),
        ("spo N=4", 4, 0),
        ("spo N=1", 1, 1),
        ("spo N=4", 4, 1),
    ]
    assert all(cell["done"] for cell in cells)
    runs = session.sweep()["runs"]
    assert (len(runs["skipped"]), runs["done"], runs["failed"]) == (4, [], [])


def test_its_records_say_what_it_is(session: Session) -> None:
    for run in Store(session.out).read_all():
        assert run.record["task"]["kind"] == "tabular"
        assert run.record["steps"] == STEPS == sum(run.record["lag_histogram"].values())
        assert run.record["gradient_steps"] == 5 * run.spec["epochs"]
        assert set(run.record["scores"]) == {"sampled", "deterministic"}


@pytest.mark.long
def test_its_table_and_page_are_in_its_own_words(session: Session) -> None:
    content = session.sweep(report=True)
    assert [(row["algorithm"], row["n_runs"]) for row in content["table"]] == [("spo N=1", 2), ("spo N=4", 2)]
    settings = content["settings"]
    assert (settings["measure"], settings["normalise"], settings["unit"]) == ("exact value", "raw", "transitions")
    assert not [note for note in content["notes"] if "different" in note]  # N is an axis, and in every label
    page = Path(content["report"])
    text = page.read_text()
    assert "exact value" in text and "transitions" in text and text.count("<svg") > 4
    with open(page.with_name("curves.csv")) as file:
        ends = [row for row in csv.DictReader(file) if int(row["steps"]) == STEPS]
    assert len(ends) == 4 * 2  # each run has both scores at the end
    assert (page.parent / "lag_histogram.png").is_file()


def test_it_is_exported_and_packed(session: Session, tmp_path: Path) -> None:
    session.call("export", "csv", "--out", str(session.out), "--to", str(tmp_path / "csv"))
    with open(tmp_path / "csv" / "metrics.csv") as file:
        names = {row["metric"] for row in csv.DictReader(file)}
    assert {"tv_data", "eval_sampled", "lag_histogram/3", "seconds/collect"} <= names
    session.call("pack", str(session.out), str(tmp_path / "bundle"))
    packed, stored = Store(tmp_path / "bundle").read_all(), Store(session.out).read_all()
    assert [run.record for run in packed] == [run.record for run in stored]
    assert all(a.metrics().equals(b.metrics()) for a, b in zip(packed, stored, strict=True))


class Interrupting(Silent):
    """Presses Ctrl-C as soon as a run has started."""

    def on_start(self, run: PlannedRun) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def swept(root: Path, runs: tuple[PlannedRun, ...], listener: Silent) -> tuple[Outcome, Store]:
    store = Store(root)
    store.open_for_writing()
    return sweep(runs, store, LocalPool(1), listener), store


@pytest.mark.usefixtures("tabular")
@pytest.mark.long
def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    runs = plan(sweep_request(env="random-mdp-1", k="8", algo="vaco", seeds="1", steps=str(128 * 40))).runs
    (run_id,) = [run.run_id for run in runs]
    outcome, stopped = swept(tmp_path / "stopped", runs, Interrupting())
    assert outcome == Outcome(interrupted=True) and list(stopped.attempt_dir(run_id).glob("checkpoint-*"))
    outcome, stopped = swept(tmp_path / "stopped", runs, Silent())
    assert outcome == Outcome(done=[run_id])
    _, straight = swept(tmp_path / "straight", runs, Silent())
    assert "resumed after phase" in (stopped.run_dir(run_id) / "log.txt").read_text()
    (ours,), (theirs,) = stopped.read_all(), straight.read_all()
    assert ours.record["metrics_sha256"] == theirs.record["metrics_sha256"]
    assert ours.record["scores"] == theirs.record["scores"]


@pytest.mark.usefixtures("tabular")
def test_its_scores_are_exact_and_grow_with_training() -> None:
    (planned,) = plan(sweep_request(env="random-mdp-0", k="1", algo="ppo_clip", seeds="1", steps="6400")).runs
    simulation: Any = simulation_of(planned.spec)
    first, *_, last = [record.scores for record in simulation if record.scores is not None]
    assert last.mean("sampled") > first.mean("sampled") + 0.05

    world, discount = simulation.world, planned.spec.discount
    logits = simulation.policy.logits.detach().numpy()
    policy = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    value = best = np.zeros(len(logits))
    for _ in range(400):  # Bellman's equations, step by step
        value = (policy * (world.reward + discount * world.transition @ value)).sum(1)
        best = (world.reward + discount * world.transition @ best).max(1)
    assert last.mean("sampled") == pytest.approx((1 - discount) * value.mean(), abs=1e-9)
    assert last.mean("sampled") < (1 - discount) * best.mean() + 1e-9


@pytest.mark.usefixtures("tabular")
def test_what_it_cannot_run_is_said_before_anything_is_written() -> None:
    with pytest.raises(UserError, match=r"tba needs groups of completions .* which random-mdp-0 does not have"):
        plan(sweep_request(env="random-mdp-0", algo="tba", seeds="1"))
    with pytest.raises(UserError, match=r"changes weights inside a row; random-mdp-0 cannot"):
        plan(sweep_request(env="random-mdp-0", algo="ppo_clip", lag="inflight:4", seeds="1"))
    with pytest.raises(UserError, match=r"^STEPS=10 is less than one phase of random-mdp-0, 128 transitions$"):
        plan(sweep_request(env="random-mdp-0", algo="spo", seeds="1", steps="10"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(find_env("random-mdp-0")[1].settings, "steps_per_phase", 0)
        with pytest.raises(UserError, match=r"^random-mdp-0: steps_per_phase is 0; give a whole number of transitions"):
            plan(sweep_request(env="random-mdp-0", algo="spo", seeds="1"))
    with pytest.raises(UserError, match="states=0 must be positive"):
        plan(sweep_request(env="random-mdp-0", algo="ppo_clip", settings="states=0", seeds="1"))
