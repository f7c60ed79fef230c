"""Settings of torch for a run, on which its bits depend, and for a process that only executes runs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

from ..base.system_info import keep_freed_memory


def make_deterministic(threads: int) -> None:
    """Set up torch for a run: its number of threads, and algorithms that repeat bit for bit."""
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode("error")  # without the compiler that use_deterministic_algorithms loads
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # required by torch's deterministic mode on a GPU
    # its backward pass gives NaN for some masks (pytorch#196678); at present, deterministic algorithms exclude it
    torch.backends.cuda.enable_cudnn_sdp(False)


def set_up_worker(threads: int) -> None:
    """Set up the process of a worker or an actor."""
    keep_freed_memory()
    make_deterministic(threads)
    # deterministic mode also fills new memory: nothing reads that, and it takes 5 % of a run
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010 (mypy does not know it)


@contextlib.contextmanager
def default_modes() -> Iterator[None]:
    """Modes of torch with which a process begins, in place of the caller's: gradients, no autocast, float32 in full
    precision, the CPU."""
    dtype, precision = torch.get_default_dtype(), torch.get_float32_matmul_precision()
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        if torch.get_default_device().type != "cpu":  # as a context it slows each call
            stack.enter_context(torch.device("cpu"))
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.set_float32_matmul_precision(precision)
