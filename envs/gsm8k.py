"""GSM8K: grade-school mathematics, 7,473 problems to train on and 1,319 to test (Cobbe et al. 2021, MIT licence)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

from staleharness.errors import UserError
from staleharness.files import user_path
from staleharness.language.gsm8k import load
from staleharness.language.problem import Problem
from staleharness.spec import LanguageSpec, RunSpec
from staleharness.task import ENVS, LanguageTask


@ENVS.register("gsm8k")
class GSM8K(LanguageTask):
    """GSM8K with any causal language model that transformers can load, from the hub or a folder."""

    paper: ClassVar[str] = "Cobbe et al. 2021, arXiv:2110.14168"
    ids: ClassVar[dict[str, str]] = {
        "gsm8k": "needs MODEL=; DATA= is a folder with train.jsonl and test.jsonl"
    }

    @classmethod
    def check(cls, spec: RunSpec) -> None:
        super().check(spec)
        assert isinstance(spec, LanguageSpec)
        if not spec.model:
            raise UserError("ENV=gsm8k needs a model: MODEL=Qwen/Qwen2.5-0.5B, or a folder")
        if spec.data:  # a broken row is found before anything is written
            for split in SPLITS:
                load(split, user_path(spec.data))

    def problems(self, spec: LanguageSpec, split: Literal["train", "test"]) -> list[Problem]:
        return load(split, user_path(spec.data) if spec.data else None)

    def model(self, spec: LanguageSpec, progress: Callable[[str], None]) -> str:
        return spec.model


SPLITS: tuple[Literal["train"], Literal["test"]] = ("train", "test")
