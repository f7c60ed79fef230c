"""native.cpp as a library."""

from __future__ import annotations

import functools
from ctypes import c_bool, c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

from ..base.cpp_library import build_library

SOURCE = Path(__file__).with_name("native.cpp")
P = c_void_p
SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "networks_new": (P, (c_int, c_int, P, P)),
    "networks_free": (None, (P,)),
    "actors_read": (None, (P, P)),
    "actors_act": (None, (*(P,) * 9, c_int64, P)),
    "learner_forward": (None, (P, P, c_int, P, P, P, P, c_int, *(P,) * 5)),
    "learner_backward": (None, (P, P, c_int, P, P, P)),
    "gaussian_logp": (None, (P, P, P, P, c_bool, c_int, c_int, P)),
    "gaussian_backward": (None, (P, P, P, P, P, c_int, c_int, P, P)),
    "value_loss": (None, (P, P, P, c_int, c_float, c_float, P, P)),
    "adamw": (None, (P, P, P, P, P, c_int64, c_float, c_float, c_float, c_float, P)),
}


@functools.cache
def library() -> Any:
    """The functions of native.cpp, built on first use. Raises `UserError` where that fails."""
    return build_library([SOURCE], SIGNATURES)
