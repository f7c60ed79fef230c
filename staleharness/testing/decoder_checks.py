"""Contract of every decoder, one check per promise: on a small language model with random weights."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..base.streams import global_generators_restored, seed_global_generators, stream
from ..language.decoder_interface import DECODERS, Decoded, Decoder, Request
from ..language.prompt_formatting import pad_left
from ..language.spec import LanguageSpec
from ..mismatch import read_mismatch
from ..training.policy_buffer import PolicyBuffer
from .check_runner import global_generators, parametrize, refusals_fail, run_checks

if TYPE_CHECKING:
    from ..language.model.causal_lm_policy import CausalLM

DecoderCheck = Callable[[type[Decoder]], None]

WORDS = "Ann has 3 cards. Ben gives 2 more to her.\nHow many? 3+2=5\n#### 5"
PROMPTS = [[5, 7, 9], [6, 8, 10, 12, 5, 9, 7], [11], [4, 4, 5, 6], [9, 8], [13, 5, 5, 6, 7, 8]]
VERSIONS, LENGTH = 3, 8
ROWS = 300  # rows of the sample whose frequencies are looked at
SIGMAS = 5.0  # of a frequency: a right decoder is beyond it with a probability below 1e-4
LIKELY = 20.0  # smallest expected count of a token that is looked at
NEAR = 0.05  # nats, average distance of a reported log-probability; room for an engine of low precision


@functools.cache
def example_policy() -> tuple[CausalLM, PolicyBuffer]:
    """Return a Qwen2 of a few thousand random weights on the CPU, and a buffer of its versions, which differ
    clearly."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from ..language.model.causal_lm_policy import CausalLM
    from ..language.word_tokenizer import word_tokenizer

    words = word_tokenizer([WORDS], range(10))
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "max_position_embeddings": 64}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.4, "tie_word_embeddings": True}
    ends = {"eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id, "bos_token_id": None}
    with global_generators_restored(), tempfile.TemporaryDirectory() as folder:
        seed_global_generators(0, "contract")
        Qwen2ForCausalLM(Qwen2Config(vocab_size=len(words), **sizes, **heads, **ends)).save_pretrained(folder)
        words.save_pretrained(folder)
        settings = {"env": "word-problems", "algorithm": "ppo_clip", "model": folder}
        policy = CausalLM(folder, LanguageSpec.from_dict(settings))
    buffer, generator = PolicyBuffer(VERSIONS), torch.Generator().manual_seed(1)
    for v in range(VERSIONS):
        with torch.no_grad():
            for p in policy.parameters.values():
                p.add_(0.15 * v * torch.randn(p.shape, generator=generator))
        buffer.push(policy.snapshot(v, 10 * v))
    return policy, buffer


def example_request(rows: int = len(PROMPTS), segments: int = 1, length: int = LENGTH, **changes: Any) -> Request:
    """Return a request for completions of the example's prompts, in turn, by its versions, in turn."""
    policy, _ = example_policy()
    prompt, mask = pad_left([PROMPTS[i % len(PROMPTS)] for i in range(rows)], policy.pad, policy.device)
    versions = (np.arange(rows)[:, None] + np.arange(segments)) % VERSIONS
    noise = torch.from_numpy(stream(0, "contract").random((rows, length), np.float32))
    request = Request(prompt, mask, versions, -(-length // segments), noise, length)
    return replace(request, **changes)


def cases() -> dict[str, Request]:
    """Return requests like those of runs, by description."""
    return {
        "prompts of several versions": example_request(),
        "prompts of one version": example_request(versions=np.ones((len(PROMPTS), 1), np.int64)),
        "completions of one token": example_request(length=1),
        "one prompt": example_request(rows=1),
        "greedy sampling": example_request(uniform=None),
        "versions that change inside completions": example_request(segments=4),
        "segments of unequal length": example_request(segments=3, ends=(1, 6, LENGTH)),
    }


def is_a_listed_decoder(cls: type[Decoder]) -> None:
    """The class is registered under its name, and has a docstring."""
    assert cls.name in DECODERS and DECODERS[cls.name] is cls, "register it with @DECODERS.register('name')"
    assert cls.__dict__.get("__doc__"), "write a docstring"


def completes_every_request(cls: type[Decoder]) -> None:
    """Requests get completions of valid shapes by the versions requested; log-probabilities are reported unless
    `reports_logp` is False."""
    for words, request in cases().items():
        reports = _complete(cls, request).logp is not None
        kind = "log-probabilities" if reports else "None"
        assert reports == cls.reports_logp, f"{words}: `logp` is {kind}, but reports_logp is {cls.reports_logp}"


def leaves_the_policy_and_the_buffer(cls: type[Decoder]) -> None:
    """The weights of the policy and its versions are the same afterwards."""
    policy, buffer = example_policy()
    places = {"the policy": policy.parameters, **{f"version {v}": buffer[v].tensors for v in range(VERSIONS)}}
    before = {place: {name: x.detach().clone() for name, x in tensors.items()} for place, tensors in places.items()}
    for words, request in cases().items():
        _complete(cls, request)
        for place, tensors in places.items():
            wrong = [name for name, x in tensors.items() if not torch.equal(x, before[place][name])]
            assert not wrong, f"{words}: {place} has another {wrong[0]} afterwards; work on a copy"


def ends_with_an_end_token_or_a_stop(cls: type[Decoder]) -> None:
    """A completion ends at its first end token, at the token that completes a stop, or at the limit, and `ended` says
    which."""
    policy, _ = example_policy()
    free = _complete(cls, example_request(rows=12))
    row = int(free.mask.sum(1).argmax())
    stop = policy.tokenizer.decode(free.token[row, 2:4].tolist())
    for stops in ((), (stop,)):
        decoded = _complete(cls, example_request(rows=12, stops=stops))
        for token, mask, ended in zip(decoded.token, decoded.mask, decoded.ended, strict=True):
            tokens = token[mask > 0].tolist()
            over = [_is_over(policy, tokens[:n], stops) for n in range(1, len(tokens) + 1)]
            assert not any(over[:-1]), f"{tokens} goes on after its end (end tokens {policy.end}, stops {stops})"
            assert over[-1] or len(tokens) == LENGTH, f"{tokens} stops before the limit of {LENGTH}"
            assert bool(ended) == over[-1], f"`ended` is {bool(ended)} for {tokens}, stops {stops}"


def takes_the_likeliest_tokens_without_noise(cls: type[Decoder]) -> None:
    """Each token is the likeliest one where `uniform` is None."""
    request = example_request(rows=12, uniform=None)
    decoded = _complete(cls, request)
    logp = _log_probabilities(request, decoded)
    gap = logp.amax(-1) - _of_tokens(logp, decoded)
    assert (gap * decoded.mask).max() < NEAR, "without noise a token is sampled that is not the likeliest"


def samples_from_its_versions(cls: type[Decoder]) -> None:
    """Tokens come from the whole distribution, at temperature 1, of the version requested for them, unless `trusted`
    says that no version alone has that distribution."""
    policy, _ = example_policy()
    for segments in (1, 4):
        request = example_request(rows=ROWS, segments=segments)
        if cls(policy).trusted(request):
            continue
        decoded = _complete(cls, request)
        logp, mask = _log_probabilities(request, decoded), decoded.mask.double()
        p = logp.exp()
        count = torch.nn.functional.one_hot(decoded.token, p.shape[-1]).double()
        for token, (n, expected, variance) in enumerate(_sums(mask[..., None], count, p, p * (1.0 - p))):
            far = abs(n - expected) > SIGMAS * variance**0.5
            word = repr(policy.tokenizer.decode([token]))
            words = f"{word} is sampled {n:.0f} times, expected {expected:.0f} ± {variance**0.5:.0f}"
            assert expected < LIKELY or not far, words
        entropy = -(p * logp).sum(-1)
        surprise = -_of_tokens(logp, decoded)
        ((total, expected, variance),) = _sums(
            mask[..., None], surprise[..., None], entropy[..., None], ((p * logp**2).sum(-1) - entropy**2)[..., None]
        )
        words = f"sampled tokens have {total:.0f} nats, expected {expected:.0f} ± {variance**0.5:.0f}"
        assert abs(total - expected) < SIGMAS * variance**0.5, f"{words}: another temperature or version"


def reports_log_probabilities_of_its_tokens(cls: type[Decoder]) -> None:
    """`logp` is near the log-probability of the token that was sampled, under the version requested for it."""
    policy, _ = example_policy()
    request = example_request(rows=60, segments=4)
    if not cls.reports_logp or cls(policy).trusted(request):
        return
    decoded = _complete(cls, request)
    assert decoded.logp is not None
    distance = (decoded.logp - _of_tokens(_log_probabilities(request, decoded), decoded)).abs() * decoded.mask
    average = float(distance.sum() / decoded.mask.sum())
    assert average < NEAR, f"log-probabilities are {average:.2g} nats away from the trainer's, on average"


def is_a_function_of_its_request(cls: type[Decoder]) -> None:
    """The same request gives the same bits, also from a new instance, which is all that remains after an
    interruption; global random generators neither matter nor move."""
    for words, request in cases().items():
        results = []
        with global_generators_restored():
            for seed in range(2):
                seed_global_generators(seed, "contract")
                before = global_generators()
                results.append(_complete(cls, request))
                assert before == global_generators(), f"{words}: a global random generator moves; use `uniform`"
        first, second = results
        for field in ("token", "mask", "ended", "logp"):
            x, y = getattr(first, field), getattr(second, field)
            assert x is y is None or torch.equal(x, y), f"{words}: `{field}` differs when asked for again"


def does_not_see_the_other_rows(cls: type[Decoder]) -> None:
    """A row's tokens are the same in another batch and another order."""
    request = example_request(rows=12, segments=4)
    rows = np.array([7, 2, 5])
    index = torch.from_numpy(rows)
    assert request.uniform is not None
    part = replace(
        request,
        prompt=request.prompt[index],
        prompt_mask=request.prompt_mask[index],
        versions=request.versions[rows],
        uniform=request.uniform[index],
    )
    batch, alone = _complete(cls, request), _complete(cls, part)
    for place, row in enumerate(rows):
        first, second = (d.token[i][d.mask[i] > 0].tolist() for d, i in ((batch, row), (alone, place)))
        assert first == second, f"a row has the tokens {first} in one batch and {second} in another"


def draws_from_the_logits_of_its_sampling(cls: type[Decoder]) -> None:
    """A decoder that sets `reads_sampling` draws from the logits that the request's models return."""
    if not cls.reads_sampling:
        return
    request = example_request(rows=60, sampling=read_mismatch("sampling[top_k=2]"))
    decoded = _complete(cls, request)
    logp = _log_probabilities(request, decoded)
    second = logp.topk(2, -1).values[..., 1]
    outside = (_of_tokens(logp, decoded) < second - NEAR) & (decoded.mask > 0)
    assert not outside.any(), "sampling[top_k=2]: a token is sampled that is not among the two likeliest"


DECODER_CHECKS: tuple[DecoderCheck, ...] = (
    is_a_listed_decoder,
    completes_every_request,
    leaves_the_policy_and_the_buffer,
    ends_with_an_end_token_or_a_stop,
    takes_the_likeliest_tokens_without_noise,
    samples_from_its_versions,
    reports_log_probabilities_of_its_tokens,
    is_a_function_of_its_request,
    does_not_see_the_other_rows,
    draws_from_the_logits_of_its_sampling,
)


def check_decoder(cls: type[Decoder]) -> None:
    """Run every check; needs the extra `llm`. Raises `AssertionError`, one line that names the decoder and the
    check."""
    run_checks(DECODER_CHECKS, cls.name or cls.__name__, cls)


def parametrize_with_decoder_checks(decoders: Iterable[type[Decoder]]) -> Any:
    """A pytest decorator: one test `(decoder, check)` for each check on each class."""
    return parametrize("decoder", [(cls.name, cls) for cls in decoders], DECODER_CHECKS)


def _complete(cls: type[Decoder], request: Request) -> Decoded:
    policy, buffer = example_policy()
    with refusals_fail():
        return cls(policy).complete(request, buffer)


def _is_over(policy: CausalLM, tokens: list[int], stops: tuple[str, ...]) -> bool:
    text = policy.tokenizer.decode(tokens)
    return tokens[-1] in policy.end or any(stop in text for stop in stops)


@torch.no_grad()
def _log_probabilities(request: Request, decoded: Decoded) -> Tensor:
    """Return log-probabilities [B, T, V] in float64 of all tokens at each place of the completions, by whole forward
    passes of the version requested for it."""
    policy, buffer = example_policy()
    ids = torch.cat([request.prompt, decoded.token], 1)
    attention = torch.cat([request.prompt_mask, decoded.mask.long()], 1)
    positions = (attention.cumsum(1) - 1).clamp(min=0)
    result = torch.empty(0)
    for v in range(VERSIONS):
        with policy.acting([buffer[v]], np.zeros(len(ids), np.int64)) as forward:
            logits = forward(ids, attention, positions, None, decoded.token.shape[1] + 1)[:, :-1]
        of_version = logits.double().log_softmax(-1)
        result = torch.where((decoded.version == v)[..., None], of_version, result) if len(result) else of_version
    return result


def _of_tokens(logp: Tensor, decoded: Decoded) -> Tensor:
    return logp.gather(-1, decoded.token[..., None])[..., 0]


def _sums(mask: Tensor, *terms: Tensor) -> list[tuple[float, ...]]:
    """Return sums over the sampled tokens [B, T] of terms [B, T, n], as n tuples."""
    return list(zip(*((mask * x).sum((0, 1)).tolist() for x in terms), strict=True))
