"""Verifiable reward: the final number of a completion, extracted by a published rule, against the gold.

A completion is never evaluated. Work is linear in its length with a small constant, so that a megabyte of anything
costs milliseconds, and text without an answer scores 0 instead of raising.

One comparison serves all rules: numbers are equal as decimals, so `18`, `18.0` and `18.` are one answer. OpenAI, verl
and lm-eval compare characters, and accept less. TBA compares floats, which also read exponents and round.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from ..errors import UserError, nearest, shorten
from .boxed_answers import last_box

Extractor = Callable[[str], str | None]

LONGEST = 100  # characters of a number; GSM8K's longest has 11. A longer one is no answer and is never converted.
VERL_TAIL = 300  # characters that verl looks at, from the end

_HASH_MARK = re.compile(r"#### (-?[0-9.,]+)")
_ANY = re.compile(r"-?[0-9.,]+")
_LM_EVAL_REVERSED = re.compile(r"(?:[$0-9.,]{2,}|[0-9])-?")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DIGIT = re.compile(r"[0-9]")
_THOUSANDS = re.compile(r"[-+]?\$?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?")
_PLAIN = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)")


@dataclass(frozen=True)
class Grade:
    """correct: the extracted number equals the gold. has_answer: there is a number."""

    correct: bool
    has_answer: bool


def grade(text: str, answer: str, extractor: str) -> Grade:
    """Grade a completion against the gold number `answer` by the rule called `extractor`.

    Never raises for any `text`. Raises `UserError` for an unknown extractor, `ValueError` for a gold that is not a
    number (a fault of the data, which must not be counted as wrong answers).
    """
    gold = number(answer)
    if gold is None:
        raise ValueError(f"the gold answer {shorten(answer)!r} is not a number")
    answer_text = find_extractor(extractor)(text)
    value = None if answer_text is None else number(answer_text)
    return Grade(correct=value == gold, has_answer=value is not None)


def find_extractor(name: str) -> Extractor:
    """Return the rule called `name`. Raises `UserError` with the nearest known name."""
    if name not in EXTRACTORS:
        raise UserError(f"no extractor is called {shorten(name)!r}; {nearest(name, EXTRACTORS)}")
    return EXTRACTORS[name]


def number(text: str) -> Decimal | None:
    """Return `text` as a number after `plain`, or None. Only decimals in ASCII digits: no exponent, no NaN, no `_`.

    Without exponents, and with at most `LONGEST` characters, conversion and comparison are exact and cheap whatever
    the precision, range or traps of the caller's decimal context.
    """
    if len(text) > LONGEST:
        return None
    text = plain(text)
    return Decimal(text) if _PLAIN.fullmatch(text) else None


def plain(text: str) -> str:
    """Return `text` without outer white space, thousands separators, dollar signs and one full stop at its end."""
    return text.replace(",", "").replace("$", "").strip().removesuffix(".")


def has_odd_commas(text: str) -> bool:
    """Return whether a number has commas that do not group its thousands, such as a decimal comma."""
    return "," in text and not _THOUSANDS.fullmatch(text.strip())


def first_marked(text: str) -> str | None:
    """Return the first `#### <number>`. OpenAI's grade-school-math, and the strict-match filter of lm-eval's gsm8k."""
    match = _HASH_MARK.search(text)
    return match[1] if match else None


def verl_strict(text: str) -> str | None:
    """Return the last `#### <number>` in the last 300 characters. verl, utils/reward_score/gsm8k.py, "strict"."""
    matches = _HASH_MARK.findall(text[-VERL_TAIL:])
    return matches[-1] if matches else None


def verl_flexible(text: str) -> str | None:
    """Return the last number-like run in the last 300 characters that is not a lone full stop. verl, "flexible"."""
    runs = [run for run in _ANY.findall(text[-VERL_TAIL:]) if run != "."]
    return runs[-1] if runs else None


def lm_eval_flexible(text: str) -> str | None:
    """Return the last match of `(-?[$0-9.,]{2,})|(-?[0-9]+)`. lm-eval's gsm8k, filter flexible-extract.

    A run has no neighbours of its own kind, so read backwards the last match is the first: one short look at the end
    instead of a walk through the whole text.
    """
    match = _LM_EVAL_REVERSED.search(text[::-1])
    return match[0][::-1] if match else None


def last_number(text: str) -> str | None:
    """Return the last number anywhere, commas removed first. TBA (Bartoldson et al. 2025), src/gsm8k_utils.py.

    An exponent is part of it, so that `1e18` is not read as 18; `number` then refuses it.
    """
    text = text.replace(",", "")
    match = _DIGIT.search(text[::-1])
    if match is None:
        return None
    end = len(text) - match.start()
    # The number ends here, or with a point after its last digit. Cut at the front, it stays too long for `number`.
    numbers: list[str] = _FLOAT.findall(text[max(0, end - LONGEST - 1) : end + 1])
    return numbers[-1]


EXTRACTORS: dict[str, Extractor] = {
    "strict": first_marked,
    "flexible": lm_eval_flexible,  # with `strict` the pair that scores are published under: lm-eval's two filters
    "boxed": last_box,
    "last_number": last_number,
    "lm_eval_strict": first_marked,
    "lm_eval_flexible": lm_eval_flexible,
    "verl_strict": verl_strict,
    "verl_flexible": verl_flexible,
}
