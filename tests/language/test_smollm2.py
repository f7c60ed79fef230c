"""The real pretrained model against transformers itself: what it says, how likely that was, and what it learns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from gsm8k_rows import real_rows
from needs import needs_extra
from torch import Tensor

from staleharness.language.decoder_interface import Request
from staleharness.language.in_process_decoders import make_decoder
from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.problem import Problem
from staleharness.language.prompt_formatting import find_prompt, pad_left, tokenise_prompts
from staleharness.language.sampler import teacher_force
from staleharness.language.spec import LanguageSpec
from staleharness.task import find_env
from staleharness.training.policy_buffer import PolicyBuffer

pytestmark = [pytest.mark.slow, needs_extra("smollm2")]
GREEDY, LENGTH, ROWS = 64, 32, 8
DECODERS = ("transformers", "shared_prompts", "packed_weights", "native")
SETTINGS = {
    "env": "gsm8k",
    "algorithm": "ppo_clip",
    "model": "smollm2",
    "chat_template": True,
    "prompt_tokens": 512,
    "completion_tokens": LENGTH,
    "threads": 2,
}


@pytest.fixture(scope="module")
def actor() -> Iterator[CausalLM]:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    spec = LanguageSpec.from_dict(SETTINGS)
    _, family = find_env("gsm8k")
    source, remarks = family().weights(spec, lambda _: None)  # type: ignore[attr-defined]
    assert "stored as Q4_1" in remarks[0]
    yield CausalLM(source, spec)
    torch.set_num_threads(threads)


@pytest.fixture
def weights(actor: CausalLM) -> Iterator[dict[str, Tensor]]:
    """Loaded weights, restored after the test."""
    kept = {name: p.detach().clone() for name, p in actor.parameters.items()}
    yield kept
    set_weights(actor, kept)


def prompts(actor: CausalLM, count: int) -> list[list[int]]:
    problems = [Problem(question, solution, gold) for question, solution, gold in real_rows()[:count]]
    return tokenise_prompts(problems, find_prompt("verl"), [], actor, actor.spec, "train").tokens


def make_request(
    actor: CausalLM, tokens: list[list[int]], versions: list[list[int]], segment: int = LENGTH, greedy: bool = False
) -> Request:
    prompt, mask = pad_left(tokens, actor.pad, actor.device)
    uniform = torch.from_numpy(np.random.default_rng(0).random((len(tokens), LENGTH), np.float32))
    return Request(prompt, mask, np.array(versions), segment, None if greedy else uniform, LENGTH)


def buffer_of(actor: CausalLM, weights: dict[str, Tensor], count: int) -> PolicyBuffer:
    """Versions that lie a step of learning apart; the newest is the learner."""
    buffer, draw = PolicyBuffer(count), torch.Generator().manual_seed(1)
    for v in range(count):
        set_weights(actor, weights)
        with torch.no_grad():
            for p in actor.parameters.values() if v + 1 < count else ():
                p.add_(torch.randn(p.shape, generator=draw), alpha=2e-3)
        buffer.push(actor.snapshot(v, v))
    return buffer


def set_weights(actor: CausalLM, tensors: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, p in actor.parameters.items():
            p.copy_(tensors[name])


def plain(actor: CausalLM, prompt: list[int], completion: list[int]) -> Tensor:
    """Log-probabilities of a completion by transformers, one row, nothing padded and nothing shared."""
    logits = actor.model(input_ids=torch.tensor([prompt + completion]), use_cache=False).logits[0]
    logp = logits[len(prompt) - 1 : -1].log_softmax(-1)
    return logp.gather(1, torch.tensor(completion)[:, None])[:, 0]


def test_greedy_completions_are_those_of_generate(actor: CausalLM, weights: dict[str, Tensor]) -> None:
    tokens, buffer = prompts(actor, GREEDY), buffer_of(actor, weights, 1)
    request = make_request(actor, tokens, [[0]] * GREEDY, greedy=True)
    decoded = [make_decoder(name, actor).complete(request, buffer) for name in DECODERS]
    for first in range(0, GREEDY, 16):
        rows = slice(first, first + 16)
        wanted = actor.model.generate(
            request.prompt[rows], attention_mask=request.prompt_mask[rows], max_new_tokens=LENGTH, do_sample=False
        )[:, request.prompt.shape[1] :]
        for row, tokens_wanted in zip(range(first, first + 16), wanted.tolist(), strict=True):
            for found in decoded:
                count = int(found.mask[row].sum())
                assert found.token[row, :count].tolist() == tokens_wanted[:count]
                assert bool(found.ended[row]) == (tokens_wanted[count - 1] in actor.end)


def test_a_chat_ends_where_its_template_ends_a_turn(actor: CausalLM, weights: dict[str, Tensor]) -> None:
    assert [actor.tokenizer.decode([end]) for end in actor.end] == ["<|im_end|>"]
    problem = Problem("Say hello.", "#### 0", "0")
    (tokens,) = tokenise_prompts([problem], find_prompt("plain"), [], actor, actor.spec, "test").tokens
    assert actor.tokenizer.decode(tokens).count("<|im_start|>") == 3  # system, user, assistant
    request = make_request(actor, [tokens], [[0]], greedy=True)
    found = make_decoder("transformers", actor).complete(request, buffer_of(actor, weights, 1))
    assert bool(found.ended[0])
    assert int(found.token[0, int(found.mask[0].sum()) - 1]) in actor.end


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("way", ["K=1", "K=4", "in flight"])
def test_log_probabilities_are_those_of_a_plain_pass(
    actor: CausalLM, weights: dict[str, Tensor], way: str, name: str
) -> None:
    """Log-probabilities that a run records, and those that the decoder sampled from."""
    count = 1 if way == "K=1" else 4
    buffer, segment = buffer_of(actor, weights, count), LENGTH
    versions = [[row % count] for row in range(ROWS)]
    if way == "in flight":
        segment, versions = LENGTH // 4, [[0, 1, 2, 3]] * (ROWS // 2) + [[2, 2, 3, 3]] * (ROWS // 2)
    tokens = prompts(actor, ROWS)
    request = make_request(actor, tokens, versions, segment)
    decoder = make_decoder(name, actor)
    found = decoder.complete(request, buffer)
    for scored in (found.logp, teacher_force(decoder, request, found, buffer).logp):
        for version in range(count):
            set_weights(actor, buffer[version].tensors)
            for row in range(ROWS):
                n = int(found.mask[row].sum())
                mine = found.version[row, :n] == version
                if mine.any():
                    with torch.no_grad():
                        wanted = plain(actor, tokens[row], found.token[row, :n].tolist())
                    assert torch.allclose(scored[row, :n][mine], wanted[mine], atol=1e-4)
        set_weights(actor, buffer[count - 1].tensors)


def test_the_gradient_of_a_step_is_that_of_plain_passes(actor: CausalLM, weights: dict[str, Tensor]) -> None:
    tokens, buffer = prompts(actor, 4), buffer_of(actor, weights, 1)
    request = make_request(actor, tokens, [[0]] * 4)
    found = make_decoder("transformers", actor).complete(request, buffer)
    pull = torch.from_numpy(np.random.default_rng(1).normal(size=found.mask.shape).astype(np.float32))

    def gradient(total: Tensor) -> dict[str, Tensor]:
        actor.model.zero_grad()
        total.backward()
        return {name: p.grad.clone() for name, p in actor.parameters.items() if p.grad is not None}

    scored = actor.score(request.prompt, request.prompt_mask, found.token, found.mask)
    ours = gradient((scored.logp * pull).sum())
    rows = []
    for row, prompt in enumerate(tokens):
        n = int(found.mask[row].sum())
        rows.append((plain(actor, prompt, found.token[row, :n].tolist()) * pull[row, :n]).sum())
    wanted = gradient(torch.stack(rows).sum())
    assert ours.keys() == wanted.keys()
    for name, expected in wanted.items():
        assert float((ours[name] - expected).norm()) <= 1e-4 * float(expected.norm()), name
