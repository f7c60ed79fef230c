"""Setup of a run: model, warm start, prompts and sampler, for the learner's process and for an actor's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..base.cancellation import report
from ..base.console_log import LOGGER
from ..base.system_info import memory
from ..errors import UserError, shorten
from .in_process_decoders import make_decoder
from .model.causal_lm_policy import CausalLM
from .model.gpu_memory import fit_to_memory
from .model.matrix_products import has_bfloat16_kernels
from .model.model_preflight import check_memory
from .problem import Grader, Problem, Split, select_problems, strip_calculator, validate_problems, warm_start_problems
from .prompt_formatting import PromptFormat, PromptSet, find_prompt, tokenise_prompts
from .sampler import Sampler
from .spec import LanguageSpec
from .supervised_learning import fine_tune
from .task import LanguageTask

SPLITS: tuple[Split, Split] = ("train", "test")


@dataclass(frozen=True)
class Setup:
    """Policy, sampler of the training problems, test prompts, and warnings for readers of the results."""

    policy: CausalLM
    sampler: Sampler
    test: PromptSet
    warnings: list[str]


def report_progress(text: str) -> None:
    """Log the progress of the setup. Raises `Interrupted` where the process is to end."""
    LOGGER.info(text)
    report(text)


def prepare(spec: LanguageSpec, task: LanguageTask) -> Setup:
    """Return the setup of a spec whose paths are resolved (`task.resolve_paths`)."""
    splits = {split: validate_problems(task.problems(spec, split), spec.env, split) for split in SPLITS}
    source, warnings = task.weights(spec, report_progress)
    policy = CausalLM(source, spec)
    if policy.precision == torch.bfloat16 and not policy.fuses and spec.device == "cpu" and not has_bfloat16_kernels():
        LOGGER.warning("this processor multiplies numbers in bfloat16 one by one, very slowly; give SET=dtype=float32")
    check_memory(spec, policy.size, memory())
    fit_to_memory(policy)
    form = find_prompt(spec.prompt_format or task.prompt_format)
    grader = task.grader(spec)
    shots, splits["train"] = worked_examples(splits["train"], form, spec, grader)
    problems = {split: select_problems(splits[split], spec, split, task.reads_numbers()) for split in SPLITS}
    train, test = (tokenise_prompts(problems[s], form, shots, policy, spec, s) for s in SPLITS)
    warnings = [*warnings, *_check_prompts(policy, (train, test), spec), *_missing_problems(train, test, spec)]
    warnings += _common_questions(splits["train"] if spec.warm_start else problems["train"], test.problems)
    if spec.warm_start:
        lessons, without_equations = warm_start_problems(splits["train"], problems["train"], spec, grader)
        prompts = tokenise_prompts(lessons, form, shots, policy, spec, "train")
        warnings += _missing_lessons(without_equations, prompts.dropped, len(prompts.problems), spec)
        warnings += _check_lessons(policy, prompts, spec)
        origin = fine_tuning_origin(source, spec)
        policy = CausalLM(str(fine_tune(source, origin, prompts, spec, report_progress)), spec)
        fit_to_memory(policy)
    sampler = Sampler(spec, make_decoder(spec.decoder, policy), train, grader, form.stops)
    return Setup(policy, sampler, test, warnings)


def fine_tuning_origin(source: str, spec: LanguageSpec) -> str:
    """Return the weights that fine-tuning begins with, by digest or folder, and the GPU that computes it, if any: bits
    depend on the GPU's model."""
    origin = spec.model_digest or source
    return f"{origin} on {torch.cuda.get_device_name(spec.device)}" if spec.device != "cpu" else origin


def worked_examples(
    problems: list[Problem], form: PromptFormat, spec: LanguageSpec, grader: Grader
) -> tuple[list[Problem], list[Problem]]:
    """Return the first problems, which every prompt shows with their solutions, and the remaining ones, to train on.
    Raises `UserError` where none remains, and for an example that is graded as wrong: the model would imitate what is
    not rewarded."""
    shots = problems[: form.shots]
    remaining = [problem for problem in problems if problem not in shots] if shots else problems
    if shots and not remaining:
        raise UserError(
            f"prompt {form.name} shows all {len(shots)} training problems of {spec.env} as worked examples, so that "
            "none is left to train on; give more problems, or prompt_format=lm_eval"
        )
    for shot in shots:
        if not grader(shot, shot.solution).correct:
            raise UserError(
                f"prompt {form.name} cannot show worked examples that are graded as wrong, such as the solution of "
                f"{shorten(shot.question)!r}; give another extractor, or prompt_format=lm_eval"
            )
    return shots, remaining


