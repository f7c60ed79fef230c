"""TensorBoard's event files, scalars only, without the package tensorboard.

A file is a sequence of records (TFRecord): length as 8 bytes, a checksum of 4, the data, a checksum of 4. The data are
protocol buffers: Event.summary = 5, Summary.value = 1, Value.tag = 1, .simple_value = 2, .tensor = 8; TensorProto.dtype
= 1, .tensor_content = 4, .float_val = 5, .double_val = 6 (tensorflow/core/framework/summary.proto, tensor.proto).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

HEADER, FOOTER = 12, 4  # bytes around a record's data
FORMS = {1: ("<f", 5), 2: ("<d", 6)}  # dtype -> how a value is packed, and the field for it: float, double
Fields = Iterator[tuple[int, bytes | int]]  # number -> content, or the number itself


def scalars(data: bytes) -> dict[str, list[float]]:
    """Tag -> values in the order in which they were written. Raises `ValueError` for what is no event file.

    A last record that is cut off, as in the file of a run that is still going, is left out.
    """
    found: dict[str, list[float]] = {}
    for event in _records(data):
        for number, summary in _fields(event):
            if number != 5 or isinstance(summary, int):
                continue
            for _, value in _fields(summary):
                if not isinstance(value, int) and (read := _value(value)) is not None:
                    found.setdefault(read[0], []).append(read[1])
    return found


def _records(data: bytes) -> Iterator[bytes]:
    at, whole = 0, 0
    while at + HEADER <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        end = at + HEADER + length
        if end + FOOTER > len(data):
            break
        yield data[at + HEADER : end]
        at, whole = end + FOOTER, whole + 1
    if not whole:
        raise ValueError("it holds no record")


def _value(value: bytes) -> tuple[str, float] | None:
    """(tag, number), or None where it is no scalar."""
    tag, number = "", None
    for field, content in _fields(value):
        if field == 1 and isinstance(content, bytes):
            tag = content.decode("utf-8", "replace")
        elif field == 2 and isinstance(content, bytes) and len(content) == 4:
            number = struct.unpack("<f", content)[0]
        elif field == 8 and isinstance(content, bytes):
            number = _tensor(content)
    return None if number is None else (tag, float(number))


def _tensor(tensor: bytes) -> float | None:
    fields = dict(_fields(tensor))
    form, own = FORMS.get(int(fields.get(1, 0)) if isinstance(fields.get(1, 0), int) else 0, ("", 0))
    content = fields.get(4) or fields.get(own)
    if not form or not isinstance(content, bytes) or len(content) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, content)[0])


def _fields(message: bytes) -> Fields:
    """The fields of a protocol buffer: lengths, fixed numbers as bytes, variable ones as numbers."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            content, at = _varint(message, at)
            yield key >> 3, content
            continue
        if kind not in (1, 2, 5):
            raise ValueError(f"a record has a field of an unknown kind, {kind}")
        size, at = _varint(message, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        if at + size > len(message):
            raise ValueError("a record is shorter than it says")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    number, shift = 0, 0
    while at < len(message):
        byte = message[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if not byte & 128:
            return number, at
    raise ValueError("a record ends within a number")
