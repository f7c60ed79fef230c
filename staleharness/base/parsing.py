"""Strict parsing of user input: lists, assignments, `name[option=value]`, TOML. A mistake is reported in one line."""

from __future__ import annotations

import json
import re
import sys
import tomllib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserError, shorten

LARGEST = 2**63 - 1  # of a whole number, so that every format can hold it
VALUE_OR_CHARACTER = re.compile(r'(?<==)"(?:[^"\\]|\\.)*"(?=[\s,\]]|$)|.', re.DOTALL)  # in a list


@dataclass(frozen=True)
class PluginChoice:
    """Plugin and options as typed by the user: `vaco` or `vaco[delta=0.1,trust_region=clip]`."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """`name`, or `name[option=value,...]` with the options sorted."""
        inside = ",".join(f"{key}={format_value(value)}" for key, value in sorted(self.options.items()))
        return f"{self.name}[{inside}]" if inside else self.name


def split_choice(text: str) -> tuple[str, str | None, str | None] | None:
    """Split `name[inside]` or `name:value` into (name, inside, value), with None for an absent part; None for other
    text."""
    match = re.fullmatch(r"([\w.-]+)(?:\[(.*)\]|:(.+))?", text)
    return match and (match[1], match[2], match[3])


def split_at_last_slash(text: str) -> tuple[str, str]:
    """Split at the last `/` outside of brackets; the first part is empty where there is none."""
    depth = 0
    for i in range(len(text) - 1, -1, -1):
        depth += (text[i] == "]") - (text[i] == "[")
        if text[i] == "/" and depth == 0:
            return text[:i], text[i + 1 :]
    return "", text


def parse_choice(text: str) -> PluginChoice:
    """Parse `name` or `name[option=value,...]`. Values are read as TOML where possible, otherwise as text.

    Raises `UserError` for anything else, and for an option given twice.
    """
    name, inside, value = split_choice(text.strip()) or ("", None, "")
    if value is not None:
        raise UserError(f"ALGO={text!r} is neither a name nor name[option=value,...]")
    return PluginChoice(name, parse_assignments(inside or "", f"ALGO={text!r}"))


def without_n(label: str) -> str:
    """Remove the forward lag from an algorithm's label: `vaco[delta=0.05] N=4` is `vaco[delta=0.05]`."""
    return label.partition(" N=")[0]


def parse_assignments(text: str, where: str) -> dict[str, Any]:
    """`key=value,key=value` -> {key: value}, values as of `parse_value`. Raises `UserError` for a key given twice."""
    values: dict[str, Any] = {}
    for part in split_list(text):
        key, _, value = map(str.strip, part.partition("="))
        if not key or not value:
            raise UserError(f"{where}: {part!r} is not option=value")
        if key in values:
            raise UserError(f"{where} gives {key} more than once")
        values[key] = parse_value(value)
    return values


def parse_value(text: str) -> Any:
    """Parse a TOML value; anything else is text, and so is `nan`, which no setting can be."""
    if text.lstrip("+-") == "nan":
        return text
    if re.fullmatch(r"[+-]?((\d+\.?\d*|\.\d+)[eE][+-]?\d+|\.\d+)", text):
        return float(text)  # TOML wants digits on both sides of the point; people write 1e-3 and .5
    try:
        content = tomllib.loads(f"value = {text}")
        str(content)  # raises where a number has more digits than Python writes
    except (tomllib.TOMLDecodeError, ValueError, RecursionError):
        return text
    return content["value"] if len(content) == 1 else text  # a line break would begin a second key


def format_value(value: Any) -> str:
    """Format an option's value as it is typed after `=`; the inverse of `parse_value`, whole for `split_list`."""
    if isinstance(value, str) and value and (parse_value(value) != value or not _is_one_entry(value)):
        return json.dumps(value, ensure_ascii=False)
    return value_text(value)


