"""Language in the loop: past versions of a model complete prompts, a round of them per phase."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import ClassVar, Literal

from ..base.notes import NOTES
from ..batch import Completions
from ..errors import UserError
from ..simulator.loop import Collected, Simulation
from ..simulator.phase import PhaseRecord, Scores
from ..tokens.learner import TokenLearner
from .answers import find_extractor
from .decoder import make_decoder
from .evaluation import evaluate
from .generation import Generator
from .model.causal_lm import CausalLM
from .model.memory import explained, settle
from .model.teaching import taught
from .problem import Problem
from .prompt_set import prompt_set
from .prompts import find_prompt
from .spec import LanguageSpec
from .task import LanguageTask, located

SPLITS: tuple[Literal["train"], Literal["test"]] = ("train", "test")


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
        source, remarks = task.weights(found, NOTES.info)
        self.warnings += remarks
        self.policy = CausalLM(source, spec)
        settle(self.policy)
        form = find_prompt(spec.prompt_format or task.prompt_format)
        self.extractor = spec.extractor or form.extractor
        find_extractor(self.extractor)
        self.stops = form.stops
        problems = {split: _easy(task.problems(found, split), spec, split) for split in SPLITS}
        shots = problems["train"][: form.shots]
        train, self.test = (prompt_set(problems[s], form, shots, self.policy, spec, s) for s in SPLITS)
        self.dropped_problems = train.dropped + self.test.dropped  # prompts that are too long
        if self.dropped_problems:
            NOTES.warning(
                "left out %d train and %d test problems: prompts too long", train.dropped, self.test.dropped
            )
        if spec.warm_start:
            self.policy = CausalLM(str(taught(source, spec.model_digest, train, spec, NOTES.info)), spec)
            settle(self.policy)
        self.policy.scores_ahead = self._scores_ahead()
        self.learner = TokenLearner(spec, self.policy, self.algorithm)
        self.decoder = make_decoder(spec.decoder, self.policy)
        self.generator = Generator(spec, self.decoder, self.lags, train, self.extractor, self.stops)

    def _scores_ahead(self) -> bool:
        """Whether a round is one minibatch, which is asked for nothing but what scoring it says."""
        spec, method = self.spec, self.algorithm
        alone = spec.minibatches == 1 and not spec.dynamic_sampling and spec.entropy_coef == 0
        return alone and not method.optimal_baseline and "logit_norm" not in method.needs

    def advance(self) -> PhaseRecord:
        """Run one generation round and train on it. Raises `OOM` where the GPU's memory is too small for that."""
        with explained(self.policy):
            return super().advance()

    def collect(self, phase: int) -> Collected[Completions]:
        made = self.generator.round(self.buffer, phase)
        said = {"dropped_groups": made.dropped_groups, "dropped_problems": self.dropped_problems}
        return Collected(
            made.completions, made.completions.behaviour_logp, said, asdict(made.seconds), made.flow
        )

    def evaluate(self) -> Scores:
        return evaluate(self.spec, self.decoder, self.test, self.extractor, self.stops, self.phase)


def _easy(problems: list[Problem], spec: LanguageSpec, split: str) -> list[Problem]:
    """Those that take at most `most_steps` steps. Raises `UserError` where none is left."""
    kept = [problem for problem in problems if not spec.most_steps or problem.steps <= spec.most_steps]
    if not kept:
        raise UserError(f"no {split} problem is solved in most_steps={spec.most_steps}; raise it")
    return kept
