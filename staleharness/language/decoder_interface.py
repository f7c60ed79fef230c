"""Interface of decoders, which sample completions: request, answer, base class, registry.

A decoder is a class registered with `DECODERS.register("name")`. Those of the library are in
`in_process_decoders.py`; others are found like every plugin.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from ..base.plugins import Registry, source_file, source_hash
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

DTYPES = {
    "mask": "float32",
    "token": "int64",
    "version": "int64",
    "logp": "float32",
    "ended": "bool",
    "experts": "int16",
}
NOT_FINITE = "log-probabilities that are not finite; where its engine reports none, return logp=None"
ROUNDING = 1e-4  # above 0, in log-probabilities


@dataclass(frozen=True)
class Request:
    """Prompts to complete, and the versions that sample."""

    prompt: Tensor  # [B, P] int64, padded on the left
    prompt_mask: Tensor  # [B, P] int64; 1 for a token
    versions: NDArray[np.int64]  # [B, S] per row and segment; S > 1: weights change inside the completion
    segment_length: int  # tokens; the limit may cut the last one
    uniform: Tensor | None  # [B, length] in [0, 1), the noise of each token; None: the likeliest token
    length: int  # most tokens of a completion
    stops: tuple[str, ...] = ()  # strings that end a completion, besides the model's end tokens
    sampling: tuple[Mismatch, ...] = ()  # models whose `logits` are drawn from, one after the other; none: all of them
    ends: tuple[int, ...] = ()  # tokens sampled by the end of each segment, where segments differ in length

    @property
    def spans(self) -> list[tuple[int, int]]:
        """(first token, end) of each segment."""
        ends = self.ends or [min((s + 1) * self.segment_length, self.length) for s in range(self.versions.shape[1])]
        return list(pairwise([0, *ends]))

    def version(self, width: int) -> Tensor:
        """Return the version [B, width] requested for each of the first `width` tokens."""
        import torch

        times = [last - first for first, last in self.spans]
        versions = self.versions.repeat(times, axis=1)[:, :width].copy()
        return torch.from_numpy(versions).to(self.prompt.device)


@dataclass(frozen=True)
class Decoded:
    """Completions [B, T], padded on the right; T is the longest. `Decoder.complete` fills padding."""

    token: Tensor  # int64
    mask: Tensor  # float32; 1 for a token that was sampled, the ending one included
    ended: Tensor  # [B] bool; False where the limit cut the completion
    # float32, the decoder's own log-probability of each token when it sampled it; None: the engine reports none
    logp: Tensor | None
    version: Tensor  # int64, the version that sampled each token: the one requested
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
        """Sample completions by versions in the buffer. Called without gradient; writes into no tensor of the policy,
        the request or the buffer: `policy.acting` exchanges weights."""
        raise NotImplementedError(f"{type(self).__name__} must define decode(request, buffer)")

    def trusted(self, request: Request) -> bool:
        """Return whether the decoder's own log-probabilities are the behaviour's. By default the two are only compared:
        teacher forcing under the version that sampled, by the trainer's arithmetic, leaves staleness as the
        only difference between behaviour and target."""
        return False

    def complete(self, request: Request, buffer: PolicyBuffer) -> Decoded:
        """Return `decode`'s answer, checked, cut to the longest completion and with its padding filled. Raises
        `UserError` for one that breaks a promise, `Diverged` where the model's log-probabilities are not finite, and
        `OOM` where the GPU's memory is too small."""
        import numpy as np
        import torch

        from .model.gpu_memory import explain_oom

        versions = request.version(request.length)
        before = _writes(self.policy, request, buffer)
        with torch.no_grad(), explain_oom(self.policy, sampling=True):
            decoded = self.decode(request, buffer)
        for place, writes in before.items():
            if any((x._version, x.data_ptr()) != (count, address) for x, count, address in writes):
                raise UserError(f"the decoder {self.name} writes into {place}; write into a copy")
        fault = _wrong_form(decoded, request) or _wrong_number(decoded, versions, self.policy.vocabulary)
        if fault == NOT_FINITE and self.name in BUILT_IN:
            numbers = np.unique(request.versions).tolist()
            raise Diverged(f"log-probabilities of sampled tokens are not finite, of versions {numbers}")
        if fault is not None:
            raise UserError(f"the decoder {self.name} returned {fault}")
        return _fill_padding(decoded, versions, self.policy.pad)


DECODERS: Registry[type[Decoder]] = Registry("decoders", Decoder)


