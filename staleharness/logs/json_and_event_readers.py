"""Readers of JSON and of the scalars in TensorBoard's event files, piece by piece in bounded memory.

Event files are read without the package tensorboard: 2.21 takes ten times as long, and 9 GB for a record that announces
3 GB. A file is a sequence of records (TFRecord): length as 8 bytes, a checksum of 4, the data, a checksum of 4. The
data are protocol buffers: Event.summary = 5, Summary.value = 1, Value.tag = 1, .simple_value = 2, .tensor = 8;
TensorProto.dtype = 1, .tensor_content = 4, .float_val = 5, .double_val = 6 (tensorflow/core/framework/summary.proto,
tensor.proto).
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, TextIO

HEADER, FOOTER = 12, 4  # bytes around a record's data
LONGEST_RECORD = 2**26  # bytes: pictures and graphs are large
FORMS = {1: ("<f", 5), 2: ("<d", 6)}  # dtype -> how a value is packed, and the field for it: float, double
Fields = Iterator[tuple[int, memoryview | int]]  # (field number, bytes; an integer for a varint)


def scalars(stream: BinaryIO) -> Iterator[tuple[str, float]]:
    """Iterate over (tag, value) in file order. Raises `ValueError` if the file is not an event file.

    A truncated last record, as of a run in progress, is left out.
    """
    for event in _records(stream):
        for field, summary in _fields(event):
            if field != 5 or isinstance(summary, int):
                continue
            for _, value in _fields(summary):
                if not isinstance(value, int) and (scalar := _value(value)) is not None:
                    yield scalar


def _records(stream: BinaryIO) -> Iterator[memoryview]:
    left = os.fstat(stream.fileno()).st_size
    count = 0
    while left >= HEADER:
        (length,) = struct.unpack_from("<Q", stream.read(HEADER))
        left -= HEADER + length + FOOTER
        if left < 0:
            break
        if length > LONGEST_RECORD:
            raise ValueError(f"record {count + 1} has {length:,} bytes; at most {LONGEST_RECORD:,} are read")
        yield memoryview(stream.read(length + FOOTER))[:length]
        count += 1
    if not count:
        raise ValueError("it has no record")


def _value(value: memoryview) -> tuple[str, float] | None:
    """Decode (tag, number); None where it is not a scalar."""
    tag, number = "", None
    for field, content in _fields(value):
        if field == 1 and isinstance(content, memoryview):
            tag = bytes(content).decode("utf-8", "replace")
        elif field == 2 and isinstance(content, memoryview) and len(content) == 4:
            number = struct.unpack("<f", content)[0]
        elif field == 8 and isinstance(content, memoryview):
            number = _tensor(content)
    return None if number is None else (tag, float(number))


def _tensor(tensor: memoryview) -> float | None:
    fields = dict(_fields(tensor))
    form, typed_field = FORMS.get(int(fields.get(1, 0)) if isinstance(fields.get(1, 0), int) else 0, ("", 0))
    content = fields.get(4) or fields.get(typed_field)
    if not form or not isinstance(content, memoryview) or len(content) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, content)[0])


def _fields(message: memoryview) -> Fields:
    """Iterate over (field number, content) of a protocol buffer: varints as integers, all else as bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire_type = key & 7
        if wire_type == 0:
            content, at = _varint(message, at)
            yield key >> 3, content
            continue
        if wire_type not in (1, 2, 5):
            raise ValueError(f"a record has a field of an unknown wire type, {wire_type}")
        size, at = _varint(message, at) if wire_type == 2 else ({1: 8, 5: 4}[wire_type], at)
        if at + size > len(message):
            raise ValueError("a record is shorter than it says")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    number, shift = 0, 0
    while at < len(message):
        byte = message[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if not byte & 128:
            return number, at
    raise ValueError("a record ends within a number")


CHARACTERS = 2**20  # of JSON that are read at once
LONGEST_OBJECT = 2**22  # characters
SOLID = re.compile(r"\S")  # a character that is not white space


def json_objects(stream: TextIO) -> Iterator[Mapping[str, Any]]:
    """Iterate over the objects of a stream, and those of its lists; a last line that is cut off is left out. Raises
    `ValueError` with the line of anything else."""
    decode = json.JSONDecoder().raw_decode
    text, at, line, last = "", 0, 1, 1  # lines: where `text` begins, and the last one that is not blank
    in_list, state = False, "value"  # inside a list; "value", "value or ]" or ", or ]"
    while True:
        at = match.start() if (match := SOLID.search(text, at)) else len(text)
        if at == len(text):
            last = line + text.count("\n", 0, len(text.rstrip())) if text.strip() else last
            line += text.count("\n")
            text, at = stream.read(CHARACTERS), 0
            if text:
                continue
            if in_list:
                raise ValueError(f"line {last}: the list does not end")
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
                is_short = len(text) - at < LONGEST_OBJECT
                if is_short and (chunk := stream.read(CHARACTERS)):  # the object may go on in it
                    line += text.count("\n", 0, at)
                    text, at = text[at:] + chunk, 0
                    continue
                is_last = is_short and line + text.count("\n", 0, at) > 1 and not text.endswith(("\n", "}"))
                if is_last and letter == "{" and not in_list:
                    return  # cut off, as the last line of a run in progress may be
                place = error.pos
                if error.msg.startswith("Expecting ',' delimiter") or not text[place:].strip():
                    place = len(text[:place].rstrip())  # where something is missing: after the last text
                reason = error.msg.removesuffix(" at").removesuffix(" starting")
                raise ValueError(f"line {line + text.count(chr(10), 0, place)}: {reason}") from None
            if not isinstance(value, Mapping):
                raise ValueError(f"line {line + text.count(chr(10), 0, at)} is not a JSON object")
            yield value
            at, state = end, ", or ]" if in_list else "value"
