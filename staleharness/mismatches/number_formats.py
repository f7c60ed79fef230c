"""Copies with weights in low-precision number formats, quantised with scales as in inference engines.

The sampler computes as the trainer does, but with rounded weights. Activations, keys and values are not quantised, so
the mismatch is smaller than that of a real engine in the same format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from staleharness.mismatch import MISMATCHES, Mismatch, Place

if TYPE_CHECKING:
    from torch import Tensor

GROUP = 32  # columns that share a scale of int4
LARGEST = 448.0  # largest finite value of float8_e4m3fn


def round_weight(weight: Tensor, steps: int) -> Tensor:
    """Round `weight` [..., n] to multiples, from −`steps` to `steps`, of its largest magnitude along the last axis
    divided by `steps`."""
    scale = weight.abs().amax(-1, keepdim=True).clamp(min=1e-12) / steps
    return (weight / scale).round().clamp(-steps, steps) * scale


@MISMATCHES.register("bf16_weights")
@dataclass(frozen=True)
class Bfloat16Weights(Mismatch):
    """Weights rounded to bfloat16, with the trainer's arithmetic."""

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        return weight.bfloat16().to(weight.dtype)


@MISMATCHES.register("fp8")
@dataclass(frozen=True)
class Float8(Mismatch):
    """Weights in float8 (e4m3), one scale for each row."""

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        import torch

        scale = weight.abs().amax(-1, keepdim=True).clamp(min=1e-12) / LARGEST
        return (weight / scale).to(torch.float8_e4m3fn).to(weight.dtype) * scale


@MISMATCHES.register("int8")
@dataclass(frozen=True)
class Int8(Mismatch):
    """Weights in eight-bit integers, one scale for each row."""

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        return round_weight(weight, 127)


@MISMATCHES.register("int4")
@dataclass(frozen=True)
class Int4(Mismatch):
    """Weights in four-bit integers, one scale for each 32 columns of a row (the last group may have fewer)."""

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        import torch

        return torch.cat([round_weight(part, 7) for part in weight.split(GROUP, -1)], -1)
