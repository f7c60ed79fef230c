"""A Qwen2 of a few thousand parameters, saved to disk and loaded through the path that users take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="the language half needs the extra `llm`")

from staleharness.language.word_tokens import word_tokenizer  # noqa: E402
from staleharness.policies.causal_lm import CausalLM  # noqa: E402
from staleharness.spec import LanguageSpec  # noqa: E402

WORDS = "Ann has 3 cards. Ben gives 2 more to her.\nHow many? 3+2=5\n#### 5"


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model and tokenizer."""
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = word_tokenizer([WORDS], range(10))
    with torch.random.fork_rng():
        torch.manual_seed(3)
        config = transformers.Qwen2Config(
            vocab_size=len(tokenizer), hidden_size=16, intermediate_size=24, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id, eos_token_id=[tokenizer.eos_token_id, 10, 23], bos_token_id=None,
            initializer_range=0.4,
        )  # fmt: skip
        transformers.Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def spec(tiny: Path) -> Callable[..., LanguageSpec]:
    """A small run on that model; keyword arguments change settings."""

    def make(**settings: Any) -> LanguageSpec:
        small: dict[str, Any] = {
            "env": "word-problems", "algorithm": "ppo_clip", "model": str(tiny), "steps": 4, "prompts": 4,
            "completions": 3, "prompt_tokens": 64, "completion_tokens": 10, "learning_rate": 1e-2,
            "evaluations": 1, "evaluation_problems": 4,
        }  # fmt: skip
        return LanguageSpec.from_dict({**small, **settings})

    return make


@pytest.fixture
def policy(spec: Callable[..., LanguageSpec], tiny: Path) -> Callable[..., CausalLM]:
    return lambda **settings: CausalLM(str(tiny), spec(**settings))
