"""Contract of every mismatch model, one check per promise: on matrices, logits and policies like those of runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..base.streams import global_generators_restored, seed_global_generators
from ..control.action_distributions import Categorical, Gaussian
from ..control.collector import actor_copier
from ..control.policy import MLPPolicy
from ..control.spec import ControlSpec
from ..control.task import check_copies
from ..errors import UserError
from ..mismatch import MISMATCHES, Mismatch, Place, read_mismatch
from ..training.policy_buffer import Version
from ..training.sampler_copies import CopyTensors, SamplerCopies, block_copier
from .check_runner import global_generators, parametrize, run_checks

MismatchCheck = Callable[[Mismatch], None]
Case = tuple[str, Tensor, Place | None]  # words for the answer, matrix, place; or words, logits, None

SHAPES = {  # [out, in]; of experts [E, out, in]
    "actor.0": (8, 5),
    "actor.1": (1, 8),
    "model.layers.0.mlp.up_proj.weight": (6, 70),
    "model.layers.1.mlp.experts.down_proj": (3, 4, 8),
}


def example_matrices() -> list[tuple[Tensor, Place]]:
    """Matrices of actors, layers and experts in two versions, and one of zeros; on each device that there is.

    Each with several rows has a row of zeros. An actor's lies in memory as its transpose."""
    generator = torch.Generator().manual_seed(0)
    examples = [(torch.zeros(2, 3), Place("actor.0", 0, 7))]
    for version in (3, 4):
        for name, shape in SHAPES.items():
            weight = torch.randn(shape, generator=generator)
            if shape[-2] > 1:
                weight[..., -1, :] = 0.0
            weight = weight.t().contiguous().t() if name.startswith("actor") else weight
            examples.append((weight, Place(name, version, 7)))
    devices = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    return [(weight.to(device), place) for device in devices for weight, place in examples]


def example_logits() -> list[Tensor]:
    """Logits [B, V]: usual ones, of two actions, with ties, far apart, and after a model that cut some actions off."""
    usual = 3.0 * torch.randn(4, 9, generator=torch.Generator().manual_seed(1))
    cut = usual.masked_fill(usual < usual.mean(-1, keepdim=True), -math.inf)
    return [usual, usual[:1, :2], torch.zeros(2, 5), 30.0 * usual, cut]


def cases() -> list[Case]:
    """Examples of matrices, then of logits, each with words for its answer."""
    matrices = [(f"matrix for {place.name}", weight, place) for weight, place in example_matrices()]
    return [*matrices, *((f"logits for {list(x.shape)}", x, None) for x in example_logits())]


def answers_of(model: Mismatch, backwards: bool = False, seed: int = 0) -> list[tuple[str, Tensor]]:
    """Answers to the questions, in their order. `backwards`: asked last to first; `seed`: of the global random
    generators before each."""
    order, results = cases()[:: -1 if backwards else 1], []
    with global_generators_restored():
        for case in order:
            seed_global_generators(seed, "contract")
            results.append((case[0], _answer(model, case)))
    return results[:: -1 if backwards else 1]


def is_a_listed_model(model: Mismatch) -> None:
    """The model is registered under its name, with a docstring, and is a frozen dataclass that checks its options."""
    cls = type(model)
    assert cls.name in MISMATCHES and MISMATCHES[cls.name] is cls, "register it with @MISMATCHES.register('name')"
    words = cls.__doc__ or ""
    assert words and not words.startswith(f"{cls.__name__}("), "write a docstring, whose first line `list` shows"
    frozen = is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert frozen, "write @dataclass(frozen=True) above the class"
    for key, hint in cls.hyper_parameter_types().items():
        assert hint is not float or _is_refused(model, key), f"{key}=nan is accepted; call super().__post_init__()"


