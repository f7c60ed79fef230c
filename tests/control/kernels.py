"""Check that this processor's matrix products are exact enough to compare bits: torch's own products, no code of ours.

What we have seen of it (torch 2.13, float32). On an Intel Xeon both answers are yes. On an AMD EPYC (Zen 5) a product
with 5 to 7 or 9 to 11 columns, such as the head of six actions of Walker2d or HalfCheetah, gives a row other last bits
at another place modulo 2 or 4, whatever stands beside it; and a product of few rows depends on whether the address of
its weights is a multiple of 16 bytes. Where bits differ, tests of bit identity compare within 1e-5.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

ROWS = (5, 20, 33, 96, 384, 500)


@functools.cache
def batches_keep_their_bits(*widths: int) -> bool:
    """For layers of these widths: a product is the same alone and in a batch of products, row by row."""
    return all(
        torch.equal(torch.addmm(bias[0], x, weight[0]), torch.baddbmm(bias, x.expand(8, -1, -1), weight)[0])
        for x, weight, bias in _products(widths)
    )


@functools.cache
def products_keep_their_bits(*widths: int) -> bool:
    """And a row is the same wherever it stands, and beside whichever rows."""
    generator = torch.Generator().manual_seed(1)
    for x, weight, bias in _products(widths):
        some = torch.randperm(len(x), generator=generator)[: max(4, len(x) // 3)]
        whole = torch.addmm(bias[0], x, weight[0])
        if not torch.equal(whole[some], torch.addmm(bias[0], x[some], weight[0])):
            return False
    return batches_keep_their_bits(*widths)


def _products(widths: tuple[int, ...]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Rows [N, in], weights [8, in, out] and biases [8, 1, out]; a single last column is padded, as in the policy."""
    generator = torch.Generator().manual_seed(0)
    for n_in, n_out in itertools.pairwise((*widths[:-1], max(2, widths[-1]))):
        weight = torch.randn(8, n_in, n_out, generator=generator)
        bias = torch.randn(8, 1, n_out, generator=generator)
        for rows in ROWS:
            yield torch.randn(rows, n_in, generator=generator), weight, bias
