"""Routers of a mixture of experts: which experts tokens go to, and passes in which given ones are forced.

Routing replay (Zheng et al. 2025, GSPO, arXiv:2507.18071, section 5.3; Ma et al. 2025, arXiv:2510.11370): the experts
are given, and their gates are recomputed from the router's own logits over the given set, so that gradients reach the
router.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

ANY_EXPERT = -1  # in place of an expert: the router chooses


class Routers:
    """Routers of a model's layers, from the first on. Each is a module of transformers that returns logits [N, E],
    gates [N, k] and experts [N, k] of N tokens."""

    def __init__(self, model: Any) -> None:
        modules = [module for module in model.modules() if type(module).__name__.endswith("TopKRouter")]
        self.layers, self.active = len(modules), int(modules[0].top_k)
        self._replay: Tensor | None = None
        self._choices: list[Tensor] | None = None
        for layer, router in enumerate(modules):
            router.register_forward_hook(partial(self._after, layer))

    def unknown(self, rows: int, columns: int, device: torch.device) -> Tensor:
        """Return experts [rows, columns, layers, k] that the routers are to choose themselves."""
        return torch.full((rows, columns, self.layers, self.active), ANY_EXPERT, dtype=torch.int16, device=device)

    @contextlib.contextmanager
    def watching(self, replay: Tensor | None = None) -> Iterator[list[Tensor]]:
        """Watch the passes inside; `replay` [N, layers, k]: experts of their N tokens, or `ANY_EXPERT`. Yields a list
        that gets the routers' own choice [N, k], layer by layer."""
        before = self._replay, self._choices
        choices = list[Tensor]()
        self._replay, self._choices = replay, choices
        try:
            yield choices
        finally:
            self._replay, self._choices = before

    def stack_choices(self, choices: list[Tensor], columns: int) -> Tensor:
        """Return the choices [B, columns, layers, k] of one pass."""
        return torch.stack(choices, 1).to(torch.int16).view(-1, columns, self.layers, self.active)

    def _after(self, layer: int, router: Any, _: Any, output: tuple[Tensor, Tensor, Tensor]) -> Any:
        logits, gates, experts = output
        if self._choices is not None:
            self._choices.append(experts)
        if self._replay is None:
            return output
        replay = self._replay[:, layer].long()
        experts = torch.where(replay == ANY_EXPERT, experts, replay)
        return logits, gates_over(logits, experts, router.norm_topk_prob).to(gates.dtype), experts


def gates_over(logits: Tensor, experts: Tensor, normalise: bool) -> Tensor:
    """Return the gates [N, k] of experts [N, k], from the router's logits [N, E]: the softmax over all experts,
    `normalise`d to 1 over these."""
    gates = logits.softmax(-1, dtype=torch.float32).gather(-1, experts)
    return gates / gates.sum(-1, keepdim=True) if normalise else gates


def routing_differs(sampler: Tensor, trainer: Tensor, mask: Tensor) -> Tensor:
    """Return the share [B, T] of layers whose set of experts differs where the distribution of each token is computed,
    0 at padding, given the experts [B, P + T, layers, k] of both and `mask` [B, T]."""
    width = mask.shape[1]
    before = slice(-width - 1, -1)  # a token is drawn at the position of the one before
    differ = sampler[:, before].sort(-1).values != trainer[:, before].sort(-1).values
    return differ.any(-1).to(mask.dtype).mean(-1) * mask


def resize(experts: Tensor, width: int, new_prompt: int, new_width: int) -> Tensor:
    """Return experts [B, P + `width`, layers, k] for prompts and completions padded to `new_prompt` and `new_width`.
    Columns that are dropped are padding."""
    sides = new_prompt - experts.shape[1] + width, new_width - width
    return pad(experts, (0, 0, 0, 0, *sides), value=ANY_EXPERT)


def mask_unread_tokens(experts: Tensor, prompt_mask: Tensor, mask: Tensor) -> Tensor:
    """Return experts [B, P + T, layers, k] without those of padding and of a completion's last token, after which
    nothing is drawn, so that they depend on the row alone. `prompt_mask` [B, P], `mask` [B, T]."""
    read = torch.cat([prompt_mask > 0, mask[:, 1:] > 0, mask.new_zeros((len(mask), 1), dtype=torch.bool)], 1)
    return torch.where(read[:, :, None, None], experts, ANY_EXPERT)


class RoutingNotes:
    """Experts [B, columns, layers, k] of rows that are decoded, each token's when it is first read."""

    def __init__(self, routers: Routers, rows: int, columns: int, device: torch.device) -> None:
        self.routers, self.out = routers, routers.unknown(rows, columns, device)

    @contextlib.contextmanager
    def watching(self, first: int, end: int, rows: Tensor, source: Tensor | None) -> Iterator[None]:
        """Record a pass over the columns `first` … `end` − 1 of `rows`; `source`: for each, the row that was read."""
        with self.routers.watching() as choices:
            yield
        if choices:
            picks = self.routers.stack_choices(choices, end - first)
            before = self.out[rows, first:end]
            picks = picks if source is None else picks.index_select(0, source)
            self.out[rows, first:end] = torch.where(before == ANY_EXPERT, picks, before)
