"""Each rule against hand-worked cases and all real rows."""

from __future__ import annotations

import decimal

import pytest
from gsm8k_rows import real_rows

from staleharness.errors import UserError
from staleharness.language.answer_grading import EXTRACTORS, LONGEST, Grade, find_extractor, grade, number, plain

RIGHT = Grade(correct=True, has_answer=True)
WRONG = Grade(correct=False, has_answer=True)
UNPARSED = Grade(correct=False, has_answer=False)

STRICT = ("strict", "lm_eval_strict", "verl_strict")
LENIENT = ("flexible", "lm_eval_flexible", "verl_flexible", "last_number")


# On the real data -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extractor", [*STRICT, *LENIENT])
def test_every_gold_solution_of_gsm8k_is_right_as_it_stands(extractor: str) -> None:
    wrong = [gold for _, solution, gold in real_rows() if grade(solution, gold, extractor) != RIGHT]
    assert wrong == []


@pytest.mark.parametrize(
    "box", [r"\boxed{%s}", r"So \boxed{7} pays \$\boxed{\$%s}.", r"\[\boxed{%s \text{ dollars}}\]"]
)
def test_every_gold_answer_of_gsm8k_is_right_in_a_box(box: str) -> None:
    for _, solution, gold in real_rows():
        assert grade(solution.replace("####", "") + box.replace("%s", gold), gold, "boxed") == RIGHT
        assert grade(box.replace("%s", gold.replace(",", "{,}")), plain(gold), "boxed") == RIGHT


@pytest.mark.parametrize("extractor", [*STRICT, *LENIENT, "boxed"])
def test_no_gold_solution_of_gsm8k_is_right_for_another_answer(extractor: str) -> None:
    for _, solution, gold in real_rows():
        text = rf"{solution} = \boxed{{{gold}}}" if extractor == "boxed" else solution
        whole = int(gold.replace(",", ""))
        for other in (whole + 1, 10 * whole + 3, -whole - 2):
            assert grade(text, str(other), extractor) == WRONG


@pytest.mark.parametrize("extractor", [*STRICT, "boxed"])
def test_a_solution_of_gsm8k_without_its_last_line_does_not_parse_under_a_strict_rule(extractor: str) -> None:
    for _, solution, gold in real_rows():
        assert grade(solution.partition("####")[0], gold, extractor) == UNPARSED


# Rule by rule, by hand ------------------------------------------------------------------------------------------------

FAR = "x" * 400
CASES: dict[str, list[tuple[str, str | None]]] = {
    "strict": [
        ("so #### 18", "18"),
        ("#### 18\n#### 19", "18"),  # the first one
        ("#### 18" + FAR, "18"),  # wherever it is
        ("#### -1,234.50 dollars", "-1,234.50"),
        ("##### 5", "5"),
        ("####18", None),
        ("####  18", None),
        ("#### $18", None),
        ("### 18", None),
        ("18", None),
        ("", None),
        ("#### eighteen, then #### 18", "18"),
    ],
    "verl_strict": [
        ("#### 18\n#### 19", "19"),  # the last one
        ("#### 18" + FAR, None),  # within 300 characters
        ("#### 18" + "x" * 293, "18"),
        ("#### 18" + "x" * 294, None),  # its first # is character 301 from the end
        (FAR + "#### 1,800", "1,800"),
        ("#### $18", None),
    ],
    "verl_flexible": [
        ("it is 18 . . .", "18"),
        ("18 and 19", "19"),
        ("18, she said", "18,"),
        ("18 , .", ","),  # verl drops only "" and ".": a lone comma is what it reads
        ("costs $-18", "-18"),
        ("18" + FAR, None),
        (". .", None),
        ("none", None),
    ],
    "flexible": [
        ("18 and 19.", "19."),
        ("it costs $1,800", "$1,800"),
        ("-$18", "-$18"),
        ("9 of 7 x", "7"),
        ("18 . , $", "18"),  # a lone sign is no match
        ("18 ..", ".."),  # two are
        ("48-24", "-24"),
        ("٣ 18 x", "18"),
        ("none", None),
    ],
    "last_number": [
        ("18" + FAR, "18"),
        ("1,8 00 2,000", "2000"),
        ("it is 18.", "18."),
        (".5 x", ".5"),
        ("+7", "+7"),
        ("1.2.3", ".3"),
        ("1e18", "1e18"),
        ("48-24", "-24"),
        ("e5", "5"),
        ("none - . e", None),
    ],
    "boxed": [
        (r"\boxed{18}", "18"),
        (r"\boxed{18} or \boxed{19}", "19"),
        (r"\boxed{\boxed{18}}", "18"),
        (r"\boxed{\frac{1}{2}} x}", r"\frac{1}{2}"),
        (r"\boxed{1{,}800\!}", "1800"),
        (r"\boxed{\$1\,800 \text{ dollars}}", "1800"),
        (r"\boxed{50\%}", "50"),
        (r"\boxed{\text{18}}", r"\text{18}"),  # a unit has no digits
        (r"\boxed{ 18 }", "18"),
        (r"\boxed{18} and \boxed{19", None),  # the last box was never closed
        (r"\boxed{" + "1" * 500 + "}", None),
        (r"\boxed 18", None),
        ("18", None),
        (r"\boxed{}", ""),
    ],
}
CASES["lm_eval_strict"] = CASES["strict"]
CASES["lm_eval_flexible"] = CASES["flexible"]


