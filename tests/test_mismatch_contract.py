"""Contract of mismatch models: every built-in one keeps it, and each promise, once broken, is one line."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from known_plugins import loaded_plugins
from torch import Tensor

from staleharness.algorithm import ALGORITHMS
from staleharness.commands import new as scaffold
from staleharness.errors import UserError
from staleharness.lag import LAGS
from staleharness.language.task import LanguageTask
from staleharness.mismatch import MISMATCHES, Mismatch, Place, option, read_mismatch
from staleharness.task import ENVS
from staleharness.testing import (
    CHECKS,
    LAG_CHECKS,
    MISMATCH_CHECKS,
    TASK_CHECKS,
    MismatchCheck,
    check_mismatch_model,
    parametrize_with_checks,
    parametrize_with_mismatch_checks,
    variants,
)

MORE = """
    noise:1.0 noise:0 noise[sigma=0.5,fixed=true] buggy_actor[share=1.0] buggy_actor[share=0.5,sigma=3] sampling:0.3
    sampling:2.5 sampling[top_p=0.9] sampling[top_k=1] sampling[temperature=0.7,top_k=3,logprobs=raw] sampling[top_k=50]
""".split()


@pytest.mark.parametrize("name", list(MISMATCHES))
def test_every_mismatch_model_keeps_the_contract(name: str) -> None:
    for model in variants(MISMATCHES[name]):
        check_mismatch_model(model)


@pytest.mark.parametrize("text", MORE)
def test_it_is_kept_under_other_options(text: str) -> None:
    check_mismatch_model(read_mismatch(text)[0])


@parametrize_with_mismatch_checks([read_mismatch("fp8")[0]])
def test_a_model_and_its_checks_may_be_tests_of_their_own(model: Mismatch, check: MismatchCheck) -> None:
    check(model)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A private copy of the registry, so that broken models are seen by nobody else."""
    list(MISMATCHES)
    monkeypatch.setattr(MISMATCHES, "_classes", dict(MISMATCHES._classes))


@dataclass(frozen=True)
class Honest(Mismatch):
    """Entries that are rounded, and logits at a temperature."""

    step: float = option(0.25, above=0)
    heat: float = option(1.5, above=0)
    words: str = "none"

    @property
    def temperature(self) -> float:
        return self.heat

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        noise = place.generator().random(tuple(weight.shape), dtype=np.float32)
        return (weight / self.step + torch.from_numpy(noise).to(weight)).floor() * self.step

    def logits(self, logits: Tensor) -> Tensor:
        return logits / self.heat


def test_an_honest_model_passes(registry: None) -> None:
    MISMATCHES.register("honest")(Honest)
    for model in (Honest(), Honest(step=1), Honest(heat=0.5, words="all")):
        check_mismatch_model(model)


def test_a_model_as_new_writes_it_passes(tmp_path: Path) -> None:
    with loaded_plugins(scaffold.write("mismatch", "my_mismatch", str(tmp_path))):
        check_mismatch_model(MISMATCHES["my_mismatch"]())
        check_mismatch_model(read_mismatch("my_mismatch:0.5")[0])


class WithoutName(Honest):
    """Is not registered."""


@dataclass(frozen=True)
class WithoutWords(Honest):
    other: int = 1


class AcceptsAnything(Honest):
    """Has options of any value."""

    def __post_init__(self) -> None:
        pass


class Spaces(Honest):
    """Writes its options with spaces."""

    text = "Spaces[step=0.5, heat=2]"


class WithoutOptions(Honest):
    """Writes its name alone."""

    @property
    def text(self) -> str:
        return "WithoutOptions"


class Sums(Honest):
    """Writes itself as two models."""

    text = "Sums+fp8"


class SaysALot(Honest):
    """Truncates by a number."""

    truncates = 0.9  # type: ignore[assignment]


class Frozen(Honest):
    """Is colder than the coldest."""

    temperature = 0.0  # type: ignore[assignment]


class Forgets(Honest):
    """Returns nothing."""

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        return None  # type: ignore[return-value]


class Doubles(Honest):
    """Returns another type."""

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        return weight.double()


class Flattens(Honest):
    """Returns another shape."""

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        return super().matrix(weight, place).flatten()


