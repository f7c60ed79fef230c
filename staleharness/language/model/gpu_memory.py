"""Memory of a GPU: how many completions and versions fit, by arithmetic from a model's shape, and what to set if not.

The estimates are rough and err on the safe side; tests compare them with the allocations of passes over meta tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ...errors import OOM
from ..spec import LanguageSpec
from .causal_lm_policy import CausalLM
from .kv_cache import READ_TOKENS
from .native_forward_backward import CHUNK
from .scoring import BYTES, MIN_ROWS

SHARE = 0.8  # of the free memory that activations may take: the estimate is rough, and memory gets fragmented
VERSIONS = 0.5  # of what training leaves, for past versions
LOGIT = 24  # bytes per logit at the worst moment: its own in two precisions, terms of its gradient
SAMPLING_LOGIT = 16  # bytes per logit of a sampled token: its own in two precisions, probabilities, their blocks
HEAD_MULTIPLE = {2: 8, 4: 4}  # bytes of a number -> divisor of a head's width that the fused kernels need


def fit_to_memory(policy: CausalLM) -> None:
    """Set how much goes through the model at once and how many versions stay on the device, before the first step, so
    that every step of a run is cut in the same way. On a CPU: all at once, and no version stays.
    """
    spec, config = policy.spec, policy.model.config
    if policy.device.type != "cuda":
        return
    available, row = _available(policy, _free(policy)), decoding_bytes(spec, config)
    version_size = version_bytes(spec, config, policy.total_size)
    decoding = available - reading_bytes(spec, config)
    acting = decoding - spec.sequences * row
    policy.keep_resident(
        max(0, min(spec.capacity, int(VERSIONS * available // version_size), int(acting // version_size)))
    )
    resident = 0 if policy.resident is None else policy.resident.capacity
    policy.micro_batch = spec.micro_batch or equal_parts(
        spec.sequences, max_completions(policy, available - resident * version_size)
    )
    policy.decode_batch = spec.decode_batch or _count(decoding - resident * version_size, row)


def _free(policy: CausalLM) -> int:
    """Return the bytes that torch can allocate: no more than this process's share of the GPU."""
    free, total = torch.cuda.mem_get_info(policy.device)
    in_use = torch.cuda.memory_allocated(policy.device)
    share = torch.cuda.get_per_process_memory_fraction(policy.device.index) * total - in_use
    return int(min(share, free + torch.cuda.memory_reserved(policy.device) - in_use))


def _available(policy: CausalLM, free: int) -> float:
    """Return the part of `free` bytes that training leaves whatever the batch."""
    return SHARE * (free - training_bytes(policy.spec, policy.size, policy.total_size))


