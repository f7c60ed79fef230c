"""Readers of JSON and of the scalars in TensorBoard's event files, piece by piece in bounded memory.

Event files are read without the package tensorboard: 2.21 takes ten times as long, and 9 GB for a record that announces
3 GB. A file is a sequence of records (TFRecord): length as 8 bytes, a checksum of 4, the data, a checksum of 4; each
checksum is a masked CRC-32C (tensorflow/core/lib/hash/crc32c.h), which no dependency computes. The data are protocol
buffers: Event.step = 2, .summary = 5, Summary.value = 1, Value.tag = 1, .simple_value = 2, .tensor = 8;
TensorProto.dtype = 1, .tensor_content = 4, .float_val = 5, .double_val = 6 (tensorflow/core/framework/summary.proto,
tensor.proto).
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple, TextIO

HEADER, FOOTER = 12, 4  # bytes around a record's data
LONGEST_RECORD = 2**26  # bytes: pictures and graphs are large
LONGEST_CHECKED = 2**16  # bytes: the checksum of a picture or graph takes seconds
FORMS = {1: ("<f", 5), 2: ("<d", 6)}  # dtype -> how a value is packed, and the field for it: float, double
Fields = Iterator[tuple[int, memoryview | int]]  # (field number, bytes; an integer for a varint)


class Scalar(NamedTuple):
    """One number in an event file."""

    tag: str
    step: int
    number: float


def scalars(stream: BinaryIO, tags: Collection[str] | None = None) -> Iterator[Scalar]:
    """Iterate over scalars in file order, of all tags or of some. Raises `ValueError` if the file is no event file, or
    is damaged.

    A last record that is cut off, as of a run in progress, is left out. The data's checksum takes twice as long as all
    else: with `tags`, only records that have these are checked.
    """
    for record, event, checksum in _records(stream):
        is_checked = tags is None and len(event) <= LONGEST_CHECKED
        if is_checked:
            _check(event, checksum, f"the data of record {record}")
        matches = [scalar for scalar in _scalars(event) if tags is None or scalar.tag in tags]
        if matches and not is_checked:
            _check(event, checksum, f"the data of record {record}")
        yield from matches


def _records(stream: BinaryIO) -> Iterator[tuple[int, memoryview, int]]:
    """Iterate over the records' numbers from 1, data, and the checksums of the data."""
    left = os.fstat(stream.fileno()).st_size
    count = 0
    while left >= HEADER:
        header = stream.read(HEADER)
        length, checksum = struct.unpack("<QI", header)
        _check(header[:8], checksum, f"the length of record {count + 1}")
        left -= HEADER + length + FOOTER
        if left < 0:
            break
        if length > LONGEST_RECORD:
            raise ValueError(f"record {count + 1} has {length:,} bytes; at most {LONGEST_RECORD:,} are read")
        content = memoryview(stream.read(length + FOOTER))
        count += 1
        yield count, content[:length], struct.unpack("<I", content[length:])[0]
    if not count:
        raise ValueError("it has no record")


def _table() -> Iterator[int]:
    """Remainders of all bytes by CRC-32C's polynomial, bits reversed."""
    for remainder in range(256):
        for _ in range(8):
            remainder = remainder >> 1 ^ (0x82F63B78 if remainder & 1 else 0)
        yield remainder


TABLE = tuple(_table())


def masked_checksum(content: bytes | memoryview) -> int:
    """Compute the CRC-32C of bytes as TensorFlow writes it: rotated, plus a constant."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _check(content: bytes | memoryview, checksum: int, title: str) -> None:
    if masked_checksum(content) != checksum:
        raise ValueError(f"the checksum of {title} is wrong: the file is damaged, or no event file")


def _scalars(event: memoryview) -> Iterator[Scalar]:
    step, summaries = 0, []
    for field, content in _fields(event):
        if field == 2 and isinstance(content, int):
            step = ((content & 2**64 - 1) ^ 2**63) - 2**63  # two's complement
        elif field == 5 and not isinstance(content, int):
            summaries.append(content)
    for summary in summaries:
        for _, value in _fields(summary):
            if not isinstance(value, int) and (scalar := _value(value)) is not None:
                yield Scalar(scalar[0], step, scalar[1])


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


def _integer(text: str) -> int | str:
    """Parse an integer; one that no double can hold stays text, since Python refuses thousands of digits."""
    return int(text) if len(text) <= 400 else text


def json_objects(stream: TextIO) -> Iterator[Mapping[str, Any]]:
    """Iterate over the objects of a stream, and those of its lists; a last line that is cut off is empty. Raises
    `ValueError` with the line of anything else."""
    decode = json.JSONDecoder(parse_int=_integer).raw_decode
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
                    yield {}  # cut off, as the last line of a run in progress may be
                    return
                place = error.pos
                if error.msg.startswith("Expecting ',' delimiter") or not text[place:].strip():
                    place = len(text[:place].rstrip())  # where something is missing: after the last text
                reason = error.msg.removesuffix(" at").removesuffix(" starting")
                raise ValueError(f"line {line + text.count(chr(10), 0, place)}: {reason}") from None
            if not isinstance(value, Mapping):
                raise ValueError(f"line {line + text.count(chr(10), 0, at)} is not a JSON object")
            yield value
            at, state = end, ", or ]" if in_list else "value"
