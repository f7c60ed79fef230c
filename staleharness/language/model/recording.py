"""A step on tensors that stay where they are, recorded as a CUDA graph where there is one and called where not."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...base.logger import LOGGER


class Recording:
    """Calling it takes the step. A step reads and writes the same tensors each time, waits for nothing on the host,
    and may be taken once more than it is asked for: it changes nothing that it reads."""

    def __init__(self, step: Callable[[], None], device: torch.device) -> None:
        self.take = step
        if device.type == "cuda":
            self.take = self._recorded(step) or step

    def __call__(self) -> None:
        self.take()

    @staticmethod
    def _recorded(step: Callable[[], None]) -> Callable[[], None] | None:
        """The replay of one step, or None where it could not be recorded: said once, and no reason to fail."""
        graph, aside = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(aside):
                step()  # what libraries allocate at their first call must not be recorded
            torch.cuda.current_stream().wait_stream(aside)
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                step()
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:
            LOGGER.warning("decoding goes without CUDA graphs: %s", " ".join(str(error).split())[:160])
            return None
        return graph.replay
