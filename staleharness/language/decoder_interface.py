"""Interface of decoders, which sample completions: request, answer, base class, registry.

A decoder is a class registered with `DECODERS.register("name")`. Those of the library are in
`in_process_decoders.py`; others are found like every plugin.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from ..base.plugins import Registry, source_hash
from ..errors import Diverged, UserError, nearest, shorten
from ..mismatch import NONE, Mismatch, read_mismatch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from ..training.policy_buffer import PolicyBuffer
    from .model.causal_lm_policy import CausalLM
    from .spec import LanguageSpec

BUILT_IN = ("transformers", "shared_prompts", "packed_weights", "native")  # registered by in_process_decoders.py


@dataclass(frozen=True)
class Request:
    """Prompts to complete, and the versions that sample."""

    prompt: Tensor  # [B, P] int64, padded on the left
    prompt_mask: Tensor  # [B, P] int64; 1 for a token
    versions: NDArray[np.int64]  # [B, S] per row and stretch; S > 1: weights change inside the completion
    stretch: int  # tokens per stretch; the limit may cut the last one
    uniform: Tensor | None  # [B, length] in [0, 1), the noise of each token; None: the likeliest token
    length: int  # most tokens of a completion
    stops: tuple[str, ...] = ()  # strings that end a completion, besides the model's end tokens
    sampling: tuple[Mismatch, ...] = ()  # models whose `logits` are drawn from, one after the other; none: all of them
    ends: tuple[int, ...] = ()  # tokens sampled by the end of each stretch, where stretches differ in length

    @property
    def spans(self) -> list[tuple[int, int]]:
        """(first token, end) of each stretch."""
        ends = self.ends or [min((s + 1) * self.stretch, self.length) for s in range(self.versions.shape[1])]
        return list(pairwise([0, *ends]))

    def version(self, width: int) -> Tensor:
        """Return the version [B, width] requested for each of the first `width` tokens."""
        import torch

        times = [last - first for first, last in self.spans]
        versions = self.versions.repeat(times, axis=1)[:, :width].copy()
        return torch.from_numpy(versions).to(self.prompt.device)


@dataclass(frozen=True)
class Decoded:
    """Completions [B, T], padded on the right; T is the longest, at least 1."""

    token: Tensor  # int64
    mask: Tensor  # float32; 1 for a token that was sampled, the ending one included
    ended: Tensor  # [B] bool; False where the limit cut the completion
    # float32, the decoder's own log-probability of each token when it sampled it; None: the engine reports none
    logp: Tensor | None
    version: Tensor  # int64, the version that sampled each token; at padding any one of the buffer
    # [B, P + T, layers, k] int16, experts of each token when it was first read, −1: not read; None: not reported
    experts: Tensor | None = None


class Decoder:
    """An engine that samples completions at temperature 1 from the whole distribution.

    A row depends on its prompt, versions and noise alone, never on the rows beside it. An engine that takes no noise
    seeds its own generator from it.
    """

    name: ClassVar[str] = ""  # set by registration

    reports_logp: ClassVar[bool] = True
    """The engine reports the log-probabilities of what it sampled; where it does not, `Decoded.logp` is None."""

    reports_experts: ClassVar[bool] = False
    """The engine reports the experts that tokens went to in a mixture of experts, as `Decoded.experts`."""

    reads_sampling: ClassVar[bool] = False
    """The engine draws from its logits as shaped by the models in `request.sampling`."""

    def __init__(self, policy: CausalLM) -> None:
        self.policy = policy

    def decode(self, request: Request, buffer: PolicyBuffer) -> Decoded:
        """Sample completions by versions in the buffer. Called without gradient; leaves the policy as it is."""
        raise NotImplementedError(f"{type(self).__name__} must define decode(request, buffer)")

    def trusted(self, request: Request) -> bool:
        """Return whether the decoder's own log-probabilities are the behaviour's. By default the two are only compared:
        teacher forcing under the version that sampled, by the trainer's arithmetic, leaves staleness as the
        only difference between behaviour and target."""
        return False

    def complete(self, request: Request, buffer: PolicyBuffer) -> Decoded:
        """Return `decode`'s answer, checked. Raises `UserError` for one of another shape or type, `Diverged` where the
        model's log-probabilities are not finite, and `OOM` where the GPU's memory is too small."""
        import numpy as np
        import torch

        from .model.gpu_memory import explain_oom

        with torch.no_grad(), explain_oom(self.policy, sampling=True):
            decoded = self.decode(request, buffer)
        if (wrong := _fault(decoded, request, buffer)) is not None:
            raise UserError(f"the decoder {self.name} returned {wrong}")
        if decoded.logp is not None and not bool((decoded.logp.isfinite() | (decoded.mask == 0)).all()):
            if self.name in BUILT_IN:
                raise Diverged(
                    "log-probabilities of sampled tokens are not finite, of versions "
                    f"{np.unique(request.versions).tolist()}"
                )
            raise UserError(
                f"the decoder {self.name} returned log-probabilities that are not finite; where its engine reports "
                "none, return logp=None"
            )
        return decoded


DECODERS: Registry[type[Decoder]] = Registry("decoders")


def check_decoder(name: str) -> None:
    """Raise `UserError` with the nearest known name where no decoder has this name. Imports no built-in decoder."""
    names = {*BUILT_IN, *DECODERS}
    if name not in names:
        raise UserError(f"no decoder is called {shorten(name)!r}; {nearest(name, names)}")


def samples_mu(spec: LanguageSpec) -> bool:
    """Return whether μ is what the decoder reports, in any run of a spec."""
    return spec.behaviour == "sampler" or (spec.behaviour == "auto" and spec.mismatch != NONE)


def check_sampler(spec: LanguageSpec) -> None:
    """Raise `UserError` where the mismatch model does not work with the decoder, the device or LoRA versions."""
    models, where = read_mismatch(spec.mismatch), f"MISMATCH={spec.mismatch}"
    if spec.versions == "lora" and any(model.changes_weights() for model in models):
        raise UserError(f"{where} copies whole matrices, but a LoRA version is only an adapter; give versions=full")
    if spec.device != "cpu" and any(model.truncates for model in models):
        raise UserError(f"{where} sums probabilities in an order that a GPU does not guarantee; use DEVICE=cpu")
    if spec.decoder in BUILT_IN:
        return
    decoder = DECODERS[spec.decoder]
    if samples_mu(spec) and not decoder.reports_logp:
        raise UserError(
            f"{where}, behaviour={spec.behaviour}: the decoder {spec.decoder} reports no log-probabilities to take μ "
            "from; give SET=behaviour=version"
        )
    if spec.routing_replay == "R3" and not decoder.reports_experts:
        raise UserError(f"routing_replay=R3: the decoder {spec.decoder} does not report experts; give R2")
    if any(model.changes_logits() for model in models) and not decoder.reads_sampling:
        raise UserError(f"{where}: the decoder {spec.decoder} samples from all tokens at temperature 1 only")


def decoder_digest(name: str) -> str:
    """Return the hash of a third party's decoder file; empty for a built-in decoder."""
    return "" if name in BUILT_IN else source_hash(DECODERS[name])