def _count(available: float, size: int) -> int:
    return max(1, int(available // size))


def max_completions(policy: CausalLM, available: float) -> int:
    """Return how many completions' activations fit into `available` bytes in training; at least 1."""
    spec, config = policy.spec, policy.model.config
    size = completion_bytes(spec, config)
    if not policy.scores_in_chunks or spec.entropy_coef > 0:  # an entropy bonus needs all logits
        return _count(available, size)
    available, size = available - BYTES * CHUNK, size - logit_bytes(spec, config)
    if spec.gradient_checkpointing and policy.shares_prompts and spec.completions > 1:
        # only a piece of the rows is inside a layer at a time
        rest = size - stored_bytes(spec, config)
        return _count(available - 2 * MIN_ROWS * rest, stored_bytes(spec, config))
    return _count(available, size)


def equal_parts(rows: int, limit: int) -> int:
    """Return the size of pieces of at most `limit` rows, as few and as equal as possible."""
    return rows if limit >= rows else math.ceil(rows / math.ceil(rows / limit))


@contextmanager
def explain_oom(policy: CausalLM, sampling: bool = False) -> Iterator[None]:
    """Raise `OOM`, which names the setting to change, where the GPU runs out of memory inside."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        size = policy.decode_batch if sampling else policy.micro_batch
        raise OOM(advice(policy.spec, size, "decode_batch" if sampling else "micro_batch")) from error


def advice(spec: LanguageSpec, size: int, setting: str = "micro_batch") -> str:
    """Return one line: how many completions were too many, and the setting that takes less."""
    now = size or spec.sequences
    problem = f"out of memory on {spec.device} with {now} completion{'s' if now > 1 else ''} at once"
    if now > 1:
        return f"{problem}; SET={setting}={now // 2}"
    if not spec.gradient_checkpointing:
        return f"{problem}; SET=gradient_checkpointing=true"
    return f"{problem} and checkpointing; SET=completion_tokens={spec.completion_tokens // 2}, or a smaller model"


def training_bytes(spec: LanguageSpec, trainable: int, total: int) -> int:
    """Return bytes of gradients and AdamW's state in float32, for the `trainable` weights, and of the fused weights of
    a pass with their gradients, for all `total` weights."""
    return 3 * 4 * trainable + 2 * _size(spec) * total


def completion_bytes(spec: LanguageSpec, config: Any) -> int:
    """Return the peak of training on one completion of full length: logits, and activations per layer.

    config: transformers', of a decoder with gated layers, which most have; for others the result is close enough.
    """
    tokens, layers = spec.prompt_tokens + spec.completion_tokens, int(config.num_hidden_layers)
    layer_size = _layer_bytes(spec, config, tokens)
    matrices = 4 * int(config.num_attention_heads) * tokens * tokens if writes_matrices(spec, config) else 0
    total = layer_size + stored_bytes(spec, config) if spec.gradient_checkpointing else layers * layer_size
    total += matrices * (4 if spec.gradient_checkpointing else layers + 3)  # each layer's; scores, two gradients
    return logit_bytes(spec, config) + total + mask_bytes(spec, config)


def logit_bytes(spec: LanguageSpec, config: Any) -> int:
    """Return the peak of one completion's logits, where all of them exist at once."""
    return LOGIT * spec.completion_tokens * int(config.vocab_size)


def stored_bytes(spec: LanguageSpec, config: Any) -> int:
    """Return bytes that checkpointing stores per completion: the input of each layer, in float32."""
    tokens = spec.prompt_tokens + spec.completion_tokens
    return int(config.num_hidden_layers) * tokens * 4 * int(config.hidden_size)


def decoding_bytes(spec: LanguageSpec, config: Any) -> int:
    """Return the peak of sampling one completion of full length: its keys and values, one token's logits."""
    tokens = spec.prompt_tokens + spec.completion_tokens
    cache = int(config.num_hidden_layers) * 2 * _key_width(config) * tokens * _size(spec)
    return cache + SAMPLING_LOGIT * int(config.vocab_size)


def reading_bytes(spec: LanguageSpec, config: Any) -> int:
    """Return the peak of reading prompts: one layer's activations, and the keys and values of all layers."""
    rows = min(max(1, READ_TOKENS // spec.prompt_tokens), spec.sequences)
    cache = int(config.num_hidden_layers) * 2 * _key_width(config) * spec.prompt_tokens * _size(spec)
    mask = mask_bytes(spec, config) * spec.prompt_tokens // max(1, spec.completion_tokens)
    return rows * (_layer_bytes(spec, config, spec.prompt_tokens) + cache + mask)


def _layer_bytes(spec: LanguageSpec, config: Any, tokens: int) -> int:
    """Return bytes of one layer's activations: residual stream and norms in float32; queries, keys, values, attention
    and gated layer in the precision of matrix products."""
    width = int(config.hidden_size)
    inner = int(getattr(config, "intermediate_size", None) or 4 * width)
    return tokens * (6 * 4 * width + _size(spec) * (8 * width + 5 * inner))


def mask_bytes(spec: LanguageSpec, config: Any) -> int:
    """Return bytes of attention's term for every query of a group, one for all layers, and of its source tensors."""
    group = int(config.num_attention_heads) // int(getattr(config, "num_key_value_heads", config.num_attention_heads))
    tokens = spec.prompt_tokens + spec.completion_tokens
    return (group + 2) * spec.completion_tokens * tokens * _size(spec)


def writes_matrices(spec: LanguageSpec, config: Any) -> bool:
    """Return whether attention stores [H, L, L] numbers: eager code, or heads that no fused kernel takes."""
    eager = getattr(config, "_attn_implementation", None) == "eager"
    return eager or _head_width(config) % HEAD_MULTIPLE[_size(spec)] > 0


def version_bytes(spec: LanguageSpec, config: Any, weights: int) -> int:
    """Return bytes of one version on the device: matrices in the precision of products, the embedding in float32."""
    words = int(config.vocab_size) * int(config.hidden_size)  # numbers of the embedding
    head = words if getattr(config, "tie_word_embeddings", False) else 0  # a tied one is stored twice
    return _size(spec) * (weights + head - words) + 4 * words


def _size(spec: LanguageSpec) -> int:
    """Return the bytes of a number in matrix products."""
    return 2 if spec.dtype == "bfloat16" else 4


def _head_width(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _key_width(config: Any) -> int:
    """Return the numbers of one token's keys in one layer."""
    return _head_width(config) * int(getattr(config, "num_key_value_heads", config.num_attention_heads))
