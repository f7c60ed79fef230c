"""The generated problems: right, reproducible, split by content, and said without loss in the model's tokens."""

from __future__ import annotations

import re
import sys
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from needs import require_extra

from staleharness.base.plugins import builtin_folder
from staleharness.language.problem import Problem
from staleharness.language.word_tokenizer import word_tokenizer
from staleharness.task import ENVS

require_extra("llm")

SOME = 600


@pytest.fixture(scope="module")
def words() -> ModuleType:
    """The plugin file, as the registry loads it."""
    path = builtin_folder("envs") / "word_problems.py"
    ENVS.load_file(path)
    loaded = [m for m in sys.modules.values() if getattr(m, "__file__", None) == str(path.resolve())]
    return loaded[0]


@pytest.fixture(scope="module")
def problems(words: ModuleType) -> list[Problem]:
    return [words.problem("train", index) for index in range(SOME)]


def answer_to(question: str) -> Fraction:
    """Solve the story by reading it sentence by sentence with patterns of this test."""
    readings = (
        (r"(\w+) has (\d+) bags of (\d+) ", lambda have, a, b: a * b),
        (r"(?:\w+) has (\d+) ", lambda have, a: a),
        (r"(?:buys|finds) (\d+) more", lambda have, n: have + n),
        (r"gives [A-Z]\w+ (\d+) more", lambda have, n: have + n),
        (r"(?:sells|loses) (\d+)$", lambda have, n: have - n),
        (r"gives (\d+) to [A-Z]", lambda have, n: have - n),
        (r"shares them among (\d+) friends", lambda have, n: have / n),
        (r"costs (\d+) dollars", lambda have, n: have * n),
        (r"^How many", lambda have: have),
    )
    have = Fraction(0)
    for sentence in re.split(r"[.?] ?", question)[:-1]:
        for pattern, effect in readings:
            if found := re.search(pattern, sentence):
                have = effect(have, *(Fraction(g) for g in found.groups() if g.isdecimal()))
                break
        else:
            raise AssertionError(f"what does this say: {sentence!r}?")
    return have


def test_the_answer_is_what_the_story_says(problems: list[Problem]) -> None:
    for problem in problems:
        assert answer_to(problem.question) == int(problem.answer), problem


def test_every_line_of_a_solution_follows_from_the_last(problems: list[Problem]) -> None:
    for problem in problems:
        *lines, last = problem.solution.split("\n")
        assert 1 <= len(lines) <= 5
        results = []
        for line in lines:
            a, sign, b, result = re.fullmatch(r"(\d+)([-+*/])(\d+)=(\d+)", line).groups()  # type: ignore[union-attr]
            x, y = Fraction(a), Fraction(b)
            assert {"+": x + y, "-": x - y, "*": x * y, "/": x / y}[sign] == int(result)
            assert not results or results[-1] == a
            results.append(result)
        assert last == f"#### {results[-1]}" == f"#### {problem.answer}"


def test_no_number_is_larger_than_said(words: ModuleType, problems: list[Problem]) -> None:
    numbers = [int(n) for p in problems for n in re.findall(r"\d+", p.question + p.solution)]
    assert max(numbers) == words.LARGEST
    assert min(numbers) >= 1


def test_a_problem_depends_on_split_seed_and_index_only(words: ModuleType) -> None:
    first = words.problem("train", 7, seed=3)
    np.random.default_rng(0).random(5)
    assert words.problem("train", 7, seed=3) == first
    others = [words.problem("train", 7, seed=4), words.problem("train", 8, seed=3), words.problem("test", 7, seed=3)]
    assert all(other.question != first.question for other in others)


def test_no_test_question_is_a_training_question_of_any_seed(words: ModuleType) -> None:
    test = {words.problem("test", index).question for index in range(256)}
    train = {words.problem("train", index, seed).question for seed in (0, 1) for index in range(2000)}
    train |= {words.lesson(index).question for index in range(500)}
    assert not test & train
    assert len(test) > 240  # stories differ


