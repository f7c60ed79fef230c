"""The loop on tokens: store the newest version, generate with past ones, train. One record per generation round."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch

from ..algorithm import check, make_algorithm
from ..errors import Diverged
from ..lag import parse_lag
from ..simulator.buffer import PolicyBuffer
from ..simulator.methods import describe, warnings_of
from ..simulator.phase import PhaseRecord, Scores
from ..task import find_env
from ..tokens.learner import TokenLearner
from .answers import find_extractor
from .decoder import make_decoder
from .evaluation import evaluate
from .generation import Generator
from .model.causal_lm import CausalLM
from .model.memory import explained, rows_at_once
from .prompt_set import prompt_set
from .prompts import find_prompt
from .spec import LanguageSpec
from .task import LanguageTask, located

SPLITS: tuple[Literal["train"], Literal["test"]] = ("train", "test")


class LanguageSimulation:
    """One run, phase by phase. Iterating yields a `PhaseRecord` per generation round until the budget is spent."""

    def __init__(self, spec: LanguageSpec, folder: Path = Path()) -> None:
        _, family = find_env(spec.env)
        task = family()
        assert isinstance(task, LanguageTask)
        self.spec = spec
        found = located(spec, folder)
        self.policy = CausalLM(task.model(found, lambda line: print(line, flush=True)), spec)
        self.policy.micro_batch = rows_at_once(self.policy)
        algorithm = make_algorithm(spec)
        check(algorithm, spec, task.provides)
        form = find_prompt(spec.prompt_format or task.prompt_format)
        self.extractor = spec.extractor or form.extractor
        find_extractor(self.extractor)
        self.stops = form.stops
        problems = {split: task.problems(found, split) for split in SPLITS}
        shots = problems["train"][: form.shots]
        train, self.test = (prompt_set(problems[s], form, shots, self.policy, spec, s) for s in SPLITS)
        self.dropped_problems = train.dropped + self.test.dropped  # prompts that are too long
        if self.dropped_problems:
            print(
                f"left out {train.dropped} train and {self.test.dropped} test problems: prompts too long",
                flush=True,
            )
        self.learner = TokenLearner(spec, self.policy, algorithm)
        self.buffer = PolicyBuffer(spec.capacity)
        self.decoder = make_decoder(spec.decoder, self.policy)
        self.generator = Generator(
            spec, self.decoder, parse_lag(spec.lag, spec.capacity), train, self.extractor, self.stops
        )
        self.phase = 0
        self.evaluation_steps = 0
        self.method, self.warnings = describe(algorithm, spec), warnings_of(algorithm, spec)

    @property
    def gradient_steps(self) -> int:
        return self.learner.gradient_steps

    def __iter__(self) -> Iterator[PhaseRecord]:
        while self.phase < self.spec.phases:
            yield self.advance()

    def advance(self) -> PhaseRecord:
        """Run one generation round and train on it. Raises `OOM` where the GPU's memory is too small for that."""
        with explained(self.policy):
            return self._advance()

    def _advance(self) -> PhaseRecord:
        spec, phase = self.spec, self.phase
        clock = time.perf_counter()
        self.buffer.push(self.policy.snapshot(phase, self.learner.gradient_steps))
        made = self.generator.round(self.buffer, phase)
        if not bool(torch.isfinite(made.completions.behaviour_logp).all()):
            raise Diverged(f"a behaviour log-probability is not finite in phase {phase}")
        collected = time.perf_counter()
        metrics, learning = self.learner.train(made.completions, phase)
        self.phase += 1
        trained = time.perf_counter()
        scores = self._evaluate() if phase in spec.evaluation_phases() else None
        metrics |= {
            "phase": phase,
            "steps": self.phase * spec.steps_per_phase,
            "dropped_groups": made.dropped_groups,
            "dropped_problems": self.dropped_problems,
            "eval_deterministic": scores.mean("deterministic") if scores else None,
            "eval_unparsed": scores.counts["unparsed"] if scores else None,
            "eval_truncated": scores.counts["truncated"] if scores else None,
        }
        seconds = {
            "collect": collected - clock,
            "learn": trained - collected,
            "evaluate": time.perf_counter() - trained,
            **asdict(made.seconds),
            **learning,
        }
        return PhaseRecord(metrics, seconds, scores)

    def _evaluate(self) -> Scores:
        scores = evaluate(self.spec, self.decoder, self.test, self.extractor, self.stops, self.phase)
        self.evaluation_steps += scores.steps
        return scores

    def close(self) -> None:
        """Nothing is held outside memory."""

    def state_dict(self) -> dict[str, Any]:
        return {
            "phase": self.phase,
            "evaluation_steps": self.evaluation_steps,
            "learner": self.learner.state_dict(),
            "buffer": self.buffer.state_dict(),
            "generator": self.generator.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.phase, self.evaluation_steps = state["phase"], state["evaluation_steps"]
        for name in ("learner", "buffer", "generator"):
            getattr(self, name).load_state_dict(state[name])
