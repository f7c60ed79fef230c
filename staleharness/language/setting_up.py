"""What whoever completes prompts needs: the learner's process, and that of an actor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..base.notes import NOTES
from ..base.stopping import check
from ..errors import UserError
from .answers import find_extractor
from .decoder import make_decoder
from .generation import Sampler
from .model.causal_lm import CausalLM
from .model.memory import settle
from .model.teaching import taught
from .problem import Problem
from .prompt_set import PromptSet, prompt_set
from .prompts import find_prompt
from .spec import LanguageSpec
from .task import LanguageTask

SPLITS: tuple[Literal["train"], Literal["test"]] = ("train", "test")


@dataclass(frozen=True)
class Ready:
    """A model, the problems as prompts for it, and what samples and grades."""

    policy: CausalLM
    sampler: Sampler  # of the training problems
    test: PromptSet
    remarks: list[str]  # what readers of the results must know


def told(text: str) -> None:
    """A note of how far the setting up has come, which is where it can be stopped."""
    NOTES.info(text)
    check(text)


def set_up(spec: LanguageSpec, task: LanguageTask) -> Ready:
    """Of a spec whose paths are those of this machine (`task.located`)."""
    source, remarks = task.weights(spec, told)
    policy = CausalLM(source, spec)
    settle(policy)
    form = find_prompt(spec.prompt_format or task.prompt_format)
    extractor = spec.extractor or form.extractor
    find_extractor(extractor)
    problems = {split: _easy(task.problems(spec, split), spec, split) for split in SPLITS}
    shots = problems["train"][: form.shots]
    train, test = (prompt_set(problems[s], form, shots, policy, spec, s) for s in SPLITS)
    if spec.warm_start:
        policy = CausalLM(str(taught(source, spec.model_digest, train, spec, told)), spec)
        settle(policy)
    sampler = Sampler(spec, make_decoder(spec.decoder, policy), train, extractor, form.stops)
    return Ready(policy, sampler, test, remarks)


def _easy(problems: list[Problem], spec: LanguageSpec, split: str) -> list[Problem]:
    """Those that take at most `most_steps` steps. Raises `UserError` where none is left."""
    kept = [problem for problem in problems if not spec.most_steps or problem.steps <= spec.most_steps]
    if not kept:
        raise UserError(f"no {split} problem is solved in most_steps={spec.most_steps}; raise it")
    return kept
