"""Decoding of a batch of completions token by token: sampling, stop strings, and a cache that grows."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..tokens.policy_interface import Forward
from ..training.sampler_copies import check_like
from .decoder_interface import Request
from .model.causal_lm_policy import CausalLM
from .model.kv_cache import distinct_prompts
from .model.routing import RoutingNotes
from .stop_strings import StopStrings

# (logits [B, V], noise [B] or None) -> (token, its log-probability) [B]
Sample = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor]]
CHECK_EVERY = 16  # tokens between checks of the sampled text, each a wait on a GPU
COMPACT_SHARE = 0.8  # rows that have ended are dropped when no more than this share is left
CHUNK_ROWS = 8  # rows whose distributions over a large vocabulary are sampled at once
LARGE_VOCABULARY = 4096  # tokens above which float64 for each of them costs more than a layer
ROW_STATE = ("prompt", "prompt_mask", "prompt_length", "token", "mask", "logp", "ended", "index")
BLOCK = 256  # tokens whose probabilities are summed first


class DecodingBatch:
    """Rows that are decoded together."""

    def __init__(self, policy: CausalLM, request: Request, index: Tensor) -> None:
        """index [B]: rows of the request."""
        self.policy, self.length = policy, request.length
        self.stops = StopStrings(policy.tokenizer, request.stops)
        self.prompt, self.prompt_mask = request.prompt[index], request.prompt_mask[index]
        rows, self.width = self.prompt.shape
        self.uniform = None if request.uniform is None else request.uniform[index]
        self.sampling = request.sampling
        self.prompt_length = self.prompt_mask.sum(1, keepdim=True)
        self.token = self.prompt.new_full((rows, self.length), policy.pad)
        self.mask = torch.zeros((rows, self.length), device=index.device)
        self.logp = torch.zeros((rows, self.length), device=index.device)
        self.ended = torch.zeros(rows, dtype=torch.bool, device=index.device)
        self.index = torch.arange(rows, device=index.device)  # number of each remaining row among all
        self.out = [x.clone() for x in (self.token, self.mask, self.logp, self.ended)]
        self.end = torch.tensor(policy.end, device=index.device)
        self.done = False
        self.stops_checked = 0  # tokens in which stops have been looked for

    def remaining(self, share: float) -> Tensor | None:
        """Return the rows to continue with once at most `share` of them has not ended; None: all. Sets `done`."""
        count = len(self.ended) - int(self.ended.sum())
        self.done = count == 0
        if self.done or count > share * len(self.ended):
            return None
        return (~self.ended).nonzero()[:, 0]

    def select(self, rows: Tensor) -> None:
        """Continue with these rows alone."""
        self._write()
        for name in ROW_STATE:
            setattr(self, name, getattr(self, name).index_select(0, rows))
        if self.uniform is not None:
            self.uniform = self.uniform.index_select(0, rows)

    def _write(self) -> None:
        for target, part in zip(self.out, (self.token, self.mask, self.logp, self.ended), strict=True):
            target[self.index] = part

    def sample_shaped(self, logits: Tensor, uniform: Tensor | None, sample: Sample) -> tuple[Tensor, Tensor]:
        """Return (token, the log-probability that the sampler reports) [B], drawn by `sample` from the logits [B, V] as
        shaped by the request's models."""
        if not self.sampling:
            return sample(logits, uniform)
        shaped_logits = logits = logits.float()
        for model in self.sampling:
            answer = model.logits(shaped_logits)
            check_like(answer, shaped_logits, f"MISMATCH={model.text}: logits", "for tokens")
            shaped_logits = answer
        token, logp = sample(shaped_logits, uniform)
        if any(model.raw for model in self.sampling):
            logp = logits.log_softmax(-1).gather(-1, token[:, None])[:, 0]
        return token, logp

    def result(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return (token, mask, logp, ended) of all rows."""
        self.apply_stops(self.length)
        self._write()
        token, mask, logp, ended = self.out
        return token, mask, logp * mask, ended

    def apply_stops(self, count: int) -> None:
        """End rows whose text holds a stop string, right after the token that completes it; `count`: tokens so far.

        Searches new tokens, and as many before them as a stop can reach back.
        """
        if not self.stops.stops or count <= self.stops_checked:
            return
        first = max(0, self.stops_checked - self.stops.tail)
        counts = self.mask[:, :count].sum(1, keepdim=True).long()
        rows = torch.cat([counts, self.token[:, first:count]], 1).tolist()
        new = [i for i, (length, *_) in enumerate(rows) if length > self.stops_checked]
        for nth in self.stops.rows_with([rows[i][1 : 1 + rows[i][0] - first] for i in new]):
            self._end_at_stop(new[nth], rows[new[nth]][0])
        self.stops_checked = count

    def _end_at_stop(self, i: int, length: int) -> None:
        ids = self.token[i, :length].tolist()
        if not self.stops.are_in(ids):
            return
        low, high = 1, length  # the shortest prefix whose text holds a stop
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.stops.are_in(ids[:middle]) else (middle + 1, high)
        self.mask[i, low:] = 0
        self.token[i, low:] = self.policy.pad
        self.ended[i] = True


class GrowingBatch(DecodingBatch):
    """Rows of one version, by any forward pass; `shares_prompts`: the cache holds each prompt once."""

    def __init__(self, policy: CausalLM, request: Request, index: Tensor, shares_prompts: bool = False) -> None:
        super().__init__(policy, request, index)
        self.shares_prompts = shares_prompts
        ones = self.prompt_mask.new_ones((len(index), self.length))
        self.attention = torch.cat([self.prompt_mask, ones], 1)
        self.cache: Any = None
        routers, columns = policy.routers, self.width + self.length
        self.routing = None if routers is None else RoutingNotes(routers, len(index), columns, index.device)
        self.checks_each_token = policy.device.type == "cpu"  # where it costs nothing

    def advance(self, forward: Forward, first: int, last: int) -> None:
        """Sample tokens `first` … `last` − 1 with one forward pass function."""
        for t in range(first, last):
            uniform = None if self.uniform is None else self.uniform[:, t]
            token, logp = self.sample_shaped(self._logits(forward, t), uniform, self._sample)
            alive = ~self.ended
            self.token[:, t] = torch.where(alive, token, self.policy.pad)
            self.mask[:, t] = alive.float()
            self.logp[:, t] = logp
            self.ended |= torch.isin(token, self.end)
            check = t % CHECK_EVERY == CHECK_EVERY - 1
            if check:
                self.apply_stops(t + 1)
            if self.checks_each_token or check:
                rows = self.remaining(COMPACT_SHARE)
                if self.done:
                    return
                if rows is not None:
                    self.apply_stops(t + 1)  # in rows that leave now too
                    self.select(rows)

    def _sample(self, logits: Tensor, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return (token, its log-probability) [B]. On a CPU a large vocabulary is processed a few rows at a time, so
        that intermediate results stay in its cache instead of taking new memory for every token."""
        if self.policy.device.type != "cpu":
            return sample_blocks(logits.float(), uniform)
        if logits.shape[1] > LARGE_VOCABULARY:
            rows = logits.split(CHUNK_ROWS)
            noise = [None] * len(rows) if uniform is None else uniform.split(CHUNK_ROWS)
            pairs = [sample_blocks(chunk.float(), u) for chunk, u in zip(rows, noise, strict=True)]
            tokens, logps = zip(*pairs, strict=True)
            return torch.cat(tokens), torch.cat(logps)
        logits = logits.float()
        token = sample_cumulative(logits, uniform)
        return token, logits.log_softmax(1).gather(1, token[:, None])[:, 0]

    def _logits(self, forward: Forward, t: int) -> Tensor:
        """Return the logits [B, V] of token `t`."""
        first = t  # of the tokens that the cache lacks; token −1 is the last one of the prompt
        if self.cache is None:
            self.cache = self.policy.sampling_cache(self.width, self.length, self.shares_prompts)
            prompts = distinct_prompts(self.policy.shares_prompts, self.prompt, self.prompt_mask)
            with self._watching(0, self.width - 1, prompts.prompt_index):
                self.cache.begin(prompts, forward)
            first = 0
        positions = self.prompt_length + torch.arange(first - 1, t, device=self.prompt.device)
        ids = self.token[:, t - 1 : t] if t > 0 else self.prompt[:, -1:]
        if first < t:
            ids = torch.cat([self.prompt[:, -1:], self.token[:, :t]], 1)
        attention = self.attention[:, : self.width + t]
        with self._watching(self.width - 1 + first, self.width + t):
            return forward(ids, attention, positions, self.cache, 1)[:, -1]

    def _watching(self, first: int, end: int, source: Tensor | None = None) -> contextlib.AbstractContextManager[None]:
        """Note the experts that a pass over the columns `first` … `end` − 1 goes through.

        source: row of the pass that each row here was read in; None: its own.
        """
        if self.routing is None:
            return contextlib.nullcontext()
        return self.routing.watching(first, end, self.index, source)

    def select(self, rows: Tensor) -> None:
        super().select(rows)
        self.attention = self.attention.index_select(0, rows)
        if self.cache is not None:
            self.cache.select(rows)

    def split(self, rows: Tensor) -> GrowingBatch:
        """Return a batch that continues with these rows, and with their keys and values where a change of weights
        keeps them. Leaves this one as it is."""
        batch = copy.copy(self)
        keep = self.cache is not None and self.policy.spec.kv_cache == "keep"
        batch.cache = self.cache.copy() if keep else None
        batch.select(rows)
        return batch

    def join(self, other: GrowingBatch) -> None:
        """Continue with the rows of both, whose caches hold equally many tokens."""
        for name in ("attention", *ROW_STATE):
            setattr(self, name, torch.cat([getattr(self, name), getattr(other, name)]))
        if self.uniform is not None and other.uniform is not None:
            self.uniform = torch.cat([self.uniform, other.uniform])
        self.stops_checked = min(self.stops_checked, other.stops_checked)
        if self.cache is not None:
            self.cache.join(other.cache)


def sample_cumulative(logits: Tensor, uniform: Tensor | None) -> Tensor:
    """Return one token per row of `logits` [B, V]: the likeliest, or the inverse of the cumulative distribution at
    `uniform` [B], in float64, so that a token of probability 1e-7 can be drawn."""
    if uniform is None:
        return logits.argmax(-1)
    cumulative = logits.double().softmax(-1).cumsum(-1)
    target = uniform.double()[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True)[:, 0].clamp(max=logits.shape[1] - 1)


def sample_blocks(logits: Tensor, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (token, its log-probability) [B] from `logits` [B, V] in float32, by the rule of `sample_cumulative`, for
    a GPU, or for a large vocabulary anywhere.

    Makes no running sum over the vocabulary, which a GPU may add up in any order and which many releases of torch
    refuse where algorithms are to be deterministic, as in every run; nor a float64 copy of the logits. Probabilities
    are summed in blocks; the sums, and the numbers inside the block that is hit, are float64.
    """
    top = logits.amax(-1, keepdim=True)
    if uniform is None:
        token = logits.argmax(-1)
        return token, (logits - top).log_softmax(-1).gather(1, token[:, None])[:, 0]
    mass = F.pad((logits - top).exp(), (0, -logits.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK))
    sums = mass.sum(-1, dtype=torch.float64)
    ends = sums @ _summation(sums)
    target = uniform.double()[:, None] * ends[:, -1:]
    block = (ends <= target).sum(-1, keepdim=True).clamp(max=ends.shape[1] - 1)
    inside = mass.gather(1, block[:, :, None].expand(-1, -1, BLOCK))[:, 0].double()
    inside = inside @ _summation(inside)
    rest = (target - ends.gather(1, block) + sums.gather(1, block)).clamp(min=0.0)
    rest = rest.minimum(inside[:, -1:] * (1.0 - 1e-12))  # rounding must not leave the block
    token = BLOCK * block[:, 0] + (inside <= rest).sum(-1)
    return token, (logits.gather(1, token[:, None]) - top)[:, 0] - ends[:, -1].log().float()


def _summation(x: Tensor) -> Tensor:
    """Return the matrix that turns `x` [B, n] into its running sums."""
    return x.new_ones((x.shape[1], x.shape[1])).triu()
