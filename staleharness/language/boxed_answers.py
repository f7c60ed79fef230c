r"""The number in the last `\boxed{...}` of a completion, in the plain forms that math-verify accepts.

AReaL and TRL hand the box to math-verify, a symbolic verifier. Here a box holds a number, a fraction, a mixed number or
a number times a power of ten, perhaps behind an equals sign (`x = 18`), in brackets, set in a font or followed by a
unit in `\text`. What is accepted, math-verify 0.9.0 accepts as well, but for two boxes outside of `$`, which it takes
for a set and of which the last counts here; arithmetic, roots and units in plain letters are wrong here alone.
"""

from __future__ import annotations

import re

BOX = 200  # characters that a box may hold
BOXES = 8  # from the end, of which all but one may be empty
LARGEST_EXPONENT = 30  # of ten
PLACES = 60  # decimal places of a fraction

# LaTeX around a number: spacing, size, currency and percent signs, and behind it degrees or a unit in \text{...}.
_AROUND = re.compile(r"\\[$%!,;: ]|[$%~]|\\q?quad\b|\\displaystyle\b|\\(?:left|right)(?=[^A-Za-z])|\^\{?\\circ\}?")
_UNIT = re.compile(r"(?<=[0-9)} ])\\(?:text|mathrm)\{[^{}0-9]*\}(?:\^(?:[0-9]|\{[0-9]\}))?")
_FONT = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mathit|mathsf)\{([^{}]*)\}")
_EQUALS = re.compile(r"(?:=|(?<=.)\\approx)(?!.*(?:=|\\approx))", re.DOTALL)  # the last one
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
    r"""Return what stands in the braces behind `\boxed`, or the number without braces; None for braces that do not
    end."""
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
        sign, *integer, above, below = _parts(fraction)
        decimals = _decimal_fraction(sign, int(integer[0] if integer else 0), int(above), int(below))
    elif power := _POWER.fullmatch(text):
        sign, digits, places, short, exponent = power.groups()
        shift = int(short or exponent or 1)
        if abs(shift) <= LARGEST_EXPONENT:
            decimals = _decimals(int(f"{sign}{digits}{places or ''}"), shift - len(places or ""))
    return f"{{{content}}}" if decimals is None else decimals


def _parts(fraction: re.Match[str]) -> list[str]:
    return [part for part in fraction.groups() if part is not None]


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
