"""Word problems with a tiny mixture of experts that is warm-started on the same lessons.

A router chooses the experts of each token, so a sampler that differs slightly from the trainer sends some tokens to
other experts: see `routing_replay` and docs/mismatch.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from staleharness.base.plugins import source_file, source_hash
from staleharness.language.spec import LanguageSpec
from staleharness.spec import RunSpec
from staleharness.task import ENVS

WordProblems: Any = ENVS["word-problems"]
words: Any = sys.modules[WordProblems.__module__]
EXPERTS, ACTIVE = 8, 2


def config() -> Any:
    """Return the configuration of a Qwen3-MoE: two layers of eight experts, two active per token, 113k parameters."""
    from transformers import Qwen3MoeConfig

    dense = words.config()
    shape = "hidden_size num_hidden_layers num_attention_heads num_key_value_heads max_position_embeddings"
    vocabulary = "tie_word_embeddings initializer_range vocab_size pad_token_id eos_token_id bos_token_id"
    return Qwen3MoeConfig(
        **{name: getattr(dense, name) for name in f"{shape} {vocabulary}".split()},
        head_dim=dense.hidden_size // dense.num_attention_heads,
        intermediate_size=64,  # for dense layers, of which there are none
        moe_intermediate_size=24,
        num_experts=EXPERTS,
        num_experts_per_tok=ACTIVE,
        norm_topk_prob=True,
    )


@ENVS.register("word-problems-moe")
class WordProblemsMoE(WordProblems):  # type: ignore[misc]
    """Generated grade-school word problems, and a tiny mixture of experts warm-started on other such problems."""

    ids: ClassVar[dict[str, str]] = {
        "word-problems-moe": "the same problems, a tiny mixture of experts; CPU, no download"
    }
    preload: ClassVar[tuple[str, ...]] = (
        *WordProblems.preload[:-1],
        "transformers.models.qwen3_moe.modeling_qwen3_moe",
    )
    mixture: ClassVar[bool] = True

    @classmethod
    def identified(cls, spec: RunSpec) -> RunSpec:
        """Identify the problems by the code of the file that generates them."""
        spec = super().identified(spec)
        assert isinstance(spec, LanguageSpec)
        return spec if spec.data else replace(spec, data_digest=source_hash(WordProblems))

    def model(self, spec: LanguageSpec, progress: Callable[[str], None]) -> str:
        """Return the folder of the model and its tokenizer; the model is trained first if it is not cached."""
        from staleharness.language.supervised_learning import WarmStart, warm_start

        if spec.model:
            return spec.model

        def example(index: int) -> tuple[str, str]:
            problem = words.lesson(index)
            return words.prompt(problem), problem.solution

        def report(step: int, loss: float) -> None:
            if step % 50 == 0:
                progress(f"warm start: step {step}, loss {loss:.2f}")

        settings = WarmStart(steps=400, learning_rate=6e-3)
        sources = [Path(__file__), Path(source_file(WordProblems))]
        return str(warm_start(example, words.tokenizer(), config(), settings, sources, report))
