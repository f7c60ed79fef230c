r"""Verifiable reward: the final number of a completion, extracted by a published rule, against the gold.

A completion is never evaluated. Work is linear in its length with a small constant, so that a megabyte of anything
costs milliseconds, and text without an answer scores 0 instead of raising.

Boxes: AReaL and TRL hand `\boxed{...}` to math-verify, a symbolic verifier. Here a box holds a number, a fraction, a
mixed number or a number times a power of ten, perhaps after an equals sign (`x = 18`), in brackets, set in a font or
followed by a unit in `\text`. math-verify 0.9.0 accepts all that is accepted here, except two boxes outside `$`, which
it reads as a set, while here the last one counts. Arithmetic, roots and units in plain letters are right there and
wrong here.

One comparison serves all rules: numbers are equal as decimals, so `18` and `18.0` are one answer, as is `18.` outside
a box. OpenAI, verl and lm-eval compare strings, and accept less. TBA compares floats, which also read exponents and
round.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from ..errors import UserError, nearest, shorten

BOX = 200  # characters that a box may hold
BOXES = 8  # from the end, of which all but one may be empty
LARGEST_EXPONENT = 30  # of ten
PLACES = 60  # decimal places of a fraction

# LaTeX around a number: spacing, size, currency and percent signs, and after it degrees or a unit in \text{...}.
_AROUND = re.compile(r"\\[$%!,;: ]|[$%~]|\\q?quad\b|\\displaystyle\b|\\(?:left|right)(?=[^A-Za-z])|\^\{?\\circ\}?")
_UNIT = re.compile(r"(?<=[0-9)} ])\\(?:text|mathrm)\{[^{}0-9]*\}(?:\^(?:[0-9]|\{[0-9]\}))?")
_FONT = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mathit|mathsf)\{([^{}]*)\}")
_EQUALS = re.compile(r"(?:(?<![<>!])=|(?<=.)\\approx)(?!.*(?:=|\\approx))", re.DOTALL)  # the last one, no inequality
_BRACKETS = re.compile(r"\((.*)\)|\[(.*)\]|\\\{(.*)\\\}|\\\((.*)\\\)")
_BARE = re.compile(r"\s+([-+]?[0-9](?:[0-9.,]*[0-9])?)")
_PART = r"(?:\{(-?[0-9]{1,40})\}|([0-9]))"
_FRACTION = re.compile(rf"([+-]?)\s*([0-9]{{1,40}})?\s*\\[dt]?frac\s*{_PART}\s*{_PART}")
_QUOTIENT = re.compile(r"([+-]?)([0-9]{1,40})\s*/\s*([0-9]{1,40})")
_POWER = re.compile(
    r"([+-]?)([0-9]{1,40})(?:\.([0-9]{1,40}))?\s*\\(?:times|cdot)\s*10(?:\^(?:([0-9])|\{(-?[0-9]{1,2})\}))?"
)
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]*)(?:\.[0-9]+)?")


def last_box(text: str) -> str | None:
    r"""Return what the last `\boxed{...}` that is not empty holds, as a number where it is one in a plain form, and in
    braces otherwise.

    None where there is no box, or the last one does not end within `BOX` characters.
    """
    end, content = len(text), None
    for _ in range(BOXES):
        at = text.rfind(r"\boxed", 0, end)
        if at < 0:
            break
        start = at + len(r"\boxed")
        content = _content(text[start : start + BOX + 2])
        if content is None or content:
            break
        end = at
    return None if content is None else _plain_form(content)


def _content(rest: str) -> str | None:
    r"""Return the content of the braces after `\boxed`, or the number without braces; None for braces that do not
    close."""
    if not rest.startswith("{"):
        bare = _BARE.match(rest)
        return bare[1] if bare else None
    depth = 0
    for position, character in enumerate(rest):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[1:position]
    return None


def _plain_form(content: str) -> str:
    """Return the number in a box as decimals, or the content in braces, which is no number."""
    text = _UNIT.sub("", _AROUND.sub("", content.replace("{,}", ",")))
    text = _EQUALS.split(_FONT.sub(r"\1", text))[-1].strip()
    if brackets := _BRACKETS.fullmatch(text):
        text = next(part for part in brackets.groups() if part is not None).strip()
    decimals: str | None = text if _NUMBER.fullmatch(text) else None
    if fraction := _FRACTION.fullmatch(text) or _QUOTIENT.fullmatch(text):
        sign, *integer, above, below = (part for part in fraction.groups() if part is not None)
        decimals = _decimal_fraction(sign, int(integer[0] if integer else 0), int(above), int(below))
    elif power := _POWER.fullmatch(text):
        sign, digits, places, short, exponent = power.groups()
        shift = int(short or exponent or 1)
        if abs(shift) <= LARGEST_EXPONENT:
            decimals = _decimals(int(f"{sign}{digits}{places or ''}"), shift - len(places or ""))
    return f"{{{content}}}" if decimals is None else decimals


def _decimal_fraction(sign: str, integer: int, above: int, below: int) -> str | None:
    """Return ±(integer + above / below) in decimals; None where they do not end within `PLACES`, below is 0, or a mixed
    number has a negative part."""
    scale = 10**PLACES
    if below == 0 or (above * scale) % below or (integer and (above < 0 or below < 0)):
        return None
    return _decimals(int(f"{sign}1") * (integer * scale + above * scale // below), -PLACES)


def _decimals(number: int, exponent: int) -> str:
    """Return number · 10^exponent without an exponent, and without zeros at its end."""
    if exponent >= 0:
        return str(number * 10**exponent)
    digits = str(abs(number)).rjust(1 - exponent, "0")
    text = f"{digits[:exponent]}.{digits[exponent:]}".rstrip("0").rstrip(".")
    return f"-{text}" if number < 0 else text


Extractor = Callable[[str], str | None]

LONGEST = 100  # characters of a number; GSM8K's longest has 11. A longer one is no answer and is never converted.
VERL_TAIL = 300  # characters that verl looks at, from the end

_HASH_MARK = re.compile(r"#### (-?[0-9.,]+)")
_ANY = re.compile(r"-?[0-9.,]+")
_LM_EVAL_REVERSED = re.compile(r"(?:[$0-9.,]{2,}|[0-9])-?")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DIGIT = re.compile(r"[0-9]")
_THOUSANDS = re.compile(r"(?:[-+]?\$?|\$[-+])[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?")
_PLAIN = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)")


@dataclass(frozen=True)
class Grade:
    """Grade of a completion.

    correct: whether the completion is right, for example because the number in it equals the reference answer.
        Evaluations report the share of right completions.
    has_answer: whether an answer was found, such as a number; completions without one are counted as unparsed.
    reward: for training, a number of at most ±1e6; None: 1 where `correct`, else 0.
    """

    correct: bool
    has_answer: bool
    reward: float | None = None

    @property
    def outcome(self) -> float:
        """Reward that training maximises."""
        return float(self.correct) if self.reward is None else self.reward


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
    "flexible": lm_eval_flexible,  # with `strict`, the pair under which scores are published: lm-eval's two filters
    "boxed": last_box,
    "last_number": last_number,
    "lm_eval_strict": first_marked,
    "lm_eval_flexible": lm_eval_flexible,
    "verl_strict": verl_strict,
    "verl_flexible": verl_flexible,
}
