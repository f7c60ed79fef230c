"""The objects of a stream of JSON, one after the other: lines, lists, or indented, in bounded memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

CHARACTERS = 2**20  # of JSON that are read at once
LONGEST = 2**22  # characters of one object
BLANK = re.compile(r"\s*")


def json_objects(stream: TextIO) -> Iterator[Mapping[str, Any]]:
    """Iterate over the objects of a stream, and those of its lists. Raises `ValueError` with the line of anything
    else."""
    decode = json.JSONDecoder().raw_decode
    text, at, line = "", 0, 1  # `line` is where `text` begins
    in_list, state = False, "value"  # inside a list; "value", "value or ]" or ", or ]"
    while True:
        at = _after_blanks(text, at)
        if at == len(text):
            line += text.count("\n")
            text, at = stream.read(CHARACTERS), 0
            if text:
                continue
            if in_list:
                raise ValueError(f"line {line}: the list does not end")
            return
        letter = text[at]
        if letter == "[" and not in_list:
            in_list, state, at = True, "value or ]", at + 1
        elif letter == "]" and state in ("value or ]", ", or ]"):
            in_list, state, at = False, "value", at + 1
        elif state == ", or ]":
            if letter != ",":
                raise ValueError(f"line {line + text.count(chr(10), 0, at)}: no comma between two objects")
            state, at = "value", at + 1
        else:
            try:
                value, end = decode(text, at)
            except RecursionError:
                raise ValueError("it is nested too deeply") from None
            except json.JSONDecodeError as error:
                if len(text) - at < LONGEST and (more := stream.read(CHARACTERS)):  # it may go on there
                    line += text.count("\n", 0, at)
                    text, at = text[at:] + more, 0
                    continue
                raise ValueError(f"line {line + text.count(chr(10), 0, error.pos)}: {error.msg}") from None
            if not isinstance(value, Mapping):
                raise ValueError(f"line {line + text.count(chr(10), 0, at)} is not a JSON object")
            yield value
            at, state = end, ", or ]" if in_list else "value"


def _after_blanks(text: str, at: int) -> int:
    match = BLANK.match(text, at)
    assert match is not None
    return match.end()
