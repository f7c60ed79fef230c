"""Copies in number formats of fewer bits, with a scale for each row of a matrix, as engines quantise weights.

The sampler computes as the trainer does, with rounded weights. Activations and keys and values stay as they are, so
that the distances are below those of a real engine in the same format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from staleharness.mismatch import MISMATCHES, Mismatch, Place

if TYPE_CHECKING:
    from torch import Tensor

GROUP = 32  # columns that share a scale of int4
LARGEST = 448.0  # of float8_e4m3fn


def round_weight(weight: Tensor, steps: int) -> Tensor:
    """Return `weight` [..., n] as whole multiples, at most ±`steps`, of the largest magnitude along its last axis over
    `steps`."""
    scale = weight.abs().amax(-1, keepdim=True).clamp(min=1e-12) / steps
    return (weight / scale).round().clamp(-steps, steps) * scale


@MISMATCHES.register("bf16_weights")
@dataclass(frozen=True)
class Bfloat16Weights(Mismatch):
    """Weights in bfloat16, arithmetic as the trainer's."""

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
