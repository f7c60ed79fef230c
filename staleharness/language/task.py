"""What a language plugin answers: problems with checkable answers, and the model that tries them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import ClassVar, Literal

from ..errors import UserError
from ..spec import LanguageSpec, RunSpec
from ..task import Task
from .answers import find_extractor
from .checkpoint_files import check_model
from .problem import Problem
from .prompts import find_prompt


class LanguageTask(Task):
    """A family of prompts with verifiable answers.

    prompt_format, extractor: names of `staleharness.language` that count where the run names none.
    """

    settings: ClassVar[type[RunSpec]] = LanguageSpec
    prompt_format: ClassVar[str] = "verl"
    provides: ClassVar[frozenset[str]] = frozenset({"groups", "logit_norm", "reference"})

    @classmethod
    def check(cls, spec: RunSpec) -> None:
        super().check(spec)
        if importlib.util.find_spec("transformers") is None:
            raise UserError(
                f"ENV={spec.env} needs the extra llm: make setup EXTRAS=llm, or pip install 'staleharness[llm]'"
            )
        assert isinstance(spec, LanguageSpec)
        find_extractor(spec.extractor or find_prompt(spec.prompt_format or cls.prompt_format).extractor)
        if spec.model:
            check_model(spec)

    def problems(self, spec: LanguageSpec, split: Literal["train", "test"]) -> list[Problem]:
        """The problems of one split, in a fixed order. Raises `UserError` where they cannot be had."""
        raise NotImplementedError(f"{type(self).__name__} must define problems(spec, split)")

    def model(self, spec: LanguageSpec, progress: Callable[[str], None]) -> str:
        """A hub name or a folder that transformers loads model and tokenizer from; may take the time it takes,
        telling `progress`, and is asked by every run."""
        raise NotImplementedError(f"{type(self).__name__} must define model(spec, progress)")