def _fault(decoded: Decoded, request: Request, buffer: PolicyBuffer) -> str | None:
    """Return the fault of an answer, in words."""
    rows, width = len(request.prompt), decoded.mask.shape[-1]
    matrices = [name for name in ("token", "mask", "logp", "version") if getattr(decoded, name) is not None]
    for name, shape in {**dict.fromkeys(matrices, (rows, width)), "ended": (rows,)}.items():
        actual = tuple(getattr(decoded, name).shape)
        if actual != shape:
            return f"{name} of shape {list(actual)}, where mask and prompts require {list(shape)}"
    columns = request.prompt.shape[1] + width
    if decoded.experts is not None and decoded.experts.shape[:2] != (rows, columns):
        return f"experts of shape {list(decoded.experts.shape[:2])}, where prompts and mask require {[rows, columns]}"
    if not 1 <= width <= request.length:
        return f"completions of up to {width} tokens, where 1 to {request.length} were requested"
    for names, kind in (("token version", "int64"), ("mask logp", "float32"), ("ended", "bool")):
        for name in set(names.split()) & {*matrices, "ended"}:
            dtype = str(getattr(decoded, name).dtype).removeprefix("torch.")
            if dtype != kind:
                return f"{name} in {dtype} instead of {kind}"
    if bool((decoded.mask[:, 1:] > decoded.mask[:, :-1]).any()):
        return "a mask with tokens after padding"
    unknown = [v for v in decoded.version.unique().tolist() if v not in buffer]
    if unknown:
        return f"version {unknown[0]}, which is not in the buffer"
    return None
