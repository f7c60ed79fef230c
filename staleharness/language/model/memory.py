"""Memory of a GPU: how many completions go through the model at once, in training and in sampling, how many versions
stay there, and what is said when it was too many."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ...errors import OOM
from ..spec import LanguageSpec
from .causal_lm import CausalLM
from .footprint import completion_bytes, decoded_bytes, training_bytes, version_bytes

SHARE = 0.8  # of the free memory that activations may take: the estimate is rough, and memory gets fragmented
VERSIONS = 0.4  # of what is left beside training's own, for past versions and those of them that act at the moment


def settle(policy: CausalLM) -> None:
    """Settle what goes through the model at once and what stays on the device, before the first step, so that every
    step of a run is cut in the same way. On a CPU: all at once, and nothing stays."""
    policy.micro_batch, policy.decode_batch = rows_at_once(policy), policy.spec.decode_batch
    if policy.device.type != "cuda":
        return
    spec, config = policy.spec, policy.model.config
    free, one = _free(policy), version_bytes(spec, config, policy.whole)
    kept = min(spec.capacity, int(VERSIONS * _left(policy, free) // (2 * one)))
    policy.keep_versions(kept)
    free -= 2 * kept * one if policy.shelf else 0
    policy.micro_batch = spec.micro_batch or equal_parts(spec.sequences, fitting(policy, free))
    policy.decode_batch = spec.decode_batch or _fits(_left(policy, free), decoded_bytes(spec, config))


def rows_at_once(policy: CausalLM) -> int:
    """`micro_batch` as the run sets it; where it is 0 as many completions as fit on the GPU, on a CPU 0: all."""
    spec = policy.spec
    if spec.micro_batch or policy.device.type != "cuda":
        return spec.micro_batch
    return equal_parts(spec.sequences, fitting(policy, _free(policy)))


def _free(policy: CausalLM) -> int:
    """Bytes that torch can have."""
    free, _ = torch.cuda.mem_get_info(policy.device)
    reusable = torch.cuda.memory_reserved(policy.device) - torch.cuda.memory_allocated(policy.device)
    return int(free + reusable)


def _left(policy: CausalLM, free: int) -> float:
    """Of `free` bytes beside what training holds whatever the batch."""
    return SHARE * (free - training_bytes(policy.spec, policy.size, policy.whole))


def _fits(left: float, each: int) -> int:
    return max(1, int(left // each))


def fitting(policy: CausalLM, free: int) -> int:
    """Completions that fit into `free` bytes in training; at least 1."""
    return _fits(_left(policy, free), completion_bytes(policy.spec, policy.model.config))


def equal_parts(rows: int, most: int) -> int:
    """The size of the fewest pieces of at most `most` rows that are as equal as can be."""
    return rows if most >= rows else math.ceil(rows / math.ceil(rows / most))


@contextmanager
def explained(policy: CausalLM, sampling: bool = False) -> Iterator[None]:
    """Raise `OOM`, which says what to set, for a GPU that ran out of memory inside."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        size = policy.decode_batch if sampling else policy.micro_batch
        raise OOM(advice(policy.spec, size, "decode_batch" if sampling else "micro_batch")) from error


def advice(spec: LanguageSpec, size: int, setting: str = "micro_batch") -> str:
    """One line: what ran out with so many completions at once, and the setting that takes less."""
    now = size or spec.sequences
    what = f"out of memory on {spec.device} with {now} completion{'s' if now > 1 else ''} at once"
    if now > 1:
        return f"{what}; SET={setting}={now // 2}"
    if not spec.gradient_checkpointing:
        return f"{what}; SET=gradient_checkpointing=true"
    return f"{what} and checkpointing; SET=completion_tokens={spec.completion_tokens // 2}, or a smaller model"