def test_every_extractor_has_hand_worked_cases() -> None:
    assert CASES.keys() == EXTRACTORS.keys()


def test_strict_and_flexible_are_the_two_filters_of_lm_eval() -> None:
    assert EXTRACTORS["strict"] is EXTRACTORS["lm_eval_strict"]
    assert EXTRACTORS["flexible"] is EXTRACTORS["lm_eval_flexible"]


@pytest.mark.parametrize("extractor", sorted(CASES))
def test_an_extractor_finds_what_its_rule_says(extractor: str) -> None:
    for text, found in CASES[extractor]:
        assert EXTRACTORS[extractor](text) == found, text


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ("18", RIGHT),
        ("18.", RIGHT),
        ("18.0", RIGHT),
        ("018", RIGHT),
        ("1,8", RIGHT),
        ("-18", WRONG),
        ("18.01", WRONG),
        ("17.9999999999999999999999999999999999999999999999", WRONG),  # decimals, not floats
        ("18..", UNPARSED),
        ("1.8.0", UNPARSED),
        (".", UNPARSED),
        (",", UNPARSED),
        (".,", UNPARSED),
    ],
)
def test_numbers_are_compared_as_decimals_without_commas_and_one_trailing_full_stop(found: str, verdict: Grade) -> None:
    assert grade(f"#### {found}", "18", "strict") == verdict
    assert grade(f"#### {found}", "$18.00", "strict") == verdict  # the gold is read in the same way


@pytest.mark.parametrize(
    "text",
    [
        *"NaN sNaN Infinity -inf 1e2 1E+999999999 1_000 0x10 １８ ١٨ ² Ⅷ 1٨ --1 -+1 1- .1.. + - .".split(),
        *("", " ", "1 8", "1\x008", "\ud800", "18\ud800", "1" * (LONGEST + 1)),
    ],
)
def test_what_decimal_would_take_or_choke_on_is_no_number(text: str) -> None:
    assert number(text) is None


@pytest.mark.parametrize("text", ["0.5", ".5", "$.5", " 0.50 ", "+.5", "$ 0.5.", "0." + "5" + "0" * 97])
def test_ways_of_writing_one_half(text: str) -> None:
    assert number(text) == decimal.Decimal("0.5")


def test_the_callers_decimal_context_does_not_matter() -> None:
    with decimal.localcontext(decimal.Context(prec=1, Emax=0, Emin=0, traps=list(decimal.Context().flags))):
        assert grade("#### 1234567890.12345", "1234567890.12345", "strict") == RIGHT
        assert grade("#### 1234567890.12345", "1234567890.12346", "strict") == WRONG
        assert grade("#### " + "9" * LONGEST, "18", "strict") == WRONG


def test_a_number_longer_than_any_answer_does_not_parse() -> None:
    assert grade("#### " + "0" * (LONGEST - 2) + "18", "18", "strict") == RIGHT
    assert grade("#### " + "0" * (LONGEST - 1) + "18", "18", "strict") == UNPARSED


def test_an_unknown_extractor_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'verl_strct'; did you mean 'verl_strict'\?"):
        grade("#### 18", "18", "verl_strct")
    with pytest.raises(UserError, match="known: boxed, flexible, last_number, lm_eval"):
        find_extractor("?")


def test_a_gold_that_is_not_a_number_is_a_fault_of_the_data() -> None:
    with pytest.raises(ValueError, match="gold answer 'many' is not a number"):
        grade("#### 18", "many", "strict")
