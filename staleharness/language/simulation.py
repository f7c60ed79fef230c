"""Language in the loop: past versions of a model complete prompts, a round of them per phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

from ..asynchronous.process_rollouts import ActorSettings
from ..base.logger import LOGGER
from ..batch import Completions
from ..simulator.lag_stats import external_lag_metrics
from ..simulator.loop import Simulation
from ..simulator.phase_record import PhaseData, PhaseRecord, Scores
from ..simulator.policy_buffer import PolicyBuffer
from ..tokens.learner import TokenLearner
from .evaluation import evaluate
from .generation import Generator, Round
from .model.causal_lm import CausalLM
from .model.gpu_memory import explain_oom
from .paced import Paced
from .planned import Planned
from .processes import LanguageProcessRollouts
from .setup import prepare
from .spec import LanguageSpec
from .task import LanguageTask, located


class Source(Protocol):
    """Where rounds come from."""

    def round(self, buffer: PolicyBuffer, phase: int) -> Round: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class LanguageSimulation(Simulation[Completions]):
    """A run on prompts with verifiable answers; a phase is a generation round."""

    spec: LanguageSpec
    task: LanguageTask
    policy: CausalLM
    stateful: ClassVar[tuple[str, ...]] = ("generator",)
    counts: ClassVar[tuple[str, ...]] = ("unparsed", "truncated")

    def __init__(self, spec: LanguageSpec, task: LanguageTask, folder: Path = Path()) -> None:
        super().__init__(spec, task)
        found = located(spec, folder)
        setup = prepare(found, task)
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
        self.generator = self._generator(found)

    def _generator(self, found: LanguageSpec) -> Source:
        """What makes the rounds: it draws versions, or follows a schedule, or hears processes."""
        if self.lags.schedule is not None:
            planned = Planned(self.sampler, self.lags.schedule)
            self.warnings += planned.remarks
            return planned
        if self.lags.model.online:
            return Paced(self.sampler, self.lags)
        if self.lags.model.real:
            pace = cast(ActorSettings, self.lags.model)
            return LanguageProcessRollouts(found, pace, self.task.preload, self.policy.pad)
        return Generator(self.sampler, self.lags)

    def _caches_score(self) -> bool:
        """Return whether a round is one minibatch whose training step needs no other scores than the round itself."""
        spec, method = self.spec, self.algorithm
        alone = spec.minibatches == 1 and not spec.dynamic_sampling and spec.entropy_coef == 0
        alone = alone and self.lags.model.drawn
        return alone and not method.optimal_baseline and "logit_norm" not in method.needs

    @property
    def eval_modes(self) -> Sequence[str]:
        return ("sampled", "deterministic") if self.spec.evaluation_samples else ("deterministic",)

    def advance(self) -> PhaseRecord:
        """Run one generation round and train on it. Raises `OOM` where the GPU's memory is too small for that."""
        with explain_oom(self.policy):
            return super().advance()

    def collect(self, phase: int) -> PhaseData[Completions]:
        made = self.generator.round(self.buffer, phase)
        said: dict[str, Any] = {"dropped_groups": made.dropped_groups, "dropped_problems": self.dropped_problems}
        data = made.completions
        if not self.lags.model.drawn:
            steps, updates = data.gradient_step[data.mask.bool()], self.spec.epochs * self.spec.minibatches
            said |= external_lag_metrics(steps, self.gradient_steps, updates)
        return PhaseData(data, data.behaviour_logp, said, asdict(made.seconds), made.flow)

    def artifacts(self) -> dict[str, bytes]:
        return self.generator.artifacts() if isinstance(self.generator, LanguageProcessRollouts) else {}

    def close(self) -> None:
        if isinstance(self.generator, LanguageProcessRollouts):
            self.generator.close()

    def evaluate(self) -> Scores:
        return evaluate(self.spec, self.decoder, self.test, self.extractor, self.stops, self.phase)