def is_read_as_it_is_written(model: Mismatch) -> None:
    """`text` is read as the same model and written as the same text: one model is one run id."""
    text = model.text
    assert not set(text) & set(" \n\t"), f"{text!r} has white space, which separates the items of a list"
    models = read_mismatch(text)
    assert models == (model,), f"{text!r} is read as {', '.join(map(str, models))}"
    assert models[0].text == text, f"{text!r} is read, and written as {models[0].text!r}"


def answers_the_sampler(model: Mismatch) -> None:
    """`raw` and `truncates` are booleans, `temperature` is finite and above 0."""
    for name in ("raw", "truncates"):
        value = getattr(model, name)
        assert isinstance(value, bool), f"{name} is {value!r}, not a boolean"
    value = model.temperature
    number = isinstance(value, int | float) and math.isfinite(value) and value > 0
    assert number, f"temperature is {value!r}, not a number above 0"


def copies_matrices_like_themselves(model: Mismatch) -> None:
    """`matrix` gives finite numbers of the shape, type and device of the matrix, also for zeros and experts."""
    for weight, place in example_matrices():
        where = f"matrix for {place.name} {list(weight.shape)}"
        copy = model.matrix(weight, place)
        _is_like(copy, weight, where)
        assert copy.isfinite().all(), f"{where} gives numbers that are not finite"


def gives_logits_of_a_distribution(model: Mismatch) -> None:
    """`logits` gives [B, V] in the type and device of the logits, with a probability for each action, and −∞ only where
    the model truncates or the one before it did."""
    for logits in example_logits():
        answer, where = model.logits(logits), f"logits for {list(logits.shape)}"
        _is_like(answer, logits, where)
        assert not (answer.isnan() | answer.isposinf()).any(), f"{where} gives NaN or +∞"
        assert answer.isfinite().any(-1).all(), f"{where} leaves a row without an action"
        cut = answer.isneginf() & ~logits.isneginf()
        assert model.truncates or not cut.any(), f"{where} gives −∞; return True from `truncates`"


def leaves_its_inputs_alone(model: Mismatch) -> None:
    """No matrix and no logits are modified: they may be the trainer's."""
    for weight, place in example_matrices():
        before = weight.clone()
        model.matrix(weight, place)
        assert torch.equal(weight, before), f"matrix writes into {place.name}; return a new tensor"
    for logits in example_logits():
        before = logits.clone()
        model.logits(logits)
        assert torch.equal(logits, before), "logits writes into what it is given; return a new tensor"


def is_a_function_of_its_question(model: Mismatch) -> None:
    """The same matrix and place, and the same logits, give the same bits in any order, also from a new instance:
    nothing else remains after an interruption."""
    repeat = answers_of(replace(model), backwards=True)
    _are_equal(answers_of(model), repeat, "gives other numbers when it is asked again")


def draws_from_its_place_alone(model: Mismatch) -> None:
    """No global random generator moves, and none affects the answers."""
    with global_generators_restored():
        for case in cases():
            before = global_generators()
            _answer(model, case)
            where = case[0]
            assert before == global_generators(), f"{where} moves a global random generator; use `place.generator()`"
    _are_equal(answers_of(model), answers_of(model, seed=1), "depends on a global generator; use `place.generator()`")


def does_not_see_the_other_rows(model: Mismatch) -> None:
    """Rows of logits have the same answers in another batch: finished rows leave it, and decoders form their own."""
    rows = torch.tensor([2, 0])
    for logits in example_logits():
        batch, part = model.logits(logits), model.logits(logits[rows % len(logits)])
        close = torch.allclose(batch[rows % len(logits)], part, rtol=1e-4, atol=1e-5)
        assert close, "the logits of a row depend on the other rows of its batch"


def divides_by_its_temperature(model: Mismatch) -> None:
    """Dividing by the model's own `temperature` is all that `logits` does, unless the model truncates: actions of
    control are drawn at that temperature without calling `logits`."""
    if type(model).temperature is Mismatch.temperature or model.truncates:
        return
    for logits in example_logits():
        answer, expected = (x.double().softmax(-1) for x in (model.logits(logits), logits / model.temperature))
        close = torch.allclose(answer, expected, rtol=0.0, atol=1e-3)
        assert close, f"`logits` is not a division by temperature={model.temperature:g}"


