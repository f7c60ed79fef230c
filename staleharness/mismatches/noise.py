"""Normal noise on the weights of the copy: a mismatch of adjustable size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from staleharness.mismatch import MISMATCHES, Mismatch, Place, option

if TYPE_CHECKING:
    from torch import Tensor


@MISMATCHES.register("noise")
@dataclass(frozen=True)
class Noise(Mismatch):
    """Normal noise on every matrix of a version, of `sigma` times the root mean square of its entries.

    `fixed`: the same noise direction in every version, a systematic error; otherwise each version has its own noise.
    """

    sigma: float = option(0.2, least=0)
    fixed: bool = False

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        import torch

        noise = place.generator(self.fixed).standard_normal(tuple(weight.shape), dtype=np.float32)
        size = self.sigma * weight.square().mean().sqrt()
        return weight + size * torch.from_numpy(noise).to(weight)
