"""Every registered language task keeps the contract, and broken ones are found out."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from places import GSM8K

from staleharness.errors import UserError
from staleharness.language.answer_grading import Grade
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


@pytest.mark.parametrize(("model", "words"), [("", "returns '', .*is MODEL= missing"), (None, "returns None, not a")])
def test_a_task_without_a_model_says_so(model: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sums, "model", lambda *_: model, raising=False)
    spec = LanguageSpec.from_dict({"env": "sums", "algorithm": "ppo_clip"})
    with pytest.raises(UserError, match=f"^sums: model {words}"):
        Sums().weights(spec, lambda text: None)


def test_a_model_may_be_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sums, "model", lambda *_: tmp_path, raising=False)
    spec = LanguageSpec.from_dict({"env": "sums", "algorithm": "ppo_clip"})
    assert Sums().weights(spec, lambda text: None) == (str(tmp_path), [])


class Colours(Sums):
    """Questions whose answer is a word, graded by the task itself."""

    splits: ClassVar[dict[str, list[Problem]]] = {
        "train": [Problem("Blood?", "Red.", "red")],
        "test": [Problem("Grass?", "Green.", "green")],
    }

    def grade(self, spec: LanguageSpec, problem: Problem, text: str) -> Grade:
        return Grade(problem.answer in text.lower(), bool(text))


def test_a_task_with_its_own_grader_keeps_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("staleharness.testing.task_checks.is_listed_and_explained", lambda *_: None)
    check_language_task(Colours, "sums")
    monkeypatch.setattr(Colours, "grade", lambda *_: Grade(True, True))
    with pytest.raises(AssertionError, match="an empty completion earns a reward"):
        check_language_task(Colours, "sums")


@pytest.mark.parametrize(
    ("part", "text"), [("correct", "no answer"), ("has_answer", "Red."), ("reward", "Red."), ("reward", "no answer")]
)
@pytest.mark.parametrize(
    "source", [random.random, random.Random(0).random, np.random.random], ids=["python", "own", "numpy"]
)
def test_a_grade_drawn_at_random_breaks_the_contract(
    part: str, text: str, source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grade(self: Colours, spec: LanguageSpec, problem: Problem, completion: str) -> Grade:
        fair = {"correct": problem.answer in completion.lower(), "has_answer": bool(completion)}
        number = source()
        draw = {"reward": number} if part == "reward" else {part: number < 0.5}
        return Grade(**{**fair, **(draw if completion == text else {})})

    monkeypatch.setattr("staleharness.testing.task_checks.is_listed_and_explained", lambda *_: None)
    monkeypatch.setattr(Colours, "grade", grade)
    state = random.getstate()
    with pytest.raises(AssertionError, match=rf"grades the same text '{text}' differently: Grade\(.*\) and Grade\("):
        for _ in range(20):  # two draws may be alike
            check_language_task(Colours, "sums")
    assert random.getstate() == state


@pytest.mark.parametrize(
    ("problems", "words"),
    [([], r'"test"\) returns no problem'), ([("2 + 2?", "#### 4", "4")], r'"test"\) returns a tuple, not a Problem')],
)
def test_a_task_without_problems_is_found_out(problems: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("staleharness.testing.task_checks.is_listed_and_explained", lambda *_: None)
    monkeypatch.setitem(Sums.splits, "test", problems)
    with pytest.raises(AssertionError, match=words):
        check_language_task(Sums, "sums")


@pytest.mark.parametrize("result", [0.5, None, True, Grade(0.5, True), Grade(True, None)])  # type: ignore[arg-type]
def test_a_grade_that_is_none_is_one_line(result: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Colours, "grade", lambda *_: result)
    grader = Colours().grader(LanguageSpec.from_dict({"env": "word-problems", "algorithm": "ppo_clip"}))
    line = rf"^ENV=word-problems: grade\(\) returned {re.escape(repr(result))}, not Grade\(correct, has_answer\) of two"
    with pytest.raises(UserError, match=line):
        grader(Colours.splits["train"][0], "red")


@pytest.mark.parametrize("reward", ["1", np.nan, np.inf, 1e7, (1.0,)], ids=["text", "nan", "inf", "large", "tuple"])
def test_a_reward_that_is_no_number_is_one_line(reward: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Colours, "grade", lambda *_: Grade(True, True, reward))
    grader = Colours().grader(LanguageSpec.from_dict({"env": "word-problems", "algorithm": "ppo_clip"}))
    line = r"^ENV=word-problems: grade\(\) returned Grade\(.*; reward must be a number of at most ±1e\+06, or None$"
    with pytest.raises(UserError, match=line):
        grader(Colours.splits["train"][0], "red")


@pytest.mark.parametrize("reward", [-0.5, 2, np.float32(0.25), 0.0])
def test_a_reward_is_what_training_maximises(reward: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Colours, "grade", lambda *_: Grade(True, True, reward))
    grader = Colours().grader(LanguageSpec.from_dict({"env": "word-problems", "algorithm": "ppo_clip"}))
    grade = grader(Colours.splits["train"][0], "red")
    assert type(grade.outcome) is float and grade.outcome == reward and grade.correct


def test_a_grade_of_numpy_bools_is_one_of_bools() -> None:
    spec = LanguageSpec.from_dict({"env": "word-problems", "algorithm": "ppo_clip"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Colours, "grade", lambda *_: Grade(np.True_, np.False_))  # type: ignore[arg-type]
        result = Colours().grader(spec)(Colours.splits["train"][0], "red")
    assert result == Grade(True, False) and type(result.correct) is bool
