"""Products of matrices, with factors in bfloat16 on every processor.

On a CPU torch has kernels for bfloat16 where there is AVX-512 (on Arm: BF16); elsewhere it multiplies number by number,
twenty and more times as slowly as in float32. There factors are converted, multiplied in float32, and the result is
rounded, as those kernels do, in another order of sums.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.nn import functional as F


@functools.cache
def has_bfloat16_kernels() -> bool:
    """Return whether torch has kernels for bfloat16 on this CPU."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def factor_dtype(x: Tensor) -> torch.dtype:
    """Return the number format in which products with `x` are computed: its own where there are kernels for it."""
    slow = x.dtype == torch.bfloat16 and x.device.type == "cpu" and not has_bfloat16_kernels()
    return torch.float32 if slow else x.dtype


def matmul(x: Tensor, y: Tensor) -> Tensor:
    """Multiply two matrices, or two batches of matrices, of one number format."""
    dtype = factor_dtype(x)
    return (x.to(dtype) @ y.to(dtype)).to(x.dtype)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply x [B, T, in] by weights [out, in], or each K-th of its rows by its own of [K, out, in]."""
    if weight.is_mkldnn:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return y
    dtype = factor_dtype(x)
    if dtype != x.dtype:
        return linear(x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)).to(x.dtype)
    if weight.ndim == 2:
        return F.linear(x, weight, bias)
    rows = x.reshape(len(weight), -1, x.shape[-1])
    y = torch.bmm(rows, weight.mT) if bias is None else torch.baddbmm(bias[:, None], rows, weight.mT)
    return y.view(*x.shape[:-1], -1)


def masked_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float, gqa: bool) -> Tensor:
    """Return torch's attention with a mask added to the scores; `gqa`: fewer heads of keys than of queries."""
    dtype = factor_dtype(query)
    q, k, v, m = (x.to(dtype) for x in (query, keys, values, mask))
    return F.scaled_dot_product_attention(q, k, v, m, scale=scale, enable_gqa=gqa).to(query.dtype)
