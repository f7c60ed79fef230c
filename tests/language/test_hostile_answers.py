"""Text that is made to confuse or to stall a rule is wrong, and at once."""

from __future__ import annotations

import time

import pytest

from staleharness.language.answer_grading import EXTRACTORS, Grade, grade

RIGHT = Grade(correct=True, has_answer=True)
STRICT = ("strict", "lm_eval_strict", "verl_strict")
MB = 1_000_000
HOSTILE = {
    "digits": "7" * MB,
    "marked digits": "#### " + "7" * MB,
    "zeros and the gold's digits behind a point": "#### 0." + "0" * MB + "18",
    "nested braces": "{" * (MB // 2) + "}" * (MB // 2),
    "nested braces in a box": r"\boxed{" + "{" * (MB // 2) + "17" + "}" * (MB // 2) + "}",
    "nested boxes": r"\boxed{" * (MB // 7),
    "closed nested boxes": r"\boxed{" * (MB // 8) + "}" * (MB // 8),
    "a box full of backslashes": r"\boxed{" + "\\" * MB,
    "texts in a box": r"\boxed{" + r"\text{" * (MB // 6) + "}",
    "minus signs": "-" * MB,
    "prices": "$1," * (MB // 3),
    "spaced prices": "$1, " * (MB // 4),
    "dollars": "$ " * (MB // 2),
    "full stops": "." * MB,
    "spaced full stops": ". " * (MB // 2),
    "numbers of one digit": "1 " * (MB // 2),
    "number signs": "#" * MB,
    "marks": "#### " * (MB // 5),
    "marked minus signs": "#### -" * (MB // 6),
    "exponents": "1e" * (MB // 2),
    "dotted digits": "1." * (MB // 2) + "x",
    "letters": "a" * MB,
    "spaces": " " * MB,
    "line breaks": "\n" * MB,
    "NUL bytes": "\x00" * MB,
    "NUL bytes around the gold": "#### \x0018\x00",
    "lone surrogates": "\ud800" * MB,
    "Arabic-Indic digits": "#### ١٨ " + "١" * MB,
    "full-width digits": "#### １８ " + r"\boxed{１８}" + "１" * MB,
    "a huge exponent": r"#### 1e999999999 = \boxed{1e999999999}",
    "a huge negative exponent": r"#### -1E-999999999 = \boxed{-1E-999999999}",
    "not a number": r"#### NaN \boxed{NaN} \boxed{sNaN}",
    "infinity": r"#### Infinity \boxed{-Infinity} \boxed{\infty}",
    "code": "#### __import__('os').system('exit 1') \\boxed{18 if True else 0}",
    "sums": r"#### (9+9) \boxed{9+9}",
    "format fields": "#### {answer} %s {0.__class__}",
}


@pytest.mark.parametrize("extractor", sorted(EXTRACTORS))
@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_hostile_text_is_wrong_at_once(extractor: str, kind: str) -> None:
    began = time.perf_counter()
    verdict = grade(HOSTILE[kind], "18", extractor)
    took = time.perf_counter() - began
    # It takes up to some 30 ms. A rule that looks back at every character would take minutes.
    assert took < 1.0
    if kind != "NUL bytes around the gold" or extractor in STRICT or extractor == "boxed":
        assert not verdict.correct


@pytest.mark.parametrize("extractor", sorted(EXTRACTORS))
def test_a_right_answer_behind_a_megabyte_of_anything_is_still_right(extractor: str) -> None:
    answer = r" so \boxed{18}" if extractor == "boxed" else "\n#### 18"
    for kind in ("letters", "digits", "nested braces", "minus signs", "prices", "marks", "lone surrogates"):
        assert grade(HOSTILE[kind] + answer, "18", extractor) == RIGHT, kind