def acts_in_each_kind_of_task(model: Mismatch) -> None:
    """Copies of policies of language tasks and, unless refused in one line, of control have the policies' shapes and
    finite outputs, and are made again to the same bits."""
    tensors = {place.name: weight.cpu() for weight, place in example_matrices() if "layers" in place.name}
    _acting_copy(block_copier((model,), 7), Version(3, 0, tensors), "a language policy")
    try:
        check_copies(ControlSpec(env="Hopper-v5", algorithm="ppo_clip", mismatch=model.text))
    except UserError as error:
        assert "\n" not in str(error), "the refusal has more than one line"
        return
    for actions in (Gaussian(2), Categorical(3)):
        policy, words = MLPPolicy(4, actions, (8,), seed=0), f"an actor of {type(actions).__name__} actions"
        copy = _acting_copy(actor_copier((model,), policy, 7), policy.snapshot(3, 0), words)
        acting = policy.acting([copy], np.zeros(5, dtype=np.int64))
        outputs = acting.means(torch.linspace(-2.0, 2.0, 20).view(5, 4))
        assert outputs.isfinite().all(), f"the copy of {words} gives numbers that are not finite"


MISMATCH_CHECKS: tuple[MismatchCheck, ...] = (
    is_a_listed_model,
    is_read_as_it_is_written,
    answers_the_sampler,
    copies_matrices_like_themselves,
    gives_logits_of_a_distribution,
    leaves_its_inputs_alone,
    is_a_function_of_its_question,
    draws_from_its_place_alone,
    does_not_see_the_other_rows,
    divides_by_its_temperature,
    acts_in_each_kind_of_task,
)


def check_mismatch_model(model: Mismatch) -> None:
    """Run every check. Raises `AssertionError`, one line that names the model and the check."""
    run_checks(MISMATCH_CHECKS, str(model), model)


def parametrize_with_mismatch_checks(models: Iterable[Mismatch]) -> Any:
    """A pytest decorator: one test `(model, check)` for each check on each model."""
    return parametrize("model", [(model.text, model) for model in models], MISMATCH_CHECKS)


def _answer(model: Mismatch, case: Case) -> Tensor:
    _, x, place = case
    return model.logits(x) if place is None else model.matrix(x, place)


def _is_like(answer: object, x: Tensor, where: str) -> None:
    """Raise `AssertionError` unless `answer` is a tensor of the shape, type and device of `x`."""
    assert isinstance(answer, Tensor), f"{where} is a {type(answer).__name__}, not a tensor"
    shape, expected = list(answer.shape), list(x.shape)
    assert shape == expected, f"{where} has the shape {shape}, not {expected}"
    kind, expected_kind = (f"{t.dtype} on {t.device}" for t in (answer, x))
    assert kind == expected_kind, f"{where} is {kind}, not {expected_kind}"


def _are_equal(first: list[tuple[str, Tensor]], second: list[tuple[str, Tensor]], words: str) -> None:
    for (where, x), (_, y) in zip(first, second, strict=True):
        assert torch.equal(x, y), f"{where} {words}"


def _is_refused(model: Mismatch, key: str) -> bool:
    try:
        replace(model, **{key: math.nan})
    except UserError:
        return True
    return False


def _acting_copy(copy: CopyTensors, version: Version, words: str) -> Version:
    """Return the copy of a version as the loop makes it, after checking its tensors."""
    first, second = (SamplerCopies(copy, 1, 7).of(version) for _ in range(2))
    for name, tensor in version.tensors.items():
        where = f"{name} in the copy of {words}"
        _is_like(first.tensors[name], tensor, where)
        assert first.tensors[name].isfinite().all(), f"{where} is not finite"
        assert torch.equal(first.tensors[name], second.tensors[name]), f"{where} has other numbers when made again"
    return first