def _check_prompts(policy: CausalLM, sets: Sequence[PromptSet], spec: LanguageSpec) -> list[str]:
    """Check the positions of prompts and completions (`_check_positions`)."""
    longest = max(len(ids) for prompts in sets for ids in prompts.tokens)
    rows = f"the longest prompt has {longest} tokens, and with completion_tokens={spec.completion_tokens} that"
    remedy = lambda limit: f"set completion_tokens to {max(0, limit - longest)} or less"  # noqa: E731
    return _check_positions(policy, longest + spec.completion_tokens, rows, remedy)


def _check_lessons(policy: CausalLM, prompts: PromptSet, spec: LanguageSpec) -> list[str]:
    """Check the positions of the prompts and whole solutions of a warm start, each with its end token."""
    solutions = policy.tokens([strip_calculator(p.solution) for p in prompts.problems], special=False)
    longest = max(len(a) + len(b) + 1 for a, b in zip(prompts.tokens, solutions, strict=True))
    rows = f"the longest prompt with its solution has {longest} tokens in the warm start, which"
    remedy = f"leave long solutions out with warm_start_most_steps (now {spec.warm_start_most_steps or 'any'})"
    return _check_positions(policy, longest, rows, lambda _: remedy)


def _check_positions(policy: CausalLM, longest: int, rows: str, remedy: Callable[[int], str]) -> list[str]:
    """Return a warning where rows of up to `longest` tokens are longer than the model was trained for. Raises
    `UserError` where it then has no position for a token, or its log-probabilities depend on the rows beside it.

    rows: beginning of the message; remedy: end of the message, by the largest number of tokens that is right.
    """
    config = policy.model.config
    kind, alike = _rope_by_longest_row(config)
    if kind and longest > alike:
        raise UserError(
            f"{rows} is more than {alike} positions, beyond which rope_type={kind} makes log-probabilities depend on "
            f"the longest row of a batch; {remedy(alike)}"
        )
    max_positions = getattr(config, "max_position_embeddings", None)
    if not max_positions or longest <= max_positions:
        return []
    problem = f"{rows} is more than the {max_positions} positions of the model"
    if not hasattr(config, "rope_parameters"):  # a table of positions, which is finite
        raise UserError(f"{problem}; {remedy(max_positions)}")
    return [f"{problem}: it was never trained on positions beyond them"]


def _rope_by_longest_row(config: Any) -> tuple[str, int]:
    """Return the type of a model's rotary embedding whose frequencies change where the longest row of a batch exceeds
    a number of positions, and that number; empty for other types."""
    rope = getattr(config, "rope_parameters", None) or {}
    layers = [rope, *(value for value in rope.values() if isinstance(value, dict))]  # one for all, or one per type
    for parameters in layers:
        kind = str(parameters.get("rope_type", ""))
        if "dynamic" in kind:
            return kind, int(config.max_position_embeddings)
        if kind == "longrope":
            return kind, int(parameters["original_max_position_embeddings"])
    return "", 0


def _missing_problems(train: PromptSet, test: PromptSet, spec: LanguageSpec) -> list[str]:
    """Return a warning for each split with fewer problems than the spec names."""
    train_note, test_note = ": all are trained on", " test problems: scores are of all of them"
    splits = (("training_problems", train, train_note), ("evaluation_problems", test, test_note))
    return [
        f"{name}={getattr(spec, name)}, but there are only {len(prompts.problems)}{rest}"
        for name, prompts, rest in splits
        if getattr(spec, name) > len(prompts.problems)
    ]


def _common_questions(train: Sequence[Problem], test: Sequence[Problem]) -> list[str]:
    """Return a warning where test questions are trained on, word for word."""
    questions = {problem.question for problem in train}
    count = sum(problem.question in questions for problem in test)
    verb = "is" if count == 1 else "are"
    note = f"{count} of {len(test)} test questions {verb} also trained on, so scores partly measure memory"
    return [note] if count else []


def _missing_lessons(without_equations: int, too_long: int, lessons: int, spec: LanguageSpec) -> list[str]:
    """Return warnings where the warm start teaches fewer problems than its settings name."""
    reasons = {
        "they do not annotate the calculation of their answer": without_equations,
        f"their prompts are longer than prompt_tokens={spec.prompt_tokens}": too_long,
    }
    total = lessons + without_equations + too_long
    return [
        f"the warm start leaves out {count} of {total} training problems: {reason}"
        for reason, count in reasons.items()
        if count
    ]
