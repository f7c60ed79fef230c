"""How many bytes training, sampling and a version take on a GPU, by arithmetic from a model's shape.

Rough, and on the safe side; tests hold it against what passes over tensors without numbers would allocate.
"""

from __future__ import annotations

from typing import Any

from ..spec import LanguageSpec

LOGIT = 24  # bytes per logit at the worst moment: its own in two precisions, what its gradient is summed from
DRAWN = 16  # bytes per logit of a token that is sampled: its own in two precisions, probabilities, their blocks
HEADS_OF = {2: 8, 4: 4}  # bytes of a number: what a head's width must be a multiple of for the fused kernels


def training_bytes(spec: LanguageSpec, numbers: int, whole: int) -> int:
    """Beside the weights: gradients and AdamW's state in float32 of the `numbers` that train, and the joined weights of
    a pass, with theirs, of the `whole` model."""
    return 3 * 4 * numbers + 2 * _size(spec) * whole


def completion_bytes(spec: LanguageSpec, config: Any) -> int:
    """What training on one completion of full length holds at its peak: logits, and activations per layer.

    config: transformers' of a decoder with gated layers, which most are; others are near enough.
    """
    width, tokens, size = int(config.hidden_size), spec.prompt_tokens + spec.completion_tokens, _size(spec)
    inner = int(getattr(config, "intermediate_size", None) or 4 * width)
    layers = int(config.num_hidden_layers)
    # residual stream and norms in float32; queries, keys, values, attention and gated layer as they are computed
    one = tokens * (6 * 4 * width + size * (8 * width + 5 * inner))
    matrices = 4 * int(config.num_attention_heads) * tokens * tokens if writes_matrices(spec, config) else 0
    held = one + layers * tokens * 4 * width if spec.gradient_checkpointing else layers * one
    held += matrices * (4 if spec.gradient_checkpointing else layers + 3)  # kept by each layer; scores, two gradients
    return LOGIT * spec.completion_tokens * int(config.vocab_size) + held + mask_bytes(spec, config)


def decoded_bytes(spec: LanguageSpec, config: Any) -> int:
    """What sampling one completion of full length holds: its keys and values, one token's logits, and for a moment
    one layer's activations of its prompt."""
    width, size = int(config.hidden_size), _size(spec)
    inner = int(getattr(config, "intermediate_size", None) or 4 * width)
    past = int(config.num_hidden_layers) * 2 * _keys(config) * (spec.prompt_tokens + spec.completion_tokens) * size
    reading = spec.prompt_tokens * (6 * 4 * width + size * (8 * width + 5 * inner))
    return past + reading + mask_bytes(spec, config) + DRAWN * int(config.vocab_size)


def mask_bytes(spec: LanguageSpec, config: Any) -> int:
    """Of the term that attention adds, for every query of a group, one for all layers, and what it is made from."""
    each = int(config.num_attention_heads) // int(getattr(config, "num_key_value_heads", config.num_attention_heads))
    tokens = spec.prompt_tokens + spec.completion_tokens
    return (each + 2) * spec.completion_tokens * tokens * _size(spec)


def writes_matrices(spec: LanguageSpec, config: Any) -> bool:
    """Whether attention holds [H, L, L] numbers: by its eager code, or with heads that no fused kernel takes."""
    eager = getattr(config, "_attn_implementation", None) == "eager"
    return eager or _head(config) % HEADS_OF[_size(spec)] > 0


def version_bytes(spec: LanguageSpec, config: Any, numbers: int) -> int:
    """Of one version on the device: matrices as they are multiplied, and the words that are read in float32."""
    words = int(config.vocab_size) * int(config.hidden_size)
    tied = words if getattr(config, "tie_word_embeddings", False) else 0  # twice: as they are read, as they are said
    return _size(spec) * (numbers + tied - words) + 4 * words


def _size(spec: LanguageSpec) -> int:
    return 2 if spec.dtype == "bfloat16" else 4


def _head(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _keys(config: Any) -> int:
    """Numbers of one token's keys in one layer."""
    return _head(config) * int(getattr(config, "num_key_value_heads", config.num_attention_heads))
