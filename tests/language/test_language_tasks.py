"""Every registered language task keeps the contract, and broken ones are found out."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from places import GSM8K

from staleharness.language.problem import Problem
from staleharness.language.spec import LanguageSpec
from staleharness.language.task import LanguageTask
from staleharness.task import ENVS
from staleharness.testing import check_language_task


def test_word_problems_keep_the_contract() -> None:
    check_language_task(ENVS["word-problems"], "word-problems")


@pytest.mark.skipif(not GSM8K.is_dir(), reason="../shared/data/gsm8k is not here")
def test_gsm8k_keeps_the_contract() -> None:
    check_language_task(ENVS["gsm8k"], "gsm8k", str(GSM8K))


GOOD = Problem("1 + 1?", "#### 2", "2")


class Sums(LanguageTask):
    """Sums that a test spoils."""

    ids: ClassVar[dict[str, str]] = {"sums": "sums"}
    splits: ClassVar[dict[str, list[Problem]]] = {"train": [GOOD], "test": [Problem("2 + 2?", "#### 4", "4")]}

    def problems(self, spec: LanguageSpec, split: Any) -> list[Problem]:
        return self.splits[split]


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ([Problem("2 + 2?", "#### 4", "4")], "both splits"),
        ([Problem("1 + 1?", "it is 2", "2")], "earns no reward"),
        ([Problem(" ", "#### 2", "2")], "Problem"),
    ],
)
def test_a_broken_task_is_found_out(train: list[Problem], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("staleharness.testing.task_checks.is_listed_and_explained", lambda *_: None)
    check_language_task(Sums, "sums")
    monkeypatch.setitem(Sums.splits, "train", train)
    with pytest.raises(AssertionError, match=message):
        check_language_task(Sums, "sums")