def test_a_split_that_is_neither_train_nor_test_is_refused(words: ModuleType) -> None:
    with pytest.raises(ValueError, match="'trian'"):
        words.problem("trian", 0)


def test_a_lesson_is_the_problem_misread_but_reckoned_well(words: ModuleType, problems: list[Problem]) -> None:
    lessons = [words.lesson(index) for index in range(SOME)]
    assert [lesson.question for lesson in lessons] == [problem.question for problem in problems]
    for lesson in lessons:
        for a, sign, b, result in re.findall(r"(\d+)([-+*/])(\d+)=(\d+)", lesson.solution):
            assert words.reckon(int(a), sign, int(b)) == int(result)
        assert lesson.solution.endswith(f"#### {lesson.answer}")
    right = np.mean([a.answer == b.answer for a, b in zip(lessons, problems, strict=True)])
    assert 0.3 < right < 0.5  # what imitation can reach: 41 % of 4,000 lessons


def test_misreadings_come_as_often_as_the_table_says(words: ModuleType) -> None:
    said = read = 0
    for index in range(1500):
        question = words.problem("train", index).question
        if re.fullmatch(r"\w+ has \d+ bags of \d+ \w+\. How many \w+ does \w+ have\?", question):
            said += 1
            read += "+" in words.lesson(index).solution
    assert said > 40
    assert abs(read / said - words.OPENING.misread) < 3 * np.sqrt(0.16 / said)


def test_arithmetic_stays_within_the_largest_number(words: ModuleType) -> None:
    assert words.reckon(3, "+", 4) == 7
    assert words.reckon(3, "*", 4) == 12
    assert words.reckon(12, "/", 4) == 3
    assert words.reckon(7, "/", 2) is words.reckon(7, "+", 6) is words.reckon(3, "-", 3) is None


def test_decoding_gives_the_text_back_character_by_character(words: ModuleType) -> None:
    tokenizer = words.tokenizer()
    for split in ("train", "test"):
        for problem in (words.problem(split, index, seed=9) for index in range(SOME)):
            text = words.prompt(problem) + problem.solution
            ids = tokenizer(text).input_ids
            assert tokenizer.unk_token_id not in ids
            assert tokenizer.decode(ids) == text
            given, said = tokenizer(words.prompt(problem)).input_ids, tokenizer(problem.solution).input_ids
            assert given + said == ids  # the seam between prompt and completion cuts no token
            assert len(given) <= 50
            assert len(said) + 1 <= 40


def test_the_tokenizer_survives_the_disk(words: ModuleType, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    words.tokenizer().save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = words.prompt(words.problem("test", 0))
    assert loaded(text).input_ids == words.tokenizer()(text).input_ids
    assert loaded.decode(loaded(text).input_ids) == text
    assert (loaded.pad_token, loaded.eos_token, loaded.unk_token) == ("<pad>", "<eos>", "<unk>")
    assert loaded.padding_side == "left"
    batch = loaded([text, "Tom"], padding=True)
    assert batch.input_ids[1][:-1] == [loaded.pad_token_id] * (len(batch.input_ids[0]) - 1)


def test_special_tokens_are_left_out_of_decoded_text_on_request(words: ModuleType) -> None:
    tokenizer = words.tokenizer()
    ids = [tokenizer.pad_token_id, *tokenizer("#### 7").input_ids, tokenizer.eos_token_id]
    assert tokenizer.decode(ids) == "<pad>#### 7<eos>"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "#### 7"


def test_words_numbers_and_the_unknown() -> None:
    tokenizer = word_tokenizer(["Ann has 3 pens.\n#### 3"], range(5))
    pieces = tokenizer.convert_ids_to_tokens(tokenizer("Ann has 4 pens.\n#### 4").input_ids)
    assert pieces == ["Ann", " has ", "4", " pens", ".", "\n", "#### ", "4"]
    assert tokenizer.convert_ids_to_tokens(tokenizer("Ann owns 9").input_ids) == ["Ann", "<unk>", "<unk>"]
    assert len(tokenizer) == 3 + 5 + 6
