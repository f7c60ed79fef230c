"""A language model of a few thousand random parameters, and problems that it solves now and then."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

WORDS = "Ann has 3 cards. Ben gives 2 more to her.\nHow many? 3+2=5\n#### 5"
PROBLEMS = 12


def tiny_config(words: int, kind: str = "Qwen2", **changes: Any) -> Any:
    """A configuration of a few thousand parameters; `changes` override its sizes."""
    import transformers

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.4}
    return getattr(transformers, f"{kind}Config")(vocab_size=words, **{**sizes, **heads, **changes})


def write_model(folder: Path, numbers: Iterable[int] = range(10), kind: str = "Qwen2", **changes: Any) -> None:
    """A Qwen2 with two layers and a tokenizer of single words, and of these numbers; or a model of another kind."""
    import transformers

    from staleharness.language.word_tokenizer import word_tokenizer

    tokenizer = word_tokenizer([WORDS], numbers)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        ends = {"eos_token_id": [tokenizer.eos_token_id, 10, 23], "pad_token_id": tokenizer.pad_token_id}
        sizes = {"max_position_embeddings": 64, "tie_word_embeddings": True, "bos_token_id": None}
        config = tiny_config(len(tokenizer), kind, **sizes, **ends, **changes)
        getattr(transformers, f"{kind}ForCausalLM")(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_problems(folder: Path, digit: int = 5) -> None:
    """train.jsonl and test.jsonl: the answer is the digit that the model says most, 7 of the mixture of experts."""
    for split, first in (("train", 0), ("test", PROBLEMS)):
        rows = [
            {"question": f"Ann has {i} cards. How many?", "answer": f"#### {digit}"}
            for i in range(first, first + PROBLEMS)
        ]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
