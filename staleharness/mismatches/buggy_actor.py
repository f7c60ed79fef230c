"""Sampler with faulty weights in some versions: a bug of an actor, not an effect of its number format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from staleharness.base.streams import stream
from staleharness.mismatch import MISMATCHES, Mismatch, Place, option

if TYPE_CHECKING:
    from torch import Tensor


@MISMATCHES.register("buggy_actor")
@dataclass(frozen=True)
class BuggyActor(Mismatch):
    """Normal noise on every matrix in a `share` of the versions, of `sigma` times the root mean square of its entries.

    The other versions sample unchanged. The sampler reports its own log-probabilities, so importance ratios reflect the
    fault; with `behaviour=version` they do not.
    """

    share: float = option(0.1, least=0, most=1)
    sigma: float = option(1.0, least=0)

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        import torch

        if stream(place.seed, "mismatch/buggy", place.version).random() >= self.share:
            return weight
        noise = place.generator().standard_normal(tuple(weight.shape), dtype=np.float32)
        return weight + self.sigma * weight.square().mean().sqrt() * torch.from_numpy(noise).to(weight)
