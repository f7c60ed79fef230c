"""Whether this processor's matrix products are exact enough to compare bits.

On some processors (seen on an AMD EPYC, with torch 2.13) a row of a product has other last bits when it stands beside
other rows, or is computed in a batch of products. Where bits differ there, tests of bit identity compare within 1e-5.
"""

from __future__ import annotations

import functools
import itertools

import torch


@functools.cache
def products_keep_their_bits(*widths: int) -> bool:
    """For layers of these widths: torch's own products alone, no code of ours."""
    generator = torch.Generator().manual_seed(0)
    for n_in, n_out in itertools.pairwise(
        (*widths[:-1], max(2, widths[-1]))
    ):  # the policy pads a single column
        weight, bias = (
            torch.randn(8, n_in, n_out, generator=generator),
            torch.randn(8, 1, n_out, generator=generator),
        )
        for rows in (5, 20, 33, 96, 384, 500):
            x = torch.randn(rows, n_in, generator=generator)
            whole = torch.addmm(bias[0], x, weight[0])
            some = torch.randperm(rows, generator=generator)[: max(4, rows // 3)]
            batched = torch.baddbmm(bias, x.expand(8, -1, -1), weight)
            if not torch.equal(whole, batched[0]):
                return False
            if not torch.equal(whole[some], torch.addmm(bias[0], x[some], weight[0])):
                return False
    return True
