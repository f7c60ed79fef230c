"""JSON objects of a text, one at a time: JSON lines, lists, or text laid out for people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

PIECE = 2**20  # characters that are read at once
LONGEST = 2**22  # characters of one object
BLANK = re.compile(r"\s*")


def objects(stream: TextIO) -> Iterator[Mapping[str, Any]]:
    """The objects of a stream, and those of its lists. Raises `ValueError` with the line for anything else."""
    decode = json.JSONDecoder().raw_decode
    text, at, line = "", 0, 1  # `line` is where `text` begins
    listed, wants = False, "value"  # inside a list; "value", "value or ]" or ", or ]"
    while True:
        at = _after_blanks(text, at)
        if at == len(text):
            line += text.count("\n")
            text, at = stream.read(PIECE), 0
            if text:
                continue
            if listed:
                raise ValueError(f"line {line}: the list does not end")
            return
        letter = text[at]
        if letter == "[" and not listed:
            listed, wants, at = True, "value or ]", at + 1
        elif letter == "]" and wants in ("value or ]", ", or ]"):
            listed, wants, at = False, "value", at + 1
        elif wants == ", or ]":
            if letter != ",":
                raise ValueError(f"line {line + text.count(chr(10), 0, at)}: no comma between two objects")
            wants, at = "value", at + 1
        else:
            try:
                found, end = decode(text, at)
            except RecursionError:
                raise ValueError("it is nested too deeply") from None
            except json.JSONDecodeError as error:
                if len(text) - at < LONGEST and (more := stream.read(PIECE)):  # it may go on there
                    line += text.count("\n", 0, at)
                    text, at = text[at:] + more, 0
                    continue
                raise ValueError(f"line {line + text.count(chr(10), 0, error.pos)}: {error.msg}") from None
            if not isinstance(found, Mapping):
                raise ValueError(f"line {line + text.count(chr(10), 0, at)} is not a JSON object")
            yield found
            at, wants = end, ", or ]" if listed else "value"


def _after_blanks(text: str, at: int) -> int:
    match = BLANK.match(text, at)
    assert match is not None
    return match.end()
