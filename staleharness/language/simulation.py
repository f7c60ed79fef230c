"""Language in the loop: past versions of a model complete prompts, a round of them per phase."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from ..base.console_log import LOGGER
from ..batch import Completions
from ..objectives import masked_mean
from ..store.stored_run import MODEL
from ..tokens.learner import TokenLearner
from ..tokens.token_metrics import of_mismatch
from ..training.loop import RowSource, Simulation
from ..training.phase_record import PhaseData, PhaseRecord, Scores
from .evaluation import evaluate
from .model.causal_lm_policy import CausalLM
from .model.gpu_memory import explain_oom
from .rollouts import GenerationRound, LanguageProcessRollouts, ScheduledCompletions
from .setup import prepare
from .spec import LanguageSpec
from .task import LanguageTask, resolve_paths


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
        self.policy, self.sampler, self.test = setup.policy, setup.sampler, setup.test
        self.decoder = self.sampler.decoder
        self.extractor, self.stops = self.sampler.extractor, self.sampler.stops
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
        """Return whether a round is one minibatch whose training step needs no other scores than the round itself."""
        spec, method = self.spec, self.algorithm
        alone = spec.minibatches == 1 and not spec.dynamic_sampling and spec.entropy_coef == 0
        alone = alone and self.lags.drawn
        alone = alone and self.policy.routers is None
        return alone and not method.optimal_baseline and "logit_norm" not in method.needs

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
        batch = self.generator.collect(self.buffer, phase)
        data = batch.completions
        metrics: dict[str, Any] = {"dropped_groups": batch.dropped_groups, "dropped_problems": self.dropped_problems}
        metrics |= self.external_lag(phase, data.gradient_step[data.mask.bool()])
        sample = batch.candidates or data
        assert sample.version_logp is not None and sample.version_entropy is not None
        metrics |= of_mismatch(sample.sampler_logp, sample.version_logp, sample.version_entropy, sample.mask)
        if sample.routing_differs is not None:
            metrics["mismatch/routing_differs"] = float(masked_mean(sample.routing_differs, sample.mask))
        return PhaseData(data, data.behaviour_logp, metrics, asdict(batch.seconds), batch.flow)

    def state_dict(self) -> dict[str, Any]:
        """With the sizes that memory allowed where the run began: numbers round otherwise when it is cut otherwise."""
        policy = self.policy
        sizes = [policy.micro_batch, policy.decode_batch, policy.resident.capacity if policy.resident else 0]
        return super().state_dict() | {"batch_sizes": sizes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if "batch_sizes" in state:  # not in checkpoints of earlier versions
            self.policy.micro_batch, self.policy.decode_batch, resident = state["batch_sizes"]
            self.policy.keep_resident(resident)

    def artifacts(self) -> dict[str, bytes]:
        return self.generator.artifacts()

    def save(self, folder: Path) -> None:
        if self.spec.keep == "last":
            shutil.rmtree(folder / MODEL, ignore_errors=True)  # of a process that was killed here
            self.policy.save(folder / MODEL)

    def close(self) -> None:
        self.generator.close()

    def evaluate(self) -> Scores:
        return evaluate(self.spec, self.decoder, self.test, self.extractor, self.stops, self.phase)
