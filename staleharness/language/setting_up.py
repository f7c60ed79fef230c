"""What whoever completes prompts needs: the learner's process, and that of an actor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..base.cancellation import report
from ..base.logger import LOGGER
from ..base.machine import memory
from ..errors import UserError
from .answers import find_extractor
from .decoder import make_decoder
from .generation import Sampler
from .model.causal_lm import CausalLM
from .model.checkpoint_files import check_memory
from .model.memory import settle
from .prompt_set import PromptSet, prompt_set
from .prompts import find_prompt
from .selection import Split, lessons_of, selected
from .spec import LanguageSpec
from .supervised import taught
from .task import LanguageTask

SPLITS: tuple[Split, Split] = ("train", "test")


@dataclass(frozen=True)
class Ready:
    """A model, the problems as prompts for it, and what samples and grades."""

    policy: CausalLM
    sampler: Sampler  # of the training problems
    test: PromptSet
    remarks: list[str]  # what readers of the results must know


def told(text: str) -> None:
    """A note of how far the setting up has come, which is where it can be stopped."""
    LOGGER.info(text)
    report(text)


def set_up(spec: LanguageSpec, task: LanguageTask) -> Ready:
    """Of a spec whose paths are those of this machine (`task.located`)."""
    source, remarks = task.weights(spec, told)
    policy = CausalLM(source, spec)
    check_memory(spec, policy.size, memory())
    settle(policy)
    form = find_prompt(spec.prompt_format or task.prompt_format)
    extractor = spec.extractor or form.extractor
    find_extractor(extractor)
    every = {split: task.problems(spec, split) for split in SPLITS}
    problems = {split: selected(every[split], spec, split) for split in SPLITS}
    shots = problems["train"][: form.shots]
    train, test = (prompt_set(problems[s], form, shots, policy, spec, s) for s in SPLITS)
    remarks = [*remarks, *_beyond(policy, (train, test), spec), *_too_few(train, test, spec)]
    if spec.warm_start:
        solved, left_out = lessons_of(every["train"], problems["train"], spec, extractor)
        lessons = prompt_set(solved, form, shots, policy, spec, "train")
        remarks += _untaught(left_out, lessons.dropped, len(lessons.problems), spec)
        policy = CausalLM(str(taught(source, spec.model_digest, lessons, spec, told)), spec)
        settle(policy)
    sampler = Sampler(spec, make_decoder(spec.decoder, policy), train, extractor, form.stops)
    return Ready(policy, sampler, test, remarks)


def _beyond(policy: CausalLM, sets: Sequence[PromptSet], spec: LanguageSpec) -> list[str]:
    """A warning where a row may become longer than the model was made for. Raises `UserError` where it then has no
    position for a token."""
    config = policy.model.config
    most = getattr(config, "max_position_embeddings", None)
    longest = max(len(ids) for each in sets for ids in each.tokens)
    if not most or longest + spec.completion_tokens <= most:
        return []
    what = (
        f"the longest prompt has {longest} tokens, and with completion_tokens={spec.completion_tokens} that is more "
        f"than the {most} positions of the model"
    )
    if not hasattr(config, "rope_parameters"):  # a table of positions, which ends
        raise UserError(f"{what}; set completion_tokens to {max(0, most - longest)} or less")
    return [f"{what}: what it says beyond them it was never trained for"]


def _too_few(train: PromptSet, test: PromptSet, spec: LanguageSpec) -> list[str]:
    """A warning where a split has fewer problems than were asked for."""
    remarks = []
    if spec.training_problems > (there := len(train.problems)):
        remarks.append(f"training_problems={spec.training_problems}, and there are {there}: these are trained on")
    if spec.evaluation_problems > (there := len(test.problems)):
        remarks.append(
            f"evaluation_problems={spec.evaluation_problems}, and there are {there} test problems: scores are of these"
        )
    return remarks


def _untaught(without: int, too_long: int, taught: int, spec: LanguageSpec) -> list[str]:
    """Remarks where the warm start teaches fewer problems than it was asked to."""
    reasons = {
        "they do not annotate the calculation of their answer": without,
        f"their prompts are longer than prompt_tokens={spec.prompt_tokens}": too_long,
    }
    every = taught + without + too_long
    return [
        f"the warm start leaves out {count} of {every} training problems: {why}"
        for why, count in reasons.items()
        if count
    ]
