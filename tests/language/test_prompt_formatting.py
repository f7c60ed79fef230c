"""Each format to the character, and what goes wrong when examples are put in front of it."""

from __future__ import annotations

import pytest
from gsm8k_rows import real_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from staleharness.errors import UserError
from staleharness.language.answer_grading import EXTRACTORS, grade, plain
from staleharness.language.problem import Problem
from staleharness.language.prompt_formatting import PROMPTS, find_prompt, render

EGGS = "How many eggs?"
HENS = Problem("How many hens?", "There are 2+1=<<2+1=3>>3 hens.\n#### 3", "3")
PIGS = Problem("How many pigs?", "There are 4.\n#### 4", "4")


@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        ("verl", 'How many eggs? Let\'s think step by step and output the final answer after "####".'),
        ("areal", "How many eggs?\nPlease put your final answer within \\boxed{}."),
        ("lm_eval", "Question: How many eggs?\nAnswer:"),
        ("tba", "[MATH TASK] Problem:\nHow many eggs?\n\nSolution:\n"),
        ("plain", "How many eggs?\n"),
    ],
)
def test_a_format_asks_to_the_character_as_published(name: str, prompt: str) -> None:
    assert render(PROMPTS[name], EGGS) == prompt


def test_every_format_has_a_question_an_extractor_and_a_source() -> None:
    for name, format in PROMPTS.items():
        assert format.name == name
        assert format.template.count("{question}") == 1
        assert format.extractor in EXTRACTORS
        assert format.source
        assert all(format.stops)


def test_worked_examples_stand_in_front_as_lm_eval_puts_them() -> None:
    assert render(PROMPTS["lm_eval"], EGGS, [HENS, PIGS]) == (
        "Question: How many hens?\nAnswer: There are 2+1=<<2+1=3>>3 hens.\n#### 3\n\n"
        "Question: How many pigs?\nAnswer: There are 4.\n#### 4\n\n"
        "Question: How many eggs?\nAnswer:"
    )


def test_a_template_ending_in_a_line_break_needs_no_space() -> None:
    assert render(PROMPTS["plain"], EGGS, [PIGS]) == ("How many pigs?\nThere are 4.\n#### 4\n\nHow many eggs?\n")


def test_the_five_shot_format_shows_five_examples_and_refuses_fewer() -> None:
    format = PROMPTS["lm_eval_5shot"]
    assert render(format, EGGS, [HENS] * 5).count("Question: ") == 6
    with pytest.raises(UserError, match="lm_eval_5shot needs 5 worked examples, and 4 were given"):
        render(format, EGGS, [HENS] * 4)


@pytest.mark.parametrize("name", sorted(PROMPTS))
@given(question=st.text() | st.sampled_from(["{question}", "{}", "{0}", "{x!r}", "%s", "\\1", "\\g<0>", "}{"]))
@settings(max_examples=50)
def test_a_question_renders_literally_whatever_it_holds(name: str, question: str) -> None:
    before, after = PROMPTS[name].template.split("{question}")
    shots = [HENS] * PROMPTS[name].shots
    prompt = render(PROMPTS[name], question, shots)
    assert prompt.endswith(before + question + after)
    assert len(prompt) == len(render(PROMPTS[name], "", shots)) + len(question)


def test_no_stop_string_occurs_in_real_questions_and_solutions() -> None:
    stops = {stop for format in PROMPTS.values() for stop in format.stops}
    for question, solution, _ in real_rows():
        assert not any(stop in question or stop in solution for stop in stops)


@pytest.mark.parametrize("name", sorted(PROMPTS))
def test_a_completion_cut_at_its_stop_is_graded_for_its_own_question(name: str) -> None:
    format = PROMPTS[name]
    for question, solution, gold in real_rows()[:200]:
        own = solution if format.extractor != "boxed" else rf"\boxed{{{gold}}}"
        for stop in format.stops:
            completion = f"{own}\n\n{stop} {question} #### 987654321"
            assert grade(completion.partition(stop)[0], plain(gold), format.extractor).correct


def test_an_unknown_prompt_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"no prompt is called 'verls'; did you mean 'verl'\?"):
        find_prompt("verls")
    assert find_prompt("verl") is PROMPTS["verl"]
