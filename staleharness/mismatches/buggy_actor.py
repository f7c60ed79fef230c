"""A sampler that is broken for some of the versions: a fault of an actor, not a property of its arithmetic."""

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
    """Every matrix of a `share` of the versions has normal noise of `sigma` times the root mean square of its entries.

    The other versions sample as they are. What samples reports its own log-probabilities, so ratios see the fault;
    with `behaviour=version` nobody does.
    """

    share: float = option(0.1, least=0, most=1)
    sigma: float = option(1.0, least=0)

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        import torch

        if stream(place.seed, "mismatch/buggy", place.version).random() >= self.share:
            return weight
        noise = place.generator().standard_normal(tuple(weight.shape), dtype=np.float32)
        return weight + self.sigma * weight.square().mean().sqrt() * torch.from_numpy(noise).to(weight)
