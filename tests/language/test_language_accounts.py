"""Every token of a run on prompts is accounted for: groups that are turned away, and completions that teach nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from language_fixtures import Specs
from whole_runs import entries

from staleharness.training.loop import simulation_of

pytestmark = pytest.mark.usefixtures("grades_by_length")

NONE = dict.fromkeys(("dropped", "masked", "queued", "reused"), 0)


def watch_draws(simulation: Any) -> list[Any]:
    """Every part of a round as it is drawn, before anything is turned away."""
    made: list[Any] = []
    draw = simulation.generator._complete

    def draw_and_note(*arguments: Any) -> Any:
        made.append(draw(*arguments))
        return made[-1]

    simulation.generator._complete = draw_and_note
    return made


def test_groups_without_signal_are_dropped_with_all_tokens(spec: Specs) -> None:
    asked = spec(dynamic_sampling=True, prompts=6, completions=3, steps=3, capacity=2, lag="uniform")
    simulation: Any = simulation_of(asked)
    made, groups = watch_draws(simulation), 0
    for phase, record in enumerate(simulation, start=1):
        m = record.metrics
        groups += m["dropped_groups"]
        rows, tokens = sum(len(part.token) for part in made), sum(int(part.mask.sum()) for part in made)
        kept = phase * 6 * 3
        assert entries(m, "sequences") == {**NONE, "generated": rows, "trained": kept, "dropped": groups * 3}
        assert m["decisions/generated"] == tokens == m["decisions/trained"] + m["decisions/dropped"]
    assert groups > 0
    lags = simulation.accounts.record()["lags"]
    assert sum(lags["realised"].values()) == tokens and sum(lags["trained"].values()) == m["decisions/trained"]
    assert sum(lags["assigned"].values()) == rows / 3  # the model is asked for a version of each group


def test_truncated_completions_count_as_masked(spec: Specs) -> None:
    asked = spec(mask_truncated=True, prompts=4, completions=4, completion_tokens=6, steps=3)
    simulation: Any = simulation_of(asked)
    made = watch_draws(simulation)
    for record in simulation:
        m = record.metrics
        cut = sum(int(part.truncated.sum()) for part in made)
        rows, tokens = sum(len(part.token) for part in made), sum(int(part.mask.sum()) for part in made)
        assert entries(m, "sequences") == {**NONE, "generated": rows, "trained": rows - cut, "masked": cut}
        assert entries(m, "decisions") == {**NONE, "generated": tokens, "trained": tokens - 6 * cut, "masked": 6 * cut}
    assert 0 < cut < rows


def test_a_round_of_which_everything_is_cut_trains_on_nothing(spec: Specs) -> None:
    simulation: Any = simulation_of(spec(mask_truncated=True, steps=2, capacity=2))
    draw = simulation.generator._complete

    def cut(*arguments: Any) -> Any:
        made = draw(*arguments)
        return replace(made, truncated=torch.ones_like(made.truncated))

    simulation.generator._complete = cut
    for record in simulation:
        m = record.metrics
        assert m["decisions/trained"] == 0 and m["decisions/masked"] == m["decisions/generated"] > 0
        assert "lags/trained" not in m and m["lags/at_cap"] == 0.0
        assert m["lags/realised"] == pytest.approx(m["lag_mean"])


def test_prompts_that_are_too_long_make_nothing(spec: Specs) -> None:
    long = spec(long_prompts="drop", prompt_tokens=16, steps=2)
    simulation: Any = simulation_of(long)
    m = [record.metrics for record in simulation][-1]
    assert m["dropped_problems"] > 0
    assert entries(m, "sequences") == {**NONE, "generated": 24, "trained": 24}


def test_versions_that_change_within_a_row_are_in_flight(spec: Specs) -> None:
    simulation: Any = simulation_of(spec(lag="inflight:2", capacity=3, steps=5, completions=2))
    made = watch_draws(simulation)
    for phase, record in enumerate(simulation):
        part, m = made[phase], record.metrics
        lag, valid = phase - part.version.numpy(), part.mask.numpy() > 0
        ends = [row[tokens][[0, -1]] for row, tokens in zip(lag, valid, strict=True)]
        first, last = np.array(ends, dtype=float).mean(0)
        assert m["lags/start"] == m["lags/oldest"] == pytest.approx(first)
        assert m["lags/newest"] == m["lags/in_queue"] == pytest.approx(last)
        assert m["lags/in_flight"] == pytest.approx(first - last)
        assert m["lags/trained"] == pytest.approx(m["lag_mean"], rel=1e-6)
    assert first > last
