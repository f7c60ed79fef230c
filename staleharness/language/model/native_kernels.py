"""The C++ functions of `native/` on tensors: built by the machine's compiler when they are first needed."""

from __future__ import annotations

import functools
from ctypes import c_bool, c_float, c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...base.cpp_library import build_library

FOLDER = Path(__file__).with_name("native")
SOURCES = tuple(FOLDER / name for name in ("layers.cpp", "vocabulary.cpp", "decode_attention.cpp"))
WIDTH = 8  # numbers that they read at once: heads and padded rows are multiples of it
# Loops over numbers become loops over vectors, with min and max as single instructions. These may drop a NaN, so
# softmax looks for one in the bits (`peak` in rows.h).
FLAGS = ("-fopenmp-simd", "-ffinite-math-only", "-fno-signed-zeros")
P, N, X, H = c_void_p, c_int64, c_float, c_bool
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "norm_forward": (P, P, P, N, N, X, P, P, P, H),
    "norm_backward": (P, P, P, P, N, N, P, P, H),
    "rotate": (P, N, P, P, P, N, N, N, X),
    "attention_forward": (P, P, N, N, N, N, X, P, P),
    "attention_backward": (P, P, N, N, N, N, X, P, P, P, P),
    "gate_forward": (P, N, N, P, H),
    "gate_backward": (P, N, N, P, H),
    "scores_forward": (P, P, N, N, P, P, P, P, H),
    "scores_backward": (P, P, N, N, P, P, P, P, H),
    "sample": (P, P, N, N, P, P, H),
    "store": (P, P, N, N, N, N, N, P, P),
    "decode": (P, P, N, N, N, N, N, X, P, P, P, N, P, P, N, P),
}


@functools.cache
def kernels() -> Any:
    """The functions. Raises `UserError` where they cannot be built."""
    signatures = {name: (None, kinds) for name, kinds in SIGNATURES.items()}
    return build_library(SOURCES, signatures, [FOLDER / "rows.h"], FLAGS)


def at(x: Tensor | None) -> int | None:
    """Return the address of a tensor's numbers, which are contiguous."""
    if x is None:
        return None
    assert x.is_contiguous()
    return x.data_ptr()


def is_bfloat16(x: Tensor) -> bool:
    """Return whether the numbers are bfloat16, the other format that functions take for factors of products."""
    return x.dtype == torch.bfloat16


def norm(
    x: Tensor, branch: Tensor | None, weight: Tensor, epsilon: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Return s = x + branch, s · weight / √(mean s² + ε) in `dtype`, both [n, d], and the inverse of the root [n].

    branch: in `dtype`.
    """
    total, scale = x if branch is None else x.new_empty(x.shape), x.new_empty(len(x))
    y = x.new_empty(x.shape, dtype=dtype)
    kernels().norm_forward(
        at(x), at(branch), at(weight), *x.shape, epsilon, at(total), at(y), at(scale), is_bfloat16(y)
    )
    return total, y, scale


def gate(x: Tensor) -> Tensor:
    """Return silu(gate) · up [n, width], given both side by side [n, 2 width]."""
    y = x.new_empty((len(x), x.shape[1] // 2))
    kernels().gate_forward(at(x), *y.shape, at(y), is_bfloat16(x))
    return y
