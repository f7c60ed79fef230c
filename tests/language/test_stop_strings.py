"""Stops are found on the bytes of tokens where the text of the tokens holds them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from language_fixtures import Policies
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from staleharness.language.stop_strings import StopStrings, token_bytes

TEXT = ["Question: what?\n\nAnswer: 12 é é 日本 日本語 🙂🙂 é\n", "</answer> naïve — “quoted” ÿ\u00ad"]
STOPS = ["\n\n", "Question:", "é", "日本", "🙂", "</answer>", " ", "ÿ", "<|end|>", "\u00ad"]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """Byte pairs of a few texts over all 256 bytes, with an added token."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(TEXT * 3, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet))
    backend.add_special_tokens(["<|end|>", "<|日本|>"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False)


def test_stops_on_bytes_are_those_of_the_text(tokenizer: Any) -> None:
    assert token_bytes(tokenizer) is not None
    rng, character_of = random.Random(0), bytes_to_unicode()
    rows = [[rng.randrange(len(tokenizer)) for _ in range(rng.randrange(12))] for _ in range(300)]
    for text in (*STOPS, *TEXT):  # cut anywhere, so that characters are split among tokens and cut at either end
        ids = tokenizer(text)["input_ids"]
        by_bytes = [tokenizer.convert_tokens_to_ids(character_of[byte]) for byte in text.encode()]
        for row in (ids, by_bytes):
            rows += [row, row[1:], row[:-1], [rng.randrange(256), *row[1:], rng.randrange(256)]]
    for stops in (STOPS[:2], STOPS[2:5], [STOPS[5]], STOPS[6:], ["日本|>"], ["\n\nAnswer"], ["\ufffd"]):
        search = StopStrings(tokenizer, stops)
        wanted = [i for i, row in enumerate(rows) if search.are_in(row)]
        assert search.rows_with(rows) == wanted and wanted


def test_a_stop_does_not_reach_from_one_row_to_the_next(tokenizer: Any) -> None:
    newline = tokenizer("\n")["input_ids"]
    search = StopStrings(tokenizer, ["\n\n"])
    assert search.rows_with([newline, newline, [], newline * 2, newline]) == [3]


def test_tokens_of_the_model_alone_have_no_text(tokenizer: Any) -> None:
    first, newline = len(tokenizer), tokenizer("\n")["input_ids"]  # embeddings of a model are often a rounded number
    search = StopStrings(tokenizer, ["\n\n"])
    for token in (first, first + 1, first + 100):
        rows = [[token], newline * 2, newline, [*newline, token, *newline], [*newline, token]]
        assert search.rows_with(rows) == [i for i, row in enumerate(rows) if search.are_in(row)] == [1, 3]


def test_numbers_of_tokens_may_have_gaps() -> None:
    backend = Tokenizer(models.BPE({character: 3 * i for i, character in enumerate(bytes_to_unicode().values())}, []))
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False)
    newline = tokenizer.convert_tokens_to_ids(bytes_to_unicode()[10])
    search = StopStrings(tokenizer, ["\n\n", "ÿ"])
    last = [tokenizer.convert_tokens_to_ids(bytes_to_unicode()[byte]) for byte in "ÿ".encode()]
    assert search.rows_with([[newline], [newline, newline + 1, newline], last]) == [1, 2]


def test_other_tokenizers_are_asked_for_the_text(policy: Policies) -> None:
    words = policy().tokenizer
    assert token_bytes(words) is None
    row = words("the answer")["input_ids"]
    search = StopStrings(words, [words.decode(row)])
    assert search.rows_with([row[:1], row]) == [1]
