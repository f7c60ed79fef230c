"""Search for stop strings in sampled tokens."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

REPLACEMENT = "\ufffd"  # what bytes that are not UTF-8 are decoded to
SEPARATOR = b"\xff"  # after each row: not a byte of UTF-8


class TokenBytes(NamedTuple):
    """Bytes of all tokens one after the other, then `SEPARATOR`, and where each begins [V + 2]."""

    content: NDArray[np.uint8]
    begin: NDArray[np.int64]

    def join(self, rows: Sequence[Sequence[int]]) -> tuple[bytes, NDArray[np.int64]]:
        """Return the bytes of rows of tokens, with `SEPARATOR` after each row, and where each row ends [R]."""
        separator = len(self.begin) - 2  # its number, after those of all tokens
        ids = np.array([token for row in rows for token in (*row, -1)], np.int64)
        is_end = ids == -1
        is_unknown = ids >= separator  # a model may have more tokens than its tokenizer; they have no text
        ids[is_end | is_unknown] = separator
        begin = self.begin[ids]
        size = (self.begin[ids + 1] - begin) * ~is_unknown
        ends = size.cumsum()
        place = np.arange(size.sum()) - np.repeat(ends - size, size) + np.repeat(begin, size)
        return self.content[place].tobytes(), ends[is_end]


@functools.lru_cache(maxsize=4)
def token_bytes(tokenizer: Any) -> TokenBytes | None:
    """Return the bytes of each token; None where decoding is more than putting bytes one after the other."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if type(getattr(backend, "decoder", None)).__name__ != "ByteLevel" or tokenizer.clean_up_tokenization_spaces:
        return None
    names = tokenizer.convert_ids_to_tokens(range(max(tokenizer.get_vocab().values()) + 1))
    byte_of = {character: byte for byte, character in bytes_to_unicode().items()}
    parts = []
    for name in names:
        name = name or ""  # an id without a token
        is_bytes = all(character in byte_of for character in name)
        parts.append(bytes(byte_of[character] for character in name) if is_bytes else name.encode())
    parts.append(SEPARATOR)
    return TokenBytes(np.frombuffer(b"".join(parts), np.uint8), np.cumsum([0, *map(len, parts)]))


class StopStrings:
    """Strings that end a completion, and the tokenizer that tells whether tokens hold one."""

    def __init__(self, tokenizer: Any, stops: Sequence[str]) -> None:
        self.tokenizer, self.stops = tokenizer, tuple(stops)
        # a tail of this many tokens holds any stop that ends in its last one, however few bytes a token has
        self.tail = 1 + max((len(stop.encode()) for stop in self.stops), default=0)

    def are_in(self, ids: Sequence[int]) -> bool:
        """Return whether the text of these tokens holds a stop."""
        text = self.tokenizer.decode(ids)
        return any(stop in text for stop in self.stops)

    def rows_with(self, rows: Sequence[Sequence[int]]) -> list[int]:
        """Return which rows of tokens hold a stop.

        A stop is UTF-8, in which no character's bytes begin inside another's: the text holds it where the bytes do.
        """
        table = token_bytes(self.tokenizer)
        if table is None or any(REPLACEMENT in stop or not stop for stop in self.stops):
            return [i for i, row in enumerate(rows) if self.are_in(row)]
        content, ends = table.join(rows)
        matches = set()
        for stop in self.stops:
            at = content.find(pattern := stop.encode())
            while at >= 0:
                row = int(ends.searchsorted(at, "right"))
                matches.add(row)
                at = content.find(pattern, int(ends[row]))  # of the next row
        return sorted(matches)
