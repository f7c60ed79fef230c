"""A plugin that draws from a global generator: its run is a function of its spec, interrupted or not."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import digests
import numpy as np
import pytest
import torch
from known_plugins import loaded_plugins
from needs import hint
from sweeping import environment
from tiny_model import write_model

from staleharness.base.streams import seed_global_generators
from staleharness.chain.spec import ChainSpec
from staleharness.training.loop import simulation_of


def _drawn(seed: int, stage: str, *indices: int) -> tuple[float, float, float]:
    seed_global_generators(seed, stage, *indices)
    return random.random(), float(np.random.random()), float(torch.rand(()))  # noqa: NPY002


@pytest.fixture
def restore_generators() -> Iterator[None]:
    """The global generators of the tests' process, afterwards as they were."""
    python, numpy, with_torch = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    yield
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002
    torch.set_rng_state(with_torch)


@pytest.mark.long
def test_a_run_is_a_function_of_its_spec_and_resumes_exactly(tmp_path: Path, restore_generators: None) -> None:
    """Runs of each kind of task that draw from each generator, in two processes that have nothing in common."""
    pytest.importorskip("transformers", reason=hint("llm"))
    write_model(tmp_path)
    words = [sys.executable, digests.__file__, str(tmp_path)]
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        with loaded_plugins(digests.PLUGIN):
            runs = digests.runs(str(tmp_path))
            here = {name: digests.digest_of_run(run) for name, run in runs.items()}
            assert len(set(here.values())) == len(here) == 6, "each generator counts"
            assert {name: digests.digest_of_resumption(run) for name, run in runs.items()} == here
        assert json.loads(process.communicate(timeout=600)[0]) == here


def test_the_generators_are_functions_of_seed_stage_and_phase(restore_generators: None) -> None:
    drawn = _drawn(1, "learn", 3)
    assert drawn == _drawn(1, "learn", 3)
    for other in (_drawn(2, "learn", 3), _drawn(1, "collect", 3), _drawn(1, "learn", 4)):
        assert not set(drawn) & set(other)
    assert len(set(drawn)) == 3


def _begins_with(extra: int, seed: int = 0) -> list[tuple[str, float]]:
    """First draws of a plugin in each stage of a run, where each draws so many numbers more."""
    seen = []
    spec = ChainSpec(env="bit-chain", algorithm="seq_is", horizon=4, batch=8, steps=3, evaluations=3, seed=seed)
    simulation = simulation_of(spec)
    seen.append(("construct", random.random()))

    def drawing(stage: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(*given: Any) -> Any:
            seen.append((stage, random.random()))
            for _ in range(extra):
                random.random()
            return run(*given)

        return drawn

    patched: Any = simulation
    patched.collect = drawing("collect", simulation.collect)
    patched.evaluate = drawing("evaluate", simulation.evaluate)
    patched.learner.train = drawing("learn", simulation.learner.train)
    assert len(list(simulation)) == 3
    return seen


def test_what_is_drawn_in_one_stage_shifts_no_other(restore_generators: None) -> None:
    plain = _begins_with(0)
    assert [stage for stage, _ in plain[:5]] == ["construct", "evaluate", "collect", "learn", "evaluate"]
    assert len({number for _, number in plain}) == len(plain) == 1 + 1 + 3 * 3
    assert _begins_with(5) == plain
    assert not {number for _, number in _begins_with(0, seed=1)} & {number for _, number in plain}
