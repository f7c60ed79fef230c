"""Language in the loop: past versions of a model complete prompts, a round of them per phase; and their evaluation.

An evaluation is the accuracy on the test problems, graded as in training, of one greedy completion each and of sampled
ones. `greedy_answers` shows completions by the model that a finished run has kept.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from ..base.console_log import LOGGER
from ..base.streams import stream
from ..batch import Completions
from ..objectives import masked_mean
from ..store.stored_run import MODEL
from ..tokens.learner import TokenLearner
from ..tokens.token_metrics import mismatch_metrics
from ..training.loop import RowSource, Simulation
from ..training.phase_record import PhaseData, PhaseRecord, Scores
from ..training.policy_buffer import PolicyBuffer
from .completion_sources import GenerationRound, LanguageProcessRollouts, ScheduledCompletions
from .model.causal_lm_policy import CausalLM
from .model.gpu_memory import explain_oom
from .setup import prepare
from .spec import LanguageSpec
from .task import LanguageTask, changes_within_rows, resolve_paths, with_usual_columns

KEPT_CACHE = (
    "kv_cache=keep: after a change of weights, tokens are sampled from the keys and values of several versions, a "
    "third source of off-policy data beside lag and engine; the columns mismatch/* measure it together with the engine"
)
SEED = 20_240_603  # of evaluations, the same for every run: all policies are sampled with the same noise


class LanguageSimulation(Simulation[Completions]):
    """A run on prompts with verifiable answers; a phase is a generation round."""

    spec: LanguageSpec
    task: LanguageTask
    policy: CausalLM
    stateful: ClassVar[tuple[str, ...]] = ("generator",)
    counts: ClassVar[tuple[str, ...]] = ("unparsed", "truncated", "complete_right")

    def __init__(self, spec: LanguageSpec, task: LanguageTask, folder: Path = Path()) -> None:
        super().__init__(spec, task)
        local_spec = resolve_paths(spec, folder)
        setup = prepare(local_spec, task)
        self.warnings += setup.warnings
        if spec.kv_cache == "keep" and changes_within_rows(spec):
            self.warnings.append(KEPT_CACHE)
        self.policy, self.sampler, self.test = setup.policy, setup.sampler, setup.test
        train = self.sampler.prompts
        self.dropped_problems = train.dropped + self.test.dropped  # prompts that are too long
        if self.dropped_problems:
            LOGGER.warning("left out %d train and %d test problems: prompts too long", train.dropped, self.test.dropped)
        self.policy.caches_score = self._caches_score()
        self.learner = TokenLearner(spec, self.policy, self.algorithm)
        self.generator: RowSource[GenerationRound]
        if self.lags.model.real:
            self.generator = LanguageProcessRollouts(local_spec, self.task, self.lags, self.policy.pad)
        else:
            self.generator = ScheduledCompletions(self.sampler, self.lags)
            self.warnings += self.generator.warnings

    def _caches_score(self) -> bool:
        """Return whether a round is one minibatch whose training step needs no scores other than the round's own."""
        spec, method = self.spec, self.algorithm
        is_one_minibatch = spec.minibatches == 1 and not spec.dynamic_sampling and self.lags.drawn
        needs_entropy_or_routes = spec.entropy_coef != 0 or self.policy.routers is not None
        needs_norms = method.optimal_baseline or "logit_norm" in method.needs
        return is_one_minibatch and not needs_entropy_or_routes and not needs_norms

    @property
    def eval_modes(self) -> Sequence[str]:
        return ("sampled", "deterministic") if self.spec.evaluation_samples else ("deterministic",)

    @property
    def test_size(self) -> int:
        return len(self.test.problems)

    def advance(self) -> PhaseRecord:
        """Run one generation round and train on it. Raises `OOM` where the GPU's memory is too small for that."""
        with explain_oom(self.policy):
            return super().advance()

    def collect(self, phase: int) -> PhaseData[Completions]:
        self.sampler.start_timer()
        batch = self.generator.collect(self.buffer, phase)
        data = batch.completions
        metrics: dict[str, Any] = {"dropped_groups": batch.dropped_groups, "dropped_problems": self.dropped_problems}
        metrics |= self.external_lag(phase, data.gradient_step[data.mask.bool()])
        sample = batch.candidates or data
        assert sample.version_logp is not None and sample.version_entropy is not None
        metrics |= mismatch_metrics(sample.sampler_logp, sample.version_logp, sample.version_entropy, sample.mask)
        if sample.routing_differs is not None:
            metrics["mismatch/routing_differs"] = float(masked_mean(sample.routing_differs, sample.mask))
        return PhaseData(data, data.behaviour_logp, metrics, self.sampler.timer.seconds, batch.flow)

    def state_dict(self) -> dict[str, Any]:
        """Return the state with the batch sizes that memory allowed at the start: other sizes round differently."""
        policy = self.policy
        sizes = [policy.micro_batch, policy.decode_batch, policy.resident.capacity if policy.resident else 0]
        return super().state_dict() | {"batch_sizes": sizes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if "batch_sizes" in state:  # not in checkpoints of earlier versions
            self.policy.micro_batch, self.policy.decode_batch, resident = state["batch_sizes"]
            self.policy.keep_resident(resident)
        if isinstance(self.generator, ScheduledCompletions) and self.phase > 0:
            self.generator.plan(self.buffer, self.phase - 1)  # for the record, where only the last scores are left

    def artifacts(self) -> dict[str, bytes]:
        return self.generator.artifacts()

    def save(self, folder: Path) -> None:
        if self.spec.keep == "last":
            shutil.rmtree(folder / MODEL, ignore_errors=True)  # left by a process that was killed here
            self.policy.save(folder / MODEL)

    def close(self) -> None:
        self.generator.close()

    def evaluate(self) -> Scores:
        """Return the learner's scores: `deterministic`, 1 or 0 for each problem's greedy completion; with
        `evaluation_samples`, `sampled`, the share of each problem's samples that is right. Counts greedy completions
        that are unparsed, truncated, or right and not truncated."""
        spec, count = self.spec, len(self.test.problems)
        rows = np.arange(min(spec.evaluation_problems or count, count))
        buffer = PolicyBuffer(1)
        buffer.push(self.policy.snapshot(self.phase, 0))
        greedy = self.sampler.complete(self.test, rows, None, buffer)
        returns = {"deterministic": [float(c.grade.correct) for c in greedy]}
        lengths = {"deterministic": [c.length for c in greedy]}
        counts = {
            "unparsed": sum(not c.grade.has_answer for c in greedy),
            "truncated": sum(not c.ended for c in greedy),
            "complete_right": sum(c.grade.correct and c.ended for c in greedy),
        }
        if samples := spec.evaluation_samples:
            streams = (stream(SEED, "evaluation", problem, i) for problem in rows.tolist() for i in range(samples))
            noise = torch.from_numpy(np.stack([rng.random(spec.completion_tokens, np.float32) for rng in streams]))
            draws = self.sampler.complete(self.test, rows.repeat(samples), noise, buffer)
            shares = np.reshape([c.grade.correct for c in draws], (-1, samples)).mean(1).tolist()
            returns = {"sampled": shares, **returns}
            lengths = {"sampled": [c.length for c in draws], **lengths}
        return Scores(returns, lengths, sum(map(sum, lengths.values())), counts)


class Answer(NamedTuple):
    """Greedy completion of a test problem."""

    question: str
    gold: str
    completion: str
    correct: bool


def greedy_answers(spec: LanguageSpec, task: LanguageTask, model: Path, count: int) -> list[Answer]:
    """Return the answers of the first `count` test problems of a run by the model in a folder, on a GPU where the run
    was on one and there is one here. Raises `UserError`."""
    device = "cuda" if spec.device != "cpu" and torch.cuda.is_available() else "cpu"
    changes: Mapping[str, Any] = {"model": str(model), "start": "", "warm_start": 0, "versions": "full", "capacity": 1}
    setup = prepare(with_usual_columns(replace(spec, device=device, **changes)), task)
    buffer = PolicyBuffer(1)
    buffer.push(setup.policy.snapshot(0, 0))
    problems = setup.test.problems[:count]
    completions = setup.sampler.complete(setup.test, np.arange(len(problems)), None, buffer)
    return [Answer(p.question, p.answer, c.text, c.grade.correct) for p, c in zip(problems, completions, strict=True)]
