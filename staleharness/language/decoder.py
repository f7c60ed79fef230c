"""What samples completions: what a decoder is given, what it answers, and where decoders are found.

A decoder is one file: a class registered with `DECODERS.register("name")`. Built-in ones lie in `decoders/`, each in
the file of its own name; others come the ways that every plugin comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from ..base.package_registry import module_names
from ..base.plugins import Registry, source_hash
from ..errors import UserError, nearest, shorten

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from ..simulator.policy_buffer import PolicyBuffer
    from .model.causal_lm import CausalLM


@dataclass(frozen=True)
class Request:
    """Prompts to complete, and by which versions."""

    prompt: Tensor  # [B, P] int64, padded on the left
    prompt_mask: Tensor  # [B, P] int64; 1 for a token
    versions: NDArray[np.int64]  # [B, S] of each row in each stretch; S > 1: weights change inside the completion
    stretch: int  # tokens that one version samples, the last stretch but for what the limit cuts
    uniform: Tensor | None  # [B, length] in [0, 1), the noise of each token; None: the likeliest token
    length: int  # most tokens of a completion
    stops: tuple[str, ...] = ()  # strings that end a completion, beside the model's own end tokens
    ends: tuple[int, ...] = ()  # tokens sampled when each stretch ends, where they are not of one length

    @property
    def spans(self) -> list[tuple[int, int]]:
        """(first token, behind the last) of each stretch."""
        ends = self.ends or [min((s + 1) * self.stretch, self.length) for s in range(self.versions.shape[1])]
        return list(pairwise([0, *ends]))

    def version(self, width: int) -> Tensor:
        """The version [B, width] that each of the first tokens is asked of."""
        import torch

        times = [last - first for first, last in self.spans]
        each = self.versions.repeat(times, axis=1)[:, :width].copy()
        return torch.from_numpy(each).to(self.prompt.device)


@dataclass(frozen=True)
class Decoded:
    """Completions [B, T], padded on the right; T is the longest, at least 1."""

    token: Tensor  # int64
    mask: Tensor  # float32; 1 for a token that was sampled, the ending one included
    ended: Tensor  # [B] bool; False where the limit cut the completion
    logp: Tensor  # float32, the decoder's own log-probability of each token under the version that sampled it
    version: Tensor  # int64, the version that sampled each token; at padding any one of the buffer


class Decoder:
    """An engine that samples completions at temperature 1 from the whole distribution.

    A row depends on its prompt, versions and noise alone, never on the rows beside it. An engine that cannot be given
    noise seeds its own generator from it.
    """

    name: ClassVar[str] = ""  # set by registration

    def __init__(self, policy: CausalLM) -> None:
        self.policy = policy

    def decode(self, request: Request, buffer: PolicyBuffer) -> Decoded:
        """The completions, sampled by versions in the buffer. Called without gradient; leaves the policy as it is."""
        raise NotImplementedError(f"{type(self).__name__} must define decode(request, buffer)")

    def trusted(self, request: Request) -> bool:
        """Whether its own log-probabilities are the behaviour's. By default they are not: teacher forcing under the
        version that sampled, with the trainer's arithmetic, leaves staleness as the only mismatch."""
        return False

    def complete(self, request: Request, buffer: PolicyBuffer) -> Decoded:
        """What `decode` answers, looked over. Raises `UserError` for an answer of another shape or type, and `OOM`
        where the GPU's memory was too small."""
        import torch

        from .model.memory import explained

        with torch.no_grad(), explained(self.policy, sampling=True):
            decoded = self.decode(request, buffer)
        if (wrong := _fault(decoded, request, buffer)) is not None:
            raise UserError(f"the decoder {self.name} answered {wrong}")
        return decoded


DECODERS: Registry[type[Decoder]] = Registry("decoders")


def check_decoder(name: str) -> None:
    """Raise `UserError` with the nearest known name where no decoder has this one. Imports no built-in decoder."""
    known = {*_built_in(), *DECODERS}
    if name not in known:
        raise UserError(f"no decoder is called {shorten(name)!r}; {nearest(name, known)}")


def decoder_digest(name: str) -> str:
    """What the file of a decoder that is not built in says; empty for a built-in one."""
    return "" if name in _built_in() else source_hash(DECODERS[name])


def make_decoder(name: str, policy: CausalLM) -> Decoder:
    """The decoder called `name`, for this policy. Raises `UserError` for a name that none has."""
    check_decoder(name)
    if name in _built_in():
        import_module(f".decoders.{name}", __package__)
    return DECODERS[name](policy)


def _built_in() -> set[str]:
    return set(module_names(f"{__package__}.decoders"))


def _fault(decoded: Decoded, request: Request, buffer: PolicyBuffer) -> str | None:
    """What is wrong with an answer, in words."""
    rows, width = len(request.prompt), decoded.mask.shape[-1]
    whole = "token mask logp version".split()
    for name, shape in {**dict.fromkeys(whole, (rows, width)), "ended": (rows,)}.items():
        found = tuple(getattr(decoded, name).shape)
        if found != shape:
            return f"{name} {list(found)} where mask and prompts make it {list(shape)}"
    if not 1 <= width <= request.length:
        return f"completions of up to {width} tokens where 1 to {request.length} were asked for"
    for names, kind in (("token version", "int64"), ("mask logp", "float32"), ("ended", "bool")):
        for name in names.split():
            given = str(getattr(decoded, name).dtype).removeprefix("torch.")
            if given != kind:
                return f"{name} in {given} where {kind} is due"
    if bool((decoded.mask[:, 1:] > decoded.mask[:, :-1]).any()):
        return "a mask with tokens behind padding"
    unknown = [v for v in decoded.version.unique().tolist() if v not in buffer]
    if unknown:
        return f"version {unknown[0]}, which is not in the buffer"
    return None
