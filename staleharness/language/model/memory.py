"""Memory of a GPU: how many completions go through the model at once, and what is said when it was too many."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ...errors import OOM
from ..spec import LanguageSpec
from .causal_lm import CausalLM

SHARE = 0.8  # of the free memory that activations may take: the estimate is rough, and memory gets fragmented
LOGIT = 24  # bytes per logit at the worst moment: its own in two precisions, what its gradient is summed from


def rows_at_once(policy: CausalLM) -> int:
    """`micro_batch` as the run sets it; where it is 0 as many completions as fit on the GPU, on a CPU 0: all.

    Asked once, before the first step, so that every step of a run is cut in the same way.
    """
    spec = policy.spec
    if spec.micro_batch or policy.device.type != "cuda":
        return spec.micro_batch
    free, _ = torch.cuda.mem_get_info(policy.device)
    reusable = torch.cuda.memory_reserved(policy.device) - torch.cuda.memory_allocated(policy.device)
    return equal_parts(spec.sequences, fitting(spec, policy.model.config, policy.size, free + reusable))


def fitting(spec: LanguageSpec, config: Any, numbers: int, free: int) -> int:
    """Completions that fit into `free` bytes beside gradients and AdamW's state of `numbers` float32; at least 1."""
    left = SHARE * (free - 3 * 4 * numbers)
    return max(1, int(left // completion_bytes(spec, config)))


def completion_bytes(spec: LanguageSpec, config: Any) -> int:
    """What training on one completion of full length holds at its peak: logits, and activations per layer.

    config: transformers' of a decoder with gated layers, which most are; others are near enough.
    """
    width, tokens = int(config.hidden_size), spec.prompt_tokens + spec.completion_tokens
    inner = int(getattr(config, "intermediate_size", None) or 4 * width)
    layers = int(config.num_hidden_layers)
    size = 2 if spec.dtype == "bfloat16" else 4
    # residual stream and norms in float32; queries, keys, values, attention and gated layer as they are computed
    one = tokens * (6 * 4 * width + size * (8 * width + 5 * inner))
    held = one + layers * tokens * 4 * width if spec.gradient_checkpointing else layers * one
    return LOGIT * spec.completion_tokens * int(config.vocab_size) + held


def equal_parts(rows: int, most: int) -> int:
    """The size of the fewest pieces of at most `most` rows that are as equal as can be."""
    return rows if most >= rows else math.ceil(rows / math.ceil(rows / most))


@contextmanager
def explained(policy: CausalLM) -> Iterator[None]:
    """Raise `OOM`, which says what to set, for a GPU that ran out of memory inside."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise OOM(advice(policy.spec, policy.micro_batch)) from error


def advice(spec: LanguageSpec, micro_batch: int) -> str:
    """One line: what ran out at this micro-batch, and the setting that takes less."""
    now = micro_batch or spec.sequences
    what = f"out of memory on {spec.device} with {now} completion{'s' if now > 1 else ''} at once"
    if now > 1:
        return f"{what}; SET=micro_batch={now // 2}"
    if not spec.gradient_checkpointing:
        return f"{what}; SET=gradient_checkpointing=true"
    return (
        f"{what} and checkpointing; SET=completion_tokens={spec.completion_tokens // 2}, or a smaller model"
    )
