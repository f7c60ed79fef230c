"""Decoding on a GPU: tensors are never moved, so that a step can be captured as a CUDA graph and replayed.

A step reads its input and writes its answer in place and changes nothing else; a few copies after it carry the answer
over. The newest token's keys and values go to column 0 of the cache, which every step can therefore write, and from
there to their own: attention does not depend on the order of its columns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.console_log import LOGGER
from ..errors import one_line
from ..tokens.policy_interface import Forward
from .batched_generation import CHECK_EVERY, DecodingBatch, sample_blocks
from .decoder_interface import Request
from .model.causal_lm_policy import CausalLM
from .model.fused_forward import FusedForward, PaddedParts
from .model.kv_cache import READ_TOKENS, StaticCache, distinct_prompts

COMPACT_SHARE = 0.5  # rows that have ended are dropped when no more than this share is left: dropping copies the cache
COLUMNS = 128  # attention reads multiples of this many columns, so that a graph serves for as many tokens


class _Step(NamedTuple):
    """Tensors that a step reads (`ended` as well), and those that it writes."""

    current: Tensor  # [B, 1] the token before
    position: Tensor  # [B, 1]
    uniform: Tensor  # [B] its noise
    token: Tensor  # [B] the token sampled
    logp: Tensor  # [B]
    over: Tensor  # [B] whether it ends the row


class StaticBatch(DecodingBatch):
    """Rows of one version or of several by the fused forward pass."""

    def __init__(self, policy: CausalLM, request: Request, index: Tensor) -> None:
        super().__init__(policy, request, index)
        # version of each remaining row [B], by its position in the weights of the next forward pass
        self.position: NDArray[np.int64] = np.zeros(len(index), dtype=np.int64)
        columns = self.width + self.length + (-(self.width + self.length) % COLUMNS)
        self.cache = StaticCache(policy.model.config, len(index), columns, policy.precision, index.device)
        self.has_prompts = False

    def advance(self, forward: Forward, first: int, last: int) -> None:
        """Sample tokens `first` … `last` − 1 with one fused forward pass."""
        assert isinstance(forward, FusedForward)
        forward.extend_positions(self.width + self.length)
        if not self.has_prompts or self.policy.spec.kv_cache == "recompute":
            self._sort()
            self._read(forward, first)
        step, graph, reach = self._begin(forward, first), None, 0
        for t in range(first, last):
            column = self.width + t  # of this token's keys and values; those before it are there
            if graph is None or column > reach:
                reach = min(column + (-column % COLUMNS), self.cache.columns)
                graph = None  # its memory is free before the next one takes its own
                graph = capture_step(partial(self._step, forward, step, reach), step.token.device)
            if self.uniform is not None:
                step.uniform.copy_(self.uniform[:, t])
            graph()
            self._carry(step, t, column)
            if t % CHECK_EVERY == CHECK_EVERY - 1:
                self.apply_stops(t + 1)
                rows = self.remaining(COMPACT_SHARE)
                if self.done:
                    return
                if rows is not None:
                    self.select(rows)
                    step, graph = self._begin(forward, t + 1), None

    def _begin(self, forward: FusedForward, t: int) -> _Step:
        """Return the tensors of the steps from token `t` on."""
        self.layout = PaddedParts.of(self.position, forward.versions, self.index.device)
        before = self.token[:, t - 1 : t] if t > 0 else self.prompt[:, -1:]
        zeros = (x.new_zeros(len(before)) for x in (self.logp, before, self.logp, self.ended))
        return _Step(before.clone(), self.prompt_length + (t - 1), *zeros)

    def _step(self, forward: FusedForward, step: _Step, columns: int) -> None:
        cache, mask = self.cache.newest(columns), self.cache.mask[..., :columns]
        logits = forward.run(step.current, mask, step.position, cache, self.layout)[:, -1].float()
        token, logp = self.sample_shaped(logits, None if self.uniform is None else step.uniform, sample_blocks)
        step.token.copy_(torch.where(self.ended, self.policy.pad, token))
        step.logp.copy_(logp)
        step.over.copy_(torch.isin(token, self.end))

    def _carry(self, step: _Step, t: int, column: int) -> None:
        """Store a step's answer, and make it the input of the next one."""
        self.token[:, t] = step.token
        self.mask[:, t] = (~self.ended).float()
        self.logp[:, t] = step.logp
        self.ended |= step.over
        step.current[:, 0] = step.token
        step.position.add_(1)
        self.cache.settle(column)

    def _read(self, forward: FusedForward, count: int) -> None:
        """Cache the prompts, each once, version by version and piece by piece, and `count` tokens but the last."""
        at_once, ends = max(1, READ_TOKENS // (self.width + count)), np.bincount(self.position).cumsum().tolist()
        for k, (begin, end) in enumerate(pairwise((0, *ends))):
            version_forward = forward.version(k)
            for first in range(begin, end, at_once):
                self._read_rows(version_forward, slice(first, min(first + at_once, end)), count)
        self.cache.unmask(self.prompt_mask, self.width + count)
        self.has_prompts = True

    def _read_rows(self, forward: FusedForward, rows: slice, count: int) -> None:
        prompt, prompt_mask = self.prompt[rows], self.prompt_mask[rows]
        prompts = distinct_prompts(self.policy.shares_prompts, prompt, prompt_mask)
        prefix = self.policy.prefix_cache()
        prompts.read(forward, prefix)
        self.cache.fill(rows, prefix, prompts.prompt_index)
        if count == 0:
            return
        ids = torch.cat([prompt[:, -1:], self.token[rows, : count - 1]], 1)
        attention = torch.cat([prompt_mask, prompt_mask.new_ones((len(prompt), count - 1))], 1)
        positions = self.prompt_length[rows] + torch.arange(-1, count - 1, device=ids.device)
        forward(ids, attention, positions, self.cache.append(rows, self.width), 1)

    def select(self, rows: Tensor) -> None:
        super().select(rows)
        self.cache.select(rows)
        self.position = self.position[rows.cpu().numpy()]

    def _sort(self) -> None:
        """Sort rows by version, before all of them are read: their cache is empty or out of date."""
        order = self.position.argsort(kind="stable")
        super().select(torch.from_numpy(order).to(self.index.device))
        self.position = self.position[order]


def capture_step(step: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Return the replay of a step that is captured as a CUDA graph on a GPU; the step itself elsewhere, and with a
    warning where it cannot be captured.

    The step reads and writes the same tensors each time and does not wait on the host. It may run once more than it is
    called, since it changes nothing that it reads.
    """
    if device.type != "cuda":
        return step
    with torch.cuda.device(device):  # streams and graphs are those of the current device, which DEVICE=cuda:1 is not
        graph, side_stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(side_stream):
                step()  # allocations of a library's first call must not be captured
            torch.cuda.current_stream().wait_stream(side_stream)
            with torch.cuda.graph(graph, stream=side_stream, capture_error_mode="thread_local"):
                step()
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:
            LOGGER.warning("decoding without CUDA graphs: %s", one_line(error)[:160])
            return step
    return graph.replay
