r"""The number in the last `\boxed{...}` of a completion, in the plain forms that math-verify accepts.

AReaL and TRL hand the box to math-verify, a symbolic verifier. Here a box holds a number, a fraction or a power of ten
times a number, perhaps behind an equals sign (`x = 18`), set in a font or followed by a unit; all else is wrong.
"""

from __future__ import annotations

import re

BOX = 200  # characters that a box may hold
BOXES = 8  # from the end, of which all but one may be empty
LARGEST_EXPONENT = 30  # of ten
PLACES = 60  # decimal places of a fraction

# LaTeX around a number: spacing, currency and percent signs, `1{,}000`, degrees, a unit in \text{...} and its power.
_AROUND = re.compile(
    r"\\[$%!,;: ]|[%~°]|\{,\}|\^\{?\\circ\}?|\\degree|\\(?:text|mathrm)\{[^{}0-9]*\}(?:\^(?:[0-9]|\{[0-9]\}))?"
)
_FONT = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mathit|mathsf|boldsymbol|bm)\{([^{}]*)\}")
_EQUALS = re.compile(r"=|\\approx")
_BARE = re.compile(r"\s+([-+]?[0-9][0-9.,]*)")
_FRACTION = re.compile(r"([+-]?)\s*\\[dt]?frac(?:\{(-?[0-9]{1,40})\}\{([0-9]{1,40})\}|([0-9])([0-9]))")
_QUOTIENT = re.compile(r"([+-]?)([0-9]{1,40})\s*/\s*([0-9]{1,40})")
_POWER = re.compile(r"([+-]?)([0-9]{1,40})(?:\.([0-9]{1,40}))?\s*\\(?:times|cdot)\s*10\^(?:([0-9])|\{(-?[0-9]{1,2})\})")


def last_box(text: str) -> str | None:
    r"""Return what the last `\boxed{...}` that is not empty holds, as a number where it is one in a plain form.

    None where there is no box, or the last one does not end within `BOX` characters.
    """
    end, content = len(text), None
    for _ in range(BOXES):
        at = text.rfind(r"\boxed", 0, end)
        if at < 0:
            break
        start = at + len(r"\boxed")
        content = _content(text[start : start + BOX + 2])
        if content is None or content.strip():
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
    """Return the number in a box as decimals, or the content without what stands around a number."""
    text = _EQUALS.split(_FONT.sub(r"\1", _AROUND.sub("", content)))[-1].strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    if fraction := _FRACTION.fullmatch(text) or _QUOTIENT.fullmatch(text):
        sign, above, below = (part for part in fraction.groups() if part is not None)
        return _decimal_fraction(int(sign + "1") * int(above), int(below)) or text
    if power := _POWER.fullmatch(text):
        sign, digits, places, short, exponent = power.groups()
        shift = int(short or exponent)
        if abs(shift) <= LARGEST_EXPONENT:
            return _decimals(int(f"{sign}{digits}{places or ''}"), shift - len(places or ""))
    return text


def _decimal_fraction(above: int, below: int) -> str | None:
    """Return above / below in decimals; None where they do not end within `PLACES`, or `below` is 0."""
    scale = 10**PLACES
    if below == 0 or (above * scale) % below:
        return None
    return _decimals(above * scale // below, -PLACES)


def _decimals(number: int, exponent: int) -> str:
    """Return number · 10^exponent without an exponent, and without zeros at its end."""
    if exponent >= 0:
        return str(number * 10**exponent)
    digits = str(abs(number)).rjust(1 - exponent, "0")
    text = f"{digits[:exponent]}.{digits[exponent:]}".rstrip("0").rstrip(".")
    return f"-{text}" if number < 0 else text
