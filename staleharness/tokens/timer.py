"""Where the time of learning goes."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass

import torch


@dataclass
class Timer:
    """Seconds by what they were spent on; waits for the GPU, so that its work counts where it was asked for."""

    device: torch.device
    seconds: defaultdict[str, float]

    def __call__(self, name: str, begin: float) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[name] += now - begin
        return now