class Divides(Honest):
    """Divides zeros by zero."""

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        scale = weight.abs().amax(-1, keepdim=True) / 127
        return (weight / scale).round() * scale


class CutsSilently(Honest):
    """Gives −∞, and does not say so."""

    def logits(self, logits: Tensor) -> Tensor:
        return logits.masked_fill(logits < logits.amax(-1, keepdim=True), -float("inf"))


class CutsEverything(Honest):
    """Leaves no action."""

    truncates = True  # type: ignore[assignment]

    def logits(self, logits: Tensor) -> Tensor:
        return logits.masked_fill(logits <= 1.0, -float("inf"))


class Centres(Honest):
    """Is lost after a model that truncates."""

    def logits(self, logits: Tensor) -> Tensor:
        return logits - logits.mean(-1, keepdim=True)


class Precise(Honest):
    """Gives logits that a kernel would read as others."""

    def logits(self, logits: Tensor) -> Tensor:
        return logits.double()


class WritesWeights(Honest):
    """Rounds in place."""

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        return weight.mul_(0.5)


class WritesLogits(Honest):
    """Divides in place."""

    def logits(self, logits: Tensor) -> Tensor:
        return logits.div_(self.heat)


class Counts(Honest):
    """Drifts with every call."""

    calls: ClassVar[list[int]] = []

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        self.calls.append(1)
        return weight + 1e-3 * len(self.calls)


class Fresh(Honest):
    """Has noise that no seed decides."""

    def logits(self, logits: Tensor) -> Tensor:
        return logits + torch.from_numpy(np.random.default_rng().normal(size=logits.shape)).to(logits)


class DrawsFromTorch(Honest):
    """Draws from torch's generator."""

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        return weight + torch.randn_like(weight)


class DrawsFromNumpy(Honest):
    """Draws from NumPy's generator."""

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        return weight + float(np.random.normal())  # noqa: NPY002


class DrawsFromPython(Honest):
    """Draws from Python's generator."""

    def logits(self, logits: Tensor) -> Tensor:
        return logits * (1.0 + random.random())


class DrawsInSecret(Honest):
    """Draws from torch's generator, and puts it back."""

    def logits(self, logits: Tensor) -> Tensor:
        with torch.random.fork_rng([]):
            return logits + torch.randn_like(logits)


class SeesRows(Honest):
    """Divides by the largest logit of the batch."""

    def logits(self, logits: Tensor) -> Tensor:
        return logits / logits.amax().clamp(min=1.0)


class Sharpens(Honest):
    """Says another temperature than it has."""

    def logits(self, logits: Tensor) -> Tensor:
        return logits * self.heat


class Explodes(Honest):
    """Has weights whose products overflow."""

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        return weight.sign() * 3e38


BROKEN: list[tuple[type[Mismatch], str, str]] = [
    (WithoutName, "is_a_listed_model", "register it with @MISMATCHES.register"),
    (WithoutWords, "is_a_listed_model", "write a docstring, whose first line `list` shows"),
    (AcceptsAnything, "is_a_listed_model", "step=nan is accepted; call super().__post_init__()"),
    (Spaces, "is_read_as_it_is_written", "'Spaces[step=0.5, heat=2]' has white space"),
    (WithoutOptions, "is_read_as_it_is_written", "'WithoutOptions' is read as WithoutOptions(step=0.25"),
    (Sums, "is_read_as_it_is_written", "'Sums+fp8' is read as Sums("),
    (SaysALot, "answers_the_sampler", "truncates is 0.9, not a boolean"),
    (Frozen, "answers_the_sampler", "temperature is 0.0, not a number above 0"),
    (Forgets, "copies_matrices_like_themselves", "matrix for actor.0 [2, 3] is a NoneType, not a tensor"),
    (Doubles, "copies_matrices_like_themselves", "is torch.float64 on cpu, not torch.float32 on cpu"),
    (Flattens, "copies_matrices_like_themselves", "has the shape [6], not [2, 3]"),
    (Divides, "copies_matrices_like_themselves", "matrix for actor.0 [2, 3] gives numbers that are not finite"),
    (CutsSilently, "gives_logits_of_a_distribution", "gives −∞; return True from `truncates`"),
    (CutsEverything, "gives_logits_of_a_distribution", "leaves a row without an action"),
    (Centres, "gives_logits_of_a_distribution", "logits for [4, 9] gives NaN or +∞"),
    (Precise, "gives_logits_of_a_distribution", "is torch.float64 on cpu, not torch.float32 on cpu"),
    (WritesWeights, "leaves_its_inputs_alone", "matrix writes into actor.0; return a new tensor"),
    (WritesLogits, "leaves_its_inputs_alone", "logits writes into what it is given; return a new tensor"),
    (Counts, "is_a_function_of_its_question", "matrix for actor.0 gives other numbers when it is asked again"),
    (Fresh, "is_a_function_of_its_question", "logits for [4, 9] gives other numbers when it is asked again"),
    (DrawsFromTorch, "draws_from_its_place_alone", "matrix for actor.0 moves a global random generator"),
    (DrawsFromNumpy, "draws_from_its_place_alone", "matrix for actor.0 moves a global random generator"),
    (DrawsFromPython, "draws_from_its_place_alone", "logits for [4, 9] moves a global random generator"),
    (DrawsInSecret, "draws_from_its_place_alone", "logits for [4, 9] depends on a global generator"),
    (SeesRows, "does_not_see_the_other_rows", "the logits of a row depend on the other rows of its batch"),
    (Sharpens, "divides_by_its_temperature", "`logits` is not a division by temperature=1.5"),
    (Explodes, "acts_in_each_kind_of_task", "copy of an actor of Gaussian actions gives numbers that are not finite"),
]


