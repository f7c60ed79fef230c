"""A causal language model as the policy: one set of weights that trains, past versions of it that act.

A version is a copy of every trainable tensor in host memory: all weights (`full`), or the LoRA matrices alone
(`lora`), which are added to the frozen weights wherever the model is asked.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import UserError
from ...simulator.policy_buffer import Version
from ...tokens.policy import Entropy, Forward, Scored
from ..spec import LanguageSpec
from .loading import behind_a_text, end_tokens, load, with_lora
from .past import Past, Read
from .quick_pass import QuickPass, suits
from .scoring import score
from .shared_prompts import SharedPrompts
from .shelf import Shelf
from .weights import Weights, joined


class CausalLM:
    """Model, tokenizer and the tensors that train.

    The weights are float32; with `dtype=bfloat16` the arithmetic is autocast. Dropout is off, so that a
    log-probability depends on weights and tokens alone.
    """

    def __init__(self, source: str, spec: LanguageSpec) -> None:
        self.spec, self.device = spec, torch.device(spec.device)
        self.tokenizer, model = load(source)
        self.end = end_tokens(model, self.tokenizer)
        self.known = int(model.get_input_embeddings().weight.shape[0])  # tokens that have a vector
        pad = self.tokenizer.pad_token_id
        self.pad = int(self.end[0] if pad is None or pad >= self.known else pad)
        if spec.versions == "lora":
            model = with_lora(model, spec)
        self.model: Any = model.to(self.device)
        self.model.eval()
        _without_dropout(self.model)
        if spec.gradient_checkpointing:
            with warnings.catch_warnings():  # later releases have another name for it, and still this one
                warnings.simplefilter("ignore", FutureWarning)
                self.model.gradient_checkpointing_enable({"use_reentrant": False})
            if spec.versions == "lora":
                self.model.enable_input_require_grads()
        trainable = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self.parameters = {name: trainable[name] for name in sorted(trainable)}
        self.precision = torch.bfloat16 if spec.dtype == "bfloat16" else torch.float32  # of matrix products
        self.micro_batch = spec.micro_batch  # completions in one forward pass; 0: all
        self.decode_batch = spec.decode_batch  # completions that are sampled together; 0: all
        sliding = any(type(layer).__name__ != "DynamicLayer" for layer in self.cache().layers)
        self.shares_prompts = not sliding  # a prompt that several rows have is read once
        self.quick = suits(self.plain)
        # transformers allows no cache with checkpointing; scoring goes the way of training, so that both say the same
        self.trains_with_cache = self.quick or not spec.gradient_checkpointing
        self.decodes_in_place = self.quick and self.device.type == "cuda"
        self.shelf: Shelf | None = None  # versions that stay on a GPU; without it they come from the host one by one
        # the last snapshot, and how often each parameter had been written to
        self.newest: tuple[Version, list[int]] | None = None
        self.scores_ahead = False  # whether the pass that scores a round may be the one that its gradient goes through
        self.ahead: tuple[tuple[Tensor, ...], list[int], Scored] | None = None
        next(iter(self.parameters.values())).register_post_accumulate_grad_hook(self._learns)

    def tokens(self, texts: list[str], special: bool) -> list[list[int]]:
        """The texts as the tokenizer splits them; `special`: with what it puts before a text, and not what it may put
        behind one, which ends it. Raises `UserError` for tokens that the model has no vector for."""
        behind = behind_a_text(self.tokenizer) if special else 0
        found = self.tokenizer(texts, add_special_tokens=special)["input_ids"]
        rows = [list(ids[: len(ids) - behind]) for ids in found]
        if (largest := max((max(ids, default=0) for ids in rows), default=0)) >= self.known:
            raise UserError(
                f"the tokenizer splits text into token {largest} ({self.tokenizer.convert_ids_to_tokens(largest)!r}), "
                f"and the model has {self.known}; give MODEL a tokenizer of its own"
            )
        return rows

    @property
    def size(self) -> int:
        """Trainable numbers."""
        return sum(p.numel() for p in self.parameters.values())

    @property
    def whole(self) -> int:
        """Numbers of the model, whether they train or not."""
        return sum(p.numel() for p in self.model.parameters())

    @property
    def plain(self) -> Any:
        """The model without what PEFT puts around it; an adapter is in its layers."""
        return self.model.get_base_model() if self.spec.versions == "lora" else self.model

    def snapshot(self, phase: int, gradient_step: int) -> Version:
        tensors = {name: p.detach().to("cpu", copy=True) for name, p in self.parameters.items()}
        version = Version(phase, gradient_step, tensors)
        self.newest = version, self._counters()
        return version

    def _counters(self) -> list[int]:
        """How often each parameter was written to, as autograd counts: not by a fused optimiser."""
        return [p._version for p in self.parameters.values()]

    def _learns(self, _: Tensor) -> None:
        """A gradient has come: what was said of the weights as they are will not hold."""
        self.newest = self.ahead = None

    def is_learner(self, version: Version) -> bool:
        """Whether nothing has been learnt since that version was stored."""
        return self.newest is not None and self.newest[0] is version and self.newest[1] == self._counters()

    def keep_versions(self, room: int) -> None:
        """Have the newest so many versions that act stay on the device; they act together."""
        self.shelf = Shelf(room, self._joined) if self.quick and room > 0 else None

    @property
    def together(self) -> int:
        """Versions, or sequences of them, that can act in one batch."""
        return 1 if self.shelf is None else self.shelf.room

    def _joined(self, version: Version) -> Weights:
        """A version's weights on the device: the learner's own where it is that version still."""
        with contextlib.nullcontext() if self.is_learner(version) else self._wearing(version):
            return {name: w.detach() for name, w in joined(self.plain, self.precision).items()}

    def groups(self, versions: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Rows of the same versions, given each row's versions [B, S] one after the other; by version, then in
        order."""
        different, which = np.unique(versions, axis=0, return_inverse=True)
        return [np.flatnonzero(which == i) for i in range(len(different))]

    @contextlib.contextmanager
    def acting(self, versions: Sequence[Version], position: NDArray[np.int64]) -> Iterator[Forward]:
        """A forward pass in which row i is computed by `versions[position[i]]`; the learner is left as it was.

        There can be several only where they stay on the device, and only as parts of equal length, one behind the
        other.
        """
        if self.shelf is not None:
            equal = np.repeat(np.arange(len(versions)), len(position) // len(versions))
            if not np.array_equal(position, equal):
                raise ValueError("several versions act on parts of equal length")
            yield QuickPass(self.plain, self.precision, weights=self.shelf.weights(versions))
            return
        if len(versions) != 1:
            raise ValueError(f"{len(versions)} versions cannot act in one batch")
        with contextlib.nullcontext() if self.is_learner(versions[0]) else self._wearing(versions[0]):
            yield self.passes()

    @contextlib.contextmanager
    def _wearing(self, version: Version) -> Iterator[None]:
        """The parameters are those of a version."""
        learner = {name: p.data for name, p in self.parameters.items()}
        try:
            for name, p in self.parameters.items():
                p.data = version.tensors[name].to(self.device)
            yield
        finally:
            for name, p in self.parameters.items():
                p.data = learner[name]

    def forward(self, ids: Tensor, attention: Tensor, positions: Tensor, cache: Any, keep: int) -> Tensor:
        """Logits [B, keep, V] after the last `keep` of `ids` [B, L]; `attention` [B, past + L] is 1 for tokens."""
        # transformers checkpoints in training mode, and then ignores the cache: only where a gradient is wanted
        training = self.spec.gradient_checkpointing and torch.is_grad_enabled()
        if self.model.training != training:
            self.model.train(training)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.spec.dtype == "bfloat16"):
            out = self.model(
                input_ids=ids,
                attention_mask=attention,
                position_ids=positions,
                past_key_values=cache,
                use_cache=cache is not None,
                logits_to_keep=keep,
            )
        logits: Tensor = out.logits
        return logits

    def passes(self) -> Forward:
        """The forward pass with the weights as they are now: the quick one where model and settings allow it."""
        if self.quick:
            return QuickPass(self.plain, self.precision, self.spec.gradient_checkpointing)
        return self.forward

    def cache(self) -> Any:
        """An empty cache of keys and values, as transformers has it."""
        from transformers import DynamicCache

        return DynamicCache(config=self.model.config)

    def sampling_cache(self, width: int, length: int, shared: bool) -> Any:
        """An empty cache for prompts of up to `width` tokens and `length` more that are sampled behind each, written in
        place; `shared`: with each prompt's part once, where the quick pass is the one to use it."""
        from .kv_cache import RoomyCache

        if shared and self.quick:
            return SharedPrompts(int(self.model.config.num_hidden_layers), length)
        return RoomyCache(self.model.config, width + length, self.precision)

    def past(self) -> Any:
        """An empty cache for prompts that several rows continue, with gradient where one is wanted."""
        layers = int(self.model.config.num_hidden_layers)
        return Past([Read() for _ in range(layers)]) if self.quick else self.cache()

    def score(
        self,
        prompt: Tensor,
        prompt_mask: Tensor,
        token: Tensor,
        mask: Tensor,
        forward: Forward | None = None,
        entropy: Entropy = "value",
        norm: bool = False,
    ) -> Scored:
        """Teacher-forced log-probabilities, entropies and, if asked for, the norms of distributions.

        prompt [B, P] padded on the left, token [B, T] padded on the right. By the learner unless another
        forward pass is given.
        """
        if forward is None and entropy == "value" and not norm and torch.is_grad_enabled():
            kept, self.ahead = self.ahead, None
            given = (prompt, prompt_mask, token, mask)
            if kept and all(a is b for a, b in zip(kept[0], given, strict=True)) and kept[1] == self._counters():
                return kept[2]
        return score(self, prompt, prompt_mask, token, mask, forward or self.passes(), entropy, norm)

    def score_ahead(self, prompt: Tensor, prompt_mask: Tensor, token: Tensor, mask: Tensor) -> Scored:
        """By the learner, with gradient: when the very same completions are asked for with gradient and nothing has
        been learnt since, this is the answer, and the model is not asked twice for the same numbers."""
        with torch.enable_grad():
            scored = self.score(prompt, prompt_mask, token, mask)
        self.ahead = (prompt, prompt_mask, token, mask), self._counters(), scored
        return scored


def _without_dropout(model: torch.nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout"):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010 (to mypy a module has tensors only)
