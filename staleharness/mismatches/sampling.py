"""Sampling settings that the trainer does not share: temperature, top-k and top-p."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from staleharness.mismatch import MISMATCHES, Mismatch, option

if TYPE_CHECKING:
    from torch import Tensor


@MISMATCHES.register("sampling")
@dataclass(frozen=True)
class Sampling(Mismatch):
    """Tokens are drawn at a temperature, from the likeliest `top_k` and from the smallest set with a mass of `top_p`.

    The trainer's policy has temperature 1 and all tokens. `logprobs`: the log-probabilities that the sampler reports,
    those of the distribution that it drew from, or raw ones from before temperature and truncation (vLLM's default). On
    control the temperature multiplies the variance.
    """

    temperature: float = option(1.0, above=0)
    top_p: float = option(1.0, above=0, most=1)
    top_k: int = option(0, least=0)
    logprobs: Literal["processed", "raw"] = "processed"

    @property
    def raw(self) -> bool:
        return self.logprobs == "raw"

    @property
    def truncates(self) -> bool:
        return self.top_p < 1 or self.top_k > 0

    def logits(self, logits: Tensor) -> Tensor:
        logits = logits / self.temperature
        if not self.truncates:
            return logits
        order = logits.argsort(dim=-1, descending=True, stable=True)
        likeliest = logits.gather(-1, order)
        if self.top_k:
            likeliest[..., self.top_k :] = -float("inf")
        p = likeliest.double().softmax(-1)
        before = p.cumsum(-1) - p  # the token that reaches `top_p` stays, and so does the first
        likeliest = likeliest.masked_fill(before >= self.top_p, -float("inf"))
        return logits.scatter(-1, order, likeliest)
