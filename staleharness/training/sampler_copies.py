"""Copies of past policies with which a sampler acts under a mismatch model, and a view of the policy buffer that
returns them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..base.streams import global_generators_restored, seed_global_generators
from ..errors import UserError
from ..mismatch import Mismatch, Place
from .policy_buffer import PolicyBuffer, Version

if TYPE_CHECKING:
    from torch import Tensor

# Function of a version that returns its tensors with the sampler's matrices.
CopyTensors = Callable[[Version], dict[str, "Tensor"]]
ROUTER = re.compile(r"[._](gate|router(\.\w+)?)\.weight$")  # of a mixture of experts
BLOCK = re.compile(r"(^|\.)(layers|h|blocks|block)\.\d+\.")


class SamplerCopies:
    """Cache of the copies of the newest `capacity` versions. A copy is a function of its version and the run's seed,
    also where a model draws from a global generator, so a checkpoint needs none of this."""

    def __init__(self, copy: CopyTensors, capacity: int, seed: int) -> None:
        self.copy, self.capacity, self.seed = copy, capacity, seed
        self._copies: dict[int, Version] = {}

    def of(self, version: Version) -> Version:
        """Return the copy of a version."""
        if version.phase not in self._copies:
            with global_generators_restored():
                seed_global_generators(self.seed, "mismatch", version.phase)
                self._copies[version.phase] = replace(version, tensors=self.copy(version))
            while len(self._copies) > self.capacity:
                del self._copies[min(self._copies)]
        return self._copies[version.phase]

    def view(self, buffer: PolicyBuffer) -> PolicyBuffer:
        """Return a view of a buffer whose versions are copies."""
        return _CopiesView(buffer, self)


class _CopiesView(PolicyBuffer):
    def __init__(self, buffer: PolicyBuffer, copies: SamplerCopies) -> None:
        super().__init__(buffer.capacity)
        self.buffer, self.copies = buffer, copies

    def __getitem__(self, phase: int) -> Version:
        return self.copies.of(self.buffer[phase])

    def __contains__(self, phase: int) -> bool:
        return phase in self.buffer

    @property
    def newest(self) -> Version:
        return self.copies.of(self.buffer.newest)

    def in_host_memory(self) -> list[Version]:
        versions, copies = self.buffer.in_host_memory(), self.copies._copies
        return [*versions, *(copies[v.phase] for v in versions if v.phase in copies)]


def block_copier(models: Sequence[Mismatch], seed: int, in_by_out: Collection[str] = ()) -> CopyTensors:
    """Return a function that copies a model's version: matrices [out, in] inside its layers alone, since engines leave
    embedding, head, norms, routers and biases as they are, also biases [experts, out].

    in_by_out: names of matrices that the model stores as [in, out]."""

    def copy_tensors(version: Version) -> dict[str, Tensor]:
        tensors = {name: tensor.clone() for name, tensor in version.tensors.items()}
        for name, tensor in tensors.items():
            is_matrix = tensor.ndim >= 2 and not name.endswith("bias")
            if is_matrix and BLOCK.search(name) and not ROUTER.search(name):
                place, flip = Place(name, version.phase, seed), name in in_by_out
                copy = apply(models, tensor.mT.contiguous() if flip else tensor, place)
                tensors[name] = copy.mT.contiguous() if flip else copy
        return tensors

    return copy_tensors


def apply(models: Sequence[Mismatch], weight: Tensor, place: Place) -> Tensor:
    """Return the sampler's copy of a matrix under all models in their order. Raises `UserError` (`check_like`)."""
    for model in models:
        copy = model.matrix(weight, place)
        check_like(copy, weight, f"MISMATCH={model.text}: matrix", f"for {place.name}")
        weight = copy
    return weight


def check_like(answer: object, tensor: Tensor, method: str, place: str) -> None:
    """Raise `UserError` where a model's answer does not have the shape and type of a tensor, such as a row that would
    be broadcast over the matrix."""
    import torch  # here, as the loop imports this file where no policy acts

    shape = list(tensor.shape)
    if not isinstance(answer, torch.Tensor):
        raise UserError(f"{method} returns a {type(answer).__name__}, not a tensor {shape}, {place}")
    if list(answer.shape) != shape:
        raise UserError(f"{method} returns a tensor {list(answer.shape)}, not {shape}, {place}")
    if answer.dtype != tensor.dtype:
        raise UserError(f"{method} returns {dtype_name(answer)}, not {dtype_name(tensor)}, {place}")


def dtype_name(tensor: Tensor) -> str:
    """Return the type of the numbers, `float32`."""
    return str(tensor.dtype).removeprefix("torch.")