def check_decoder_name(name: str) -> None:
    """Raise `UserError` with the nearest known name where no decoder has this name, and for a plugin that is no decoder
    or takes a built-in's name. Imports no built-in decoder."""
    names = {*BUILT_IN, *DECODERS}
    if name not in names:
        raise UserError(f"no decoder is called {shorten(name)!r}; {nearest(name, names)}")
    for candidate in sorted({name, *BUILT_IN} & set(DECODERS)):
        cls = DECODERS[candidate]
        if candidate in BUILT_IN and cls.__module__ != f"{__package__}.in_process_decoders":
            where = f"plugin {source_file(cls)}: {cls.__name__}"
            raise UserError(f"{where} takes the name of the built-in decoder {candidate}; rename it")


def takes_mu_from_decoder(spec: LanguageSpec) -> bool:
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
    if takes_mu_from_decoder(spec) and not decoder.reports_logp:
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


def _writes(policy: CausalLM, request: Request, buffer: PolicyBuffer) -> dict[str, list[tuple[Tensor, int, int]]]:
    """Return the tensors that a decoder only reads, by place, each with autograd's count of writes and its address."""
    places = {
        "the policy's weights": list(policy.model.parameters()),
        "the request": [x for x in (request.prompt, request.prompt_mask, request.uniform) if x is not None],
        "a version of the buffer": [x for version in buffer.in_host_memory() for x in version.tensors.values()],
    }
    return {place: [(x, x._version, x.data_ptr()) for x in tensors] for place, tensors in places.items()}


def _wrong_form(decoded: object, request: Request) -> str | None:
    """Return the first wrong type or shape of an answer, in words."""
    from torch import Tensor

    if not isinstance(decoded, Decoded):
        return f"an object of type {type(decoded).__name__} instead of Decoded"
    rows, prompt_width = request.prompt.shape
    width = 0  # of the mask, which comes first
    for name, kind in DTYPES.items():
        x = getattr(decoded, name)
        if x is None and name in ("logp", "experts"):
            continue
        if not isinstance(x, Tensor):
            return f"{name} of type {type(x).__name__} instead of a tensor"
        if name == "mask":
            if x.ndim != 2:
                return f"mask of shape {list(x.shape)} instead of [B, T]"
            width = x.shape[1]
        shape = {"ended": [rows], "experts": [rows, prompt_width + width]}.get(name, [rows, width])
        actual = list(x.shape[:2] if name == "experts" else x.shape)
        if actual != shape:
            return f"{name} of shape {actual}, where mask and prompts require {shape}"
        if (dtype := str(x.dtype).removeprefix("torch.")) != kind:
            return f"{name} in {dtype} instead of {kind}"
        if x.device != request.prompt.device:
            return f"{name} on {x.device}, where the prompts are on {request.prompt.device}"
    if not 1 <= width <= request.length:
        return f"completions of up to {width} tokens, where 1 to {request.length} were requested"
    return None


def _wrong_number(decoded: Decoded, versions: Tensor, vocabulary: int) -> str | None:
    """Return the first number of an answer that cannot be, in words; waits for the GPU once."""
    import torch

    mask, token, version = decoded.mask, decoded.token, decoded.version
    logp = torch.zeros_like(mask) if decoded.logp is None else decoded.logp
    is_token, versions = mask > 0, versions[:, : mask.shape[1]]
    is_unknown, highest = (token < 0) | (token >= vocabulary), vocabulary - 1
    faults = [
        ("a mask with {:g}, where 0 and 1 are possible", mask, (mask != 0) & (mask != 1)),
        ("a mask with tokens after padding", mask[:, 1:], mask[:, 1:] > mask[:, :-1]),
        ("a completion without a token", mask[:, 0], mask[:, 0] == 0),
        (NOT_FINITE, logp, is_token & ~logp.isfinite()),
        (f"token {{}}, where 0 to {highest} are possible", token, is_token & is_unknown),
        ("the log-probability {:.2g}, where 0 is the highest possible", logp, is_token & (logp > ROUNDING)),
        ("a token of version {}, which was not requested for it", version, is_token & (version != versions)),
    ]
    anywhere = torch.stack([wrong.any() for _, _, wrong in faults]).tolist()
    for (words, numbers, wrong), is_wrong in zip(faults, anywhere, strict=True):
        if is_wrong:
            return words.format(numbers[wrong][0].item())
    return None


def _fill_padding(decoded: Decoded, versions: Tensor, pad: int) -> Decoded:
    """Return completions cut to the longest; padding has the pad token, log-probability 0 and the version requested."""
    longest = int(decoded.mask.sum(1).max())
    excess = decoded.mask.shape[1] - longest
    mask, logp, experts = decoded.mask[:, :longest], decoded.logp, decoded.experts
    return Decoded(
        token=decoded.token[:, :longest].masked_fill(mask == 0, pad),
        mask=mask,
        ended=decoded.ended,
        logp=None if logp is None else logp[:, :longest].masked_fill(mask == 0, 0.0),
        version=versions[:, :longest],
        experts=None if experts is None else experts[:, : experts.shape[1] - excess],
    )