def _is_one_entry(text: str) -> bool:
    try:
        return split_list(text) == [text]
    except UserError:
        return False


def split_list(text: str) -> list[str]:
    """Split at commas and white space outside brackets: `a,b[c=1,d=2] e` -> three parts; white space alone has none. A
    value in double quotes stays whole: `a="b, c"`.

    Raises `UserError` for an unpaired bracket, and for a comma with nothing before or after it."""
    entries: list[list[str]] = [[""]]  # between commas, each split at white space
    depth = 0
    for character in VALUE_OR_CHARACTER.findall(text):
        depth += (character == "[") - (character == "]")
        if depth < 0:
            break
        if depth == 0 and character == ",":
            entries.append([""])
        elif depth == 0 and character.isspace():
            entries[-1].append("")
        else:
            entries[-1][-1] += character
    if depth != 0:
        raise UserError(f"{shorten(text)!r} has an unmatched bracket; write name[option=value,...]")
    if len(entries) > 1 and not all(map(any, entries)):
        raise UserError(f"{shorten(text)!r} has an empty entry: take out the comma that has nothing before or after it")
    return [part for entry in entries for part in entry if part]


def is_empty(text: str) -> bool:
    """Return whether the text is white space and commas alone, as of a shell variable that is not set."""
    return not text.replace(",", " ").strip()


def whole_number(text: str, name: str) -> int:
    """Parse a whole number as people type it: `8`, `1_000_000`, `1e6`, `3.2e6`. Raises `UserError` with `name`."""
    plain = text.strip().replace("_", "").lower()
    match = re.fullmatch(r"([+-]?\d+)(?:\.(\d+))?(?:e\+?(\d{1,2}))?", plain, re.ASCII)
    mantissa, fraction, exponent = match.groups("") if match else ("", "", "")
    fraction = fraction.rstrip("0")
    zeros = int(exponent or 0) - len(fraction)
    if match is None or (fraction and zeros < 0):
        raise UserError(f"{name}={shorten(text)!r} is not a whole number")
    digits = mantissa + fraction
    number: int = int(digits[:30]) * 10**zeros
    if len(digits) > 30 or abs(number) > LARGEST:
        raise UserError(f"{name}={shorten(text)} is too large; at most {LARGEST}")
    return number


def canonical_json(content: Any) -> str:
    """JSON text with sorted keys, no white space and no NaN."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file as plain data. Raises `UserError` for a missing or broken file, with the place."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # with or without a byte order mark
        str(content)  # raises where a number has more digits than Python writes
        return content
    except OSError as error:
        raise UserError(f"spec file {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, of a number with too many digits
        raise UserError(f"spec file {path} is not TOML: {error}") from error


def value_text(value: Any) -> str:
    """Write a value as users type it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return float.__repr__(value)  # as JSON has it, but for `inf`
    return value if isinstance(value, str) else json.dumps(value, default=str)


def user_path(text: str) -> Path:
    """Path as typed, `~` expanded. Raises `UserError` for text that cannot be a path."""
    if any(unicodedata.category(c) == "Cc" for c in text):
        character = "a NUL" if "\0" in text else "a line break or another control character"
        raise UserError(f"{shorten(text)!r} is not a path: it has {character} in it")
    if any(unicodedata.category(c) == "Cs" for c in text):  # surrogates: bytes that cannot be decoded
        if (encoding := sys.getfilesystemencoding()) != "utf-8":
            raise UserError(
                f"{shorten(text)!r} cannot be read as a path: this locale is not UTF-8 but {encoding}; set "
                "PYTHONUTF8=1, or a UTF-8 locale such as LC_ALL=C.UTF-8"
            )
        raise UserError(f"{shorten(text)!r} is not a path in UTF-8, which tables and reports need; rename it")
    try:
        path = Path(text).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"{shorten(text)!r} is not a path: {getattr(error, 'strerror', error)}") from error
    return path
