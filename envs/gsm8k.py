"""GSM8K: grade-school mathematics, 7,473 training and 1,319 test problems (Cobbe et al. 2021, MIT licence)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Literal

from staleharness.base.files import stamp
from staleharness.base.parsing import user_path
from staleharness.errors import UserError
from staleharness.language.problem import Problem
from staleharness.language.problem_files import load
from staleharness.language.spec import LanguageSpec
from staleharness.language.task import LanguageTask
from staleharness.spec import RunSpec
from staleharness.task import ENVS

SPLITS: tuple[Literal["train"], Literal["test"]] = ("train", "test")


def rows(split: Literal["train", "test"], data: str) -> list[Problem]:
    """Load the problems of a split, from the folder `data` or the hub; read again only when the file has changed."""
    folder = user_path(data) if data else None
    file = folder / f"{split}.jsonl" if folder else None
    return _rows(split, folder, stamp(file) if file and file.is_file() else None)


@functools.lru_cache(maxsize=8)
def _rows(
    split: Literal["train", "test"], folder: Path | None, changed: tuple[str, int, int, int] | None
) -> list[Problem]:
    """Load and cache the problems. changed: the file's stamp, so that a changed file is not taken from the cache."""
    return load(split, folder)


@ENVS.register("gsm8k")
class GSM8K(LanguageTask):
    """GSM8K with any causal language model that transformers can load, from the hub or a folder."""

    paper: ClassVar[str] = "Cobbe et al. 2021, arXiv:2110.14168"
    ids: ClassVar[dict[str, str]] = {"gsm8k": "needs MODEL=; DATA= is a folder with train.jsonl and test.jsonl"}

    @classmethod
    def check(cls, spec: RunSpec) -> None:
        assert isinstance(spec, LanguageSpec)
        if not spec.model:
            raise UserError("ENV=gsm8k needs a model: MODEL=Qwen/Qwen2.5-0.5B, or a folder")
        super().check(spec)
        for split in SPLITS:  # so that a broken row is found before anything is written
            rows(split, spec.data)

    def problems(self, spec: LanguageSpec, split: Literal["train", "test"]) -> list[Problem]:
        return rows(split, spec.data)

    def model(self, spec: LanguageSpec, progress: Callable[[str], None]) -> str:
        return spec.model
