"""Rows that a simulated pipeline drops or leaves over, on tokens: generated as scheduled, counted, not kept."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from language_fixtures import Specs
from races import digests_and_metrics
from whole_runs import assert_resumes, entries

from staleharness.errors import UserError
from staleharness.language.spec import LanguageSpec
from staleharness.rollout_schedule import NEVER, Schedule
from staleharness.training.loop import simulation_of
from staleharness.training.policy_buffer import PolicyBuffer
from staleharness.training.sample_ledger import ENTRIES, OPTIONAL, UNITS

pytestmark = pytest.mark.usefixtures("grades_by_length")

# stale groups dropped at the queue; the oldest dropped where it is full; groups stopped under way; groups that wait
PIPELINES = {
    "queue[max_lag=1,slots=3.0,row_time=2.0,cv=1.5]": 2,
    "queue[capacity=1.0,full=drop_oldest,slots=3.0,in_flight=true]": 6,
    "prime_rl[max_off_policy_steps=1,slots=3.0,row_time=3.0,cv=1.5]": 2,
    "areal[eta=2]": 4,
}
PHASES = 8


def pipeline_spec(spec: Specs, lag: str, **settings: Any) -> LanguageSpec:
    given = {"prompts": 3, "steps": PHASES, "completion_tokens": 12, "learning_rate": 3e-2}
    return spec(lag=lag, capacity=PIPELINES[lag], **given, **settings)


def run(spec: LanguageSpec) -> tuple[list[str], list[dict[str, Any]], Any]:
    simulation: Any = simulation_of(spec)
    return *digests_and_metrics(simulation), simulation


class AllVersions(PolicyBuffer):
    """Every version that ever was."""

    def __init__(self, simulation: Any) -> None:
        super().__init__(PHASES + 1)
        self.simulation = simulation

    def keep(self) -> None:
        self.push(self.simulation.buffer.newest)


def literal_lengths(simulation: Any, schedule: Schedule, kept: PolicyBuffer) -> np.ndarray:
    """Tokens of each row that was finished, group by group, each made by itself once the run is over."""
    each, limit = simulation.spec.completions, simulation.spec.completion_tokens
    found = np.zeros(len(schedule), np.int64)
    for first in range(0, len(schedule), each):
        if schedule.finished is None or schedule.finished[first] == NEVER:
            continue
        rows = np.arange(first, first + each)
        versions, _ = schedule.along(rows, limit)
        request = simulation.sampler.request(
            [simulation.sampler.problem(int(schedule.group[first]))],
            [(int(schedule.nth[first]), int(schedule.actor[first]))],
            versions,
            1,
            tuple(range(1, limit + 1)),
        )
        decoded = simulation.sampler.decoder.complete(request, kept)
        for row, sampled in zip(rows, decoded.mask.sum(1).long().tolist(), strict=True):
            found[row] = min(sampled, schedule.end[schedule.first[row + 1] - 1])
    return found


@pytest.mark.parametrize("lag", PIPELINES)
@pytest.mark.long
def test_the_ledger_is_that_of_rows_counted_one_by_one(spec: Specs, lag: str) -> None:
    simulation: Any = simulation_of(pipeline_spec(spec, lag, ledger="every_phase"))
    schedule, kept, said = simulation.lags.schedule, AllVersions(simulation), []
    for record in simulation:
        kept.keep()
        said.append(record.metrics)
    lengths = literal_lengths(simulation, schedule, kept)
    fates: set[str] = set()
    lags = [0] * (PHASES + 1)
    for phase, m in enumerate(said):
        wanted = {unit: dict.fromkeys(set(ENTRIES) - set(OPTIONAL), 0) for unit in UNITS}
        for row in range(len(schedule)):
            if not 0 <= schedule.finished[row] <= phase:
                continue
            left = 0 <= schedule.left[row] <= phase
            fate = "queued" if not left else "dropped" if schedule.phase[row] == NEVER else "trained"
            fates.add(fate)
            for entry in ("generated", fate):
                wanted["sequences"][entry] += 1
                wanted["decisions"][entry] += int(lengths[row])
        assert {unit: entries(m, unit) for unit in UNITS} == wanted, phase
    gone = np.flatnonzero((schedule.finished != NEVER) & (schedule.phase == NEVER) & (schedule.left != NEVER))
    for row in gone:
        version, _ = schedule.along(np.array([row]), simulation.spec.completion_tokens)
        for t in range(lengths[row]):
            lags[schedule.left[row] - version[0, t]] += 1
    record = simulation.accounts.record()["lags"]
    dropped = {k: n - record["trained"].get(k, 0) for k, n in record["realised"].items()}
    assert {int(k): n for k, n in dropped.items() if n} == {lag: n for lag, n in enumerate(lags) if n}
    assert fates == ({"trained", "queued"} if lag.startswith("areal") else fates | {"trained", "dropped"})
    assert len(set(lengths[gone])) > 1 or lag.startswith("areal"), "all alike show nothing"


def test_rows_that_are_stopped_are_no_longer_than_they_had_become(spec: Specs) -> None:
    simulation: Any = simulation_of(
        pipeline_spec(spec, "prime_rl[max_off_policy_steps=1,slots=3.0,row_time=3.0,cv=1.5]")
    )
    for _ in simulation:
        pass
    schedule, lengths = simulation.lags.schedule, simulation.generator.lengths
    short = (schedule.lengths < simulation.spec.completion_tokens) & (schedule.finished != NEVER)
    assert short.any() and (lengths[short] <= schedule.lengths[short]).all()
    assert (lengths[short] == schedule.lengths[short]).any(), "none was cut"


@pytest.mark.parametrize("lag", PIPELINES)
@pytest.mark.long
def test_what_is_counted_moves_nothing_that_is_trained(spec: Specs, lag: str) -> None:
    """Nor any number beside the accounts; and at the end the ledger knows what it knows in every phase."""
    found = {way: run(pipeline_spec(spec, lag, ledger=way)) for way in ("final", "every_phase", "trained")}
    assert found["final"][0] == found["every_phase"][0] == found["trained"][0]
    assert len(set(found["final"][0])) == PHASES, "nothing was learnt, so nothing was shown"
    for ways in zip(*(said for _, said, _ in found.values()), strict=True):
        plain = [{k: v for k, v in m.items() if not k.startswith((*UNITS, "lags/realised"))} for m in ways]
        assert plain[0] == plain[1] == plain[2]
        assert entries(ways[0], "sequences") == entries(ways[1], "sequences") == entries(ways[2], "sequences")
    last, exact, least = (said[-1] for _, said, _ in found.values())
    assert [entries(last, unit) for unit in UNITS] == [entries(exact, unit) for unit in UNITS]
    uncounted = entries(exact, "sequences")["dropped"] + entries(exact, "sequences")["queued"]
    assert uncounted and entries(least, "decisions")["dropped"] == entries(least, "decisions")["queued"] == 0
    warned = [w for w in found["trained"][2].warnings if w.startswith("ledger=trained: tokens of the ")]
    assert warned == [
        f"ledger=trained: tokens of the {uncounted} completions that are dropped or left in the queue are not counted"
    ]
    assert not [w for way in ("final", "every_phase") for w in found[way][2].warnings if "ledger" in w]


@pytest.mark.parametrize("way", ["final", "every_phase"])
@pytest.mark.long
def test_a_run_that_goes_on_from_a_checkpoint_has_the_same_ledger(spec: Specs, way: str) -> None:
    lag = "queue[max_lag=1,slots=3.0,row_time=2.0,cv=1.5]"
    assert_resumes(pipeline_spec(spec, lag, ledger=way), 2, 5)


def test_dropped_rows_need_no_larger_buffer(spec: Specs) -> None:
    """The lag of dropped rows counts for the buffer only where their actor goes on, as ever."""
    for lag, capacity in PIPELINES.items():
        schedule = simulation_of(pipeline_spec(spec, lag)).lags.schedule
        assert schedule is not None and schedule.longest_lag < capacity


def test_what_a_ledger_may_be_is_said(spec: Specs) -> None:
    with pytest.raises(UserError, match="ledger"):
        spec(ledger="all")


def test_the_default_ledger_is_no_part_of_the_id(spec: Specs) -> None:
    plain = spec()
    assert json.loads(plain.to_json())["ledger"] == "final"
    ids = [replace(plain, ledger=way).run_id("a", "b") for way in ("final", "every_phase", "trained")]
    assert len(set(ids)) == 3 and ids[0] == plain.run_id("a", "b")
