"""A causal language model as the policy: one set of weights that trains, and versions of it that act.

A version is a copy of every trainable tensor in host memory: all weights (`full`), or the LoRA matrices alone
(`lora`), which are added to the frozen weights in every forward pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...base.files import fsync
from ...errors import UserError
from ...tokens.policy_interface import Entropy, Forward, TokenScores
from ...training.policy_buffer import Version
from ..spec import LanguageSpec
from .fused_forward import FusedForward, Weights, fused_weights, supports_fused_forward
from .kv_cache import PreallocatedCache, PrefixCache, PrefixLayer
from .model_loading import (
    disable_dropout,
    enable_checkpointing,
    end_tokens,
    in_by_out_matrices,
    load,
    trailing_special_tokens,
    with_lora,
)
from .model_preflight import is_mixture, replay_refusal
from .native_forward_backward import NativeForward, supports_native_forward
from .routing import Routers
from .scoring import score
from .shared_prompt_cache import SharedPromptCache
from .version_offload import HostCopies, ResidentVersions


class CausalLM:
    """Model, tokenizer and the tensors that train.

    The weights are float32; with `dtype=bfloat16` the arithmetic is autocast. Dropout is off, so that a
    log-probability depends on weights and tokens alone.
    """

    def __init__(self, source: str, spec: LanguageSpec) -> None:
        self.spec, self.device = spec, torch.device(spec.device)
        self.tokenizer, model = load(source)
        self.end = end_tokens(model, self.tokenizer)
        self.vocabulary = int(model.get_input_embeddings().weight.shape[0])  # tokens that have a vector
        pad = self.tokenizer.pad_token_id
        self.pad = int(self.end[0] if pad is None or pad >= self.vocabulary else pad)
        if spec.versions == "lora":
            model = with_lora(model, spec)
        self.model: Any = model.to(self.device)
        self.model.eval()
        disable_dropout(self.model)
        if spec.gradient_checkpointing:
            enable_checkpointing(self.model, with_adapter=spec.versions == "lora")
        trainable = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self.parameters = {name: trainable[name] for name in sorted(trainable)}
        self.linear_parameters = frozenset(
            f"{name}.{parameter}"
            for name, module in self.model.named_modules()
            if isinstance(module, torch.nn.Linear)
            for parameter in ("weight", "bias")
        )
        self.in_by_out_parameters = frozenset(in_by_out_matrices(self.model))
        self.precision = torch.bfloat16 if spec.dtype == "bfloat16" else torch.float32  # of matrix products
        self.micro_batch = spec.micro_batch  # completions in one forward pass; 0: all
        self.decode_batch = spec.decode_batch  # completions sampled together; 0: all
        sliding = any(type(layer).__name__ != "DynamicLayer" for layer in self.cache().layers)
        self.shares_prompts = not sliding  # a prompt of several rows is read once
        self.fuses = supports_fused_forward(self.base_model)
        self.fused_kind = NativeForward if spec.learner == "native" else FusedForward
        if spec.learner == "native" and not (self.fuses and supports_native_forward(self.base_model)):
            raise UserError(
                "learner=native supports Qwen2 and Llama models whose head size is a multiple of 8, not this model "
                f"({self.model.config.model_type}); use learner=torch"
            )
        self.routers = Routers(self.base_model) if is_mixture(self.base_model.config.model_type) else None
        if self.routers is None and spec.routing_replay != "none":
            raise UserError(replay_refusal(spec, str(self.base_model.config.model_type)))
        # transformers allows no cache with checkpointing; scoring computes as training does, so that their bits agree.
        # Experts are by row: a prompt that two versions have read has two sets of them
        self.trains_with_cache = (self.fuses or not spec.gradient_checkpointing) and self.routers is None
        self.decodes_in_place = self.fuses and self.device.type == "cuda"
        self.scores_in_chunks = self.decodes_in_place  # without the logits of all tokens at once
        self.resident: ResidentVersions | None = None  # on a GPU; without it versions come from the host one by one
        self.copying: HostCopies | None = None  # the last snapshot on its way from a GPU
        # the last snapshot, and how often each parameter had been written to
        self.newest: tuple[Version, list[int]] | None = None
        self.caches_score = False  # whether a round's scores may be computed with the gradient of its training step
        self.cached_score: tuple[tuple[Tensor, ...], list[int], TokenScores] | None = None
        next(iter(self.parameters.values())).register_post_accumulate_grad_hook(self._invalidate)

    def tokens(self, texts: list[str], special: bool) -> list[list[int]]:
        """Tokenise texts; `special`: with the tokenizer's special tokens before a text, never those after it, which
        end it. Raises `UserError` for tokens that the model has no vector for."""
        trailing = trailing_special_tokens(self.tokenizer) if special else 0
        rows = [list(ids) for ids in self.tokenizer(texts, add_special_tokens=special)["input_ids"]]
        rows = [ids[: len(ids) - trailing] for ids in rows]
        if (largest := max((max(ids, default=0) for ids in rows), default=0)) >= self.vocabulary:
            raise UserError(
                f"the tokenizer gives token {largest} ({self.tokenizer.convert_ids_to_tokens(largest)!r}), but the "
                f"model has only {self.vocabulary} tokens; give MODEL the tokenizer that it was trained with"
            )
        return rows

    @property
    def size(self) -> int:
        """Number of trainable weights."""
        return sum(p.numel() for p in self.parameters.values())

    @property
    def total_size(self) -> int:
        """Number of weights, frozen ones included."""
        return sum(p.numel() for p in self.model.parameters())

    @property
    def base_model(self) -> Any:
        """Model without PEFT's wrapper; an adapter is in its layers."""
        return self.model.get_base_model() if self.spec.versions == "lora" else self.model

    def save(self, folder: Path) -> None:
        """Write the model as it is now, an adapter added to its weights, with its tokenizer into a new folder that
        transformers loads. The last use of this policy."""
        model = self.model.merge_and_unload() if self.spec.versions == "lora" else self.model
        model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        for file in folder.iterdir():
            fsync(file)

    def snapshot(self, phase: int, gradient_step: int) -> Version:
        tensors: Mapping[str, Tensor]
        if self.newest is not None and self.has_weights_of(self.newest[0]):
            tensors = self.newest[0].tensors  # copied for an evaluation
        elif self.device.type == "cuda":
            if self.copying is not None:
                self.copying.wait()  # not two copies on the GPU at once
            tensors = self.copying = HostCopies(self.parameters)
        else:
            tensors = {name: p.detach().to("cpu", copy=True) for name, p in self.parameters.items()}
        version = Version(phase, gradient_step, tensors)
        self.newest = version, self._counters()
        return version

    def _counters(self) -> list[int]:
        """Return autograd's count of writes to each parameter; a fused optimiser is not counted."""
        return [p._version for p in self.parameters.values()]

    def _invalidate(self, _: Tensor) -> None:
        """Discard what holds only for the current weights: a gradient has arrived."""
        self.newest = self.cached_score = None

    def has_weights_of(self, version: Version) -> bool:
        """Return whether the weights are still those of `version`."""
        return self.newest is not None and self.newest[0] is version and self.newest[1] == self._counters()

    def keep_resident(self, capacity: int) -> None:
        """Keep the newest `capacity` acting versions on the device, where they act together."""
        self.resident = ResidentVersions(capacity, self._fused_weights) if self.fuses and capacity > 0 else None

    @property
    def parallel_versions(self) -> int:
        """Number of versions that can act in one batch."""
        return 1 if self.resident is None else self.resident.capacity

    def _fused_weights(self, version: Version) -> Weights:
        """Return a version's weights on the device: the learner's own where they are still that version's."""
        with self._with_weights(version, self.precision):
            return {name: w.detach() for name, w in fused_weights(self.base_model, self.precision).items()}

    def groups(self, versions: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Group rows by their sequences of versions, given those [B, S]: by version, then in order."""
        unique, inverse = np.unique(versions, axis=0, return_inverse=True)
        return [np.flatnonzero(inverse == i) for i in range(len(unique))]

    @contextlib.contextmanager
    def acting(self, versions: Sequence[Version], position: NDArray[np.int64]) -> Iterator[Forward]:
        """Yield a forward pass in which row i is computed by `versions[position[i]]`; the learner is left as it was.

        Several versions need resident ones.
        """
        if self.resident is not None:
            yield FusedForward(self.base_model, self.precision, weights=self.resident.weights(versions))
            return
        if len(versions) != 1:
            raise ValueError(f"{len(versions)} versions cannot act in one batch")
        with self._with_weights(versions[0]):
            yield self.forward_pass()

    def version_forward(self, version: Version) -> FusedForward:
        """Return the fused forward pass of a version, without gradient; the learner is left as it is."""
        return self.fused_kind(self.base_model, self.precision, weights=self._fused_weights(version))

    @contextlib.contextmanager
    def _with_weights(self, version: Version, matrices: torch.dtype = torch.float32) -> Iterator[None]:
        """Replace the parameters' weights by those of `version`, unless they have them; linear layers' leave the host
        as `matrices`, except adapters, which are merged in float32."""
        if self.has_weights_of(version):
            yield
            return
        learner_weights = {name: p.data for name, p in self.parameters.items()}
        linear = self.linear_parameters if self.spec.versions == "full" else frozenset[str]()
        try:
            for name, p in self.parameters.items():
                tensor = version.tensors[name]
                p.data = (tensor.to(matrices) if name in linear else tensor).to(self.device)
            yield
        finally:
            for name, p in self.parameters.items():
                p.data = learner_weights[name]

    def forward(self, ids: Tensor, attention: Tensor, positions: Tensor, cache: Any, keep: int) -> Tensor:
        """Return logits [B, keep, V] after the last `keep` of `ids` [B, L], by transformers' code.

        attention [B, cached + L] is 1 for tokens.
        """
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

    def forward_pass(self) -> Forward:
        """Return the forward pass with the weights as they are now: fused where model and settings allow it."""
        if self.fuses:
            return self.fused_kind(self.base_model, self.precision, self.spec.gradient_checkpointing)
        return self.forward

    def cache(self) -> Any:
        """Return transformers' own empty cache of keys and values."""
        from transformers import DynamicCache

        return DynamicCache(config=self.model.config)

    def sampling_cache(self, width: int, length: int, share: bool) -> Any:
        """Return an empty cache for prompts of up to `width` tokens and `length` sampled ones after each, written in
        place; `share`: each prompt once, where the forward pass is fused."""
        if share and self.fuses:
            return SharedPromptCache(int(self.model.config.num_hidden_layers), length)
        return PreallocatedCache(self.model.config, width + length, self.precision)

    def prefix_cache(self) -> Any:
        """Return an empty cache for prompts that several rows continue, with gradient where one is wanted."""
        layers = int(self.model.config.num_hidden_layers)
        return PrefixCache([PrefixLayer() for _ in range(layers)]) if self.fuses else self.cache()

    def score(
        self,
        prompt: Tensor,
        prompt_mask: Tensor,
        token: Tensor,
        mask: Tensor,
        forward: Forward | None = None,
        entropy: Entropy = "value",
        norm: bool = False,
        experts: Tensor | None = None,
    ) -> TokenScores:
        """Return teacher-forced log-probabilities, entropies and, if requested, norms of distributions.

        prompt [B, P] is padded on the left, token [B, T] on the right. By the learner unless another forward pass is
        given. experts [B, P + T, layers, k]: those that the pass goes through, in a mixture of experts.
        """
        arguments = (prompt, prompt_mask, token, mask)
        if self.routers is not None:
            with self.routers.watching(None if experts is None else experts.flatten(0, 1)) as choices:
                scores = score(self, *arguments, forward or self.forward_pass(), entropy, norm)
            return scores._replace(experts=self.routers.stack_choices(choices, prompt.shape[1] + token.shape[1]))
        if forward is None and entropy == "value" and not norm and torch.is_grad_enabled():
            cache, self.cached_score = self.cached_score, None
            is_hit = cache and all(a is b for a, b in zip(cache[0], arguments, strict=True))
            if cache and is_hit and cache[1] == self._counters():
                return cache[2]
        return score(self, *arguments, forward or self.forward_pass(), entropy, norm)

    def cache_score(self, prompt: Tensor, prompt_mask: Tensor, token: Tensor, mask: Tensor) -> TokenScores:
        """Score by the learner, with gradient, and keep the answer: the next `score` of the very same completions
        with gradient returns it, unless something has been learnt meanwhile."""
        arguments = (prompt, prompt_mask, token, mask)
        with torch.enable_grad():
            scores = self.score(*arguments)
        self.cached_score = arguments, self._counters(), scores
        return scores
