"""A word-level tokenizer whose decoded text is the encoded text, space for space."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

PAD, EOS, UNK = "<pad>", "<eos>", "<unk>"

# A word includes the space before it, and the one after it where a number follows; numbers stand alone. So no token
# is spent on spaces, a number is the same token wherever it occurs, and nothing is lost.
PIECE = r" ?[A-Za-z]+(?: (?=[0-9]))?|[0-9]+|#+ ?|[^A-Za-z0-9]"


def word_tokenizer(texts: Iterable[str], numbers: Iterable[int] = ()) -> Any:
    """A `PreTrainedTokenizerFast` that knows the pieces of `texts` and `numbers`; anything else is `<unk>`.

    Pads on the left, as generation requires. Nothing is added around a text: the caller appends `<eos>`.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = {piece for text in texts for piece in re.findall(PIECE, text)}
    pieces -= {piece for piece in pieces if piece.isdecimal()}
    vocabulary = [PAD, EOS, UNK, *map(str, sorted({*numbers})), *sorted(pieces)]
    tokenizer = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(vocabulary)}, unk_token=UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(PIECE), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNK,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
