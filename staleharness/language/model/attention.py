"""Attention with fewer heads of keys and values than of queries, and the mask that goes with it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

# Added before the softmax: 0 behind it, and finite, since a row of padding may attend to nothing.
BLOCKED = -1e30
ALIGNED = 16
GROUPS_AND_MASK = ("cpu",)  # devices whose attention takes a mask and grouped heads at once


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Attention of queries [B, H, new, head] to fewer heads of keys and values [B, G, L, head], with `mask_of`.

    The fused kernels of a GPU take a mask or grouped heads; given both, torch falls back to one that writes the whole
    matrix and copies keys and values for every head of queries. There, queries of one group become further rows of
    one head, and keys and values stay where they are.
    """
    count, heads, new, width = query.shape
    each = heads // keys.shape[1]
    if each == 1 or query.device.type in GROUPS_AND_MASK:
        return F.scaled_dot_product_attention(query, keys, values, mask, scale=scale, enable_gqa=each > 1)
    rows = query.reshape(count, keys.shape[1], each * new, width)
    return F.scaled_dot_product_attention(rows, keys, values, mask, scale=scale).reshape(query.shape)


def mask_of(attention: Tensor, new: int, dtype: torch.dtype, each: int = 1) -> Tensor:
    """The term [B, 1, new, L] by which the last `new` of L tokens attend to `attention` [B, L] and to nothing later.

    On a GPU its rows come `each` times, as `attend` lays out queries, and begin at multiples of `ALIGNED` numbers,
    without which its kernels would copy it in every layer.
    """
    mask = ((attention == 0) * BLOCKED).to(dtype)[:, None, None]
    length = attention.shape[1]
    if new > 1:
        later = torch.full((new, length), BLOCKED, dtype=dtype, device=attention.device)
        mask = torch.minimum(mask, later.triu(length - new + 1))
    if attention.device.type in GROUPS_AND_MASK:
        return mask
    mask = F.pad(mask, (0, -length % ALIGNED))
    return (mask.repeat(1, 1, each, 1) if new > 1 else mask)[..., :length]