@pytest.mark.parametrize(("broken", "name", "words"), BROKEN, ids=[cls.__name__ for cls, _, _ in BROKEN])
def test_a_broken_promise_is_one_line(broken: type[Mismatch], name: str, words: str, registry: None) -> None:
    if broken is not WithoutName:
        MISMATCHES.register(broken.__name__)(broken)
    model = broken(heat=2.0) if broken is WithoutOptions else broken()  # type: ignore[call-arg]
    (check,) = [check for check in MISMATCH_CHECKS if check.__name__ == name]
    with pytest.raises((AssertionError, UserError), match=re.escape(words)) as caught:
        check(model)
    assert "\n" not in str(caught.value)
    with pytest.raises(AssertionError) as caught:
        check_mismatch_model(model)
    line = str(caught.value)
    assert line.startswith(f"{broken.__name__}(") and words in line and "\n" not in line


def test_every_check_is_seen_to_fail_once() -> None:
    assert {name for _, name, _ in BROKEN} == {check.__name__ for check in MISMATCH_CHECKS}


def test_one_decorator_serves_every_kind_of_plugin() -> None:
    uniform, noise = LAGS["uniform"](), MISMATCHES["noise"]
    for plugins, names, first, count in (
        ([ALGORITHMS["spo"]], ("algorithm", "check"), ALGORITHMS["spo"](), len(CHECKS)),
        ([ENVS["mujoco"]], ("family", "env", "check"), ENVS["mujoco"], len(ENVS["mujoco"].ids) * len(TASK_CHECKS)),
        ([uniform, LAGS["oldest"]], ("model", "check"), uniform, 2 * len(LAG_CHECKS)),
        ([noise], ("model", "check"), noise(), 2 * len(MISMATCH_CHECKS)),
        ([noise(sigma=1.0)], ("model", "check"), noise(sigma=1.0), len(MISMATCH_CHECKS)),
        ([], ("algorithm", "check"), None, 0),
    ):
        argument, cases = parametrize_with_checks(plugins).mark.args
        assert (argument, len(cases)) == (names, count) and (not cases or cases[0][0] == first)


@pytest.mark.parametrize(
    ("plugins", "words"),
    [
        (lambda: [ALGORITHMS["spo"], MISMATCHES["fp8"]], "of one kind at a time, not SPO, Float8;"),
        (lambda: [LanguageTask], "not LanguageTask; language and chain tasks have check_language_task"),
        (lambda: [LAGS["fixed"]], "Fixed: lag has no default; give models, such as Fixed"),
    ],
)
def test_what_the_decorator_cannot_check_is_one_line(plugins: Callable[[], list[Any]], words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        parametrize_with_checks(plugins())
    assert "\n" not in str(caught.value)
