"""Sampling: each completion is a function of its own noise, prompt and versions; log-probabilities are the actor's."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from decoder_requests import LENGTH, PROMPTS, noise, request, versions_of
from language_fixtures import Policies
from numpy.typing import NDArray
from torch import Tensor

from staleharness.language import batched_generation
from staleharness.language.batched_generation import sample_cumulative
from staleharness.language.decoder_interface import Decoded
from staleharness.language.in_process_decoders import make_decoder
from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.model.fused_forward import FusedForward
from staleharness.language.sampler import behaviour_logp, teacher_force
from staleharness.language.version_groups import join_segments
from staleharness.training.policy_buffer import PolicyBuffer

DECODER = "transformers"


@pytest.fixture(params=["transformers", "shared_prompts", "packed_weights", "native"], autouse=True)
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "DECODER", request.param)


def sample(policy: CausalLM, buffer: PolicyBuffer, versions: NDArray[np.int64], **asked: Any) -> Decoded:
    return make_decoder(DECODER, policy).complete(request(policy, versions, **asked), buffer)


def alone(policy: CausalLM, prompt: list[int], completion: list[int]) -> Tensor:
    """Log-probabilities of a completion by transformers, one row, nothing padded."""
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([prompt + completion])).logits[0].double()
    logp = logits.log_softmax(-1)
    return torch.stack([logp[len(prompt) + t - 1, token] for t, token in enumerate(completion)])


def test_a_completion_does_not_depend_on_its_batch(policy: Policies) -> None:
    actor, versions = policy(), np.zeros((8, 1), dtype=np.int64)
    buffer, uniform = versions_of(actor, 1), noise()
    whole = sample(actor, buffer, versions, uniform=uniform)
    for half in (slice(0, 4), slice(4, 8)):
        part = sample(actor, buffer, versions, rows=half, uniform=uniform[half])
        width = part.token.shape[1]
        assert torch.equal(whole.token[half, :width], part.token)
        assert torch.equal(whole.mask[half, :width], part.mask)
        assert not whole.mask[half, width:].any()
        assert torch.allclose(whole.logp[half, :width], part.logp, atol=1e-5)
    assert len({tuple(row) for row in whole.token.tolist()}) > 4  # and they are not all the same


def test_a_large_vocabulary_gives_the_same_tokens_by_blocks(policy: Policies, monkeypatch: pytest.MonkeyPatch) -> None:
    actor, versions, asked = policy(), np.zeros((8, 1), dtype=np.int64), []
    buffer, uniform = versions_of(actor, 1), noise()
    small = sample(actor, buffer, versions, uniform=uniform)
    monkeypatch.setattr(batched_generation, "LARGE_VOCABULARY", actor.model.config.vocab_size - 1)
    monkeypatch.setattr(batched_generation, "sample_cumulative", lambda *given: asked.append(given))
    large = sample(actor, buffer, versions, uniform=uniform)
    assert not asked and torch.equal(small.token, large.token)
    torch.testing.assert_close(small.logp, large.logp, atol=1e-5, rtol=1e-5)


def test_greedy_decoding_is_that_of_transformers(policy: Policies) -> None:
    actor = policy()
    found = sample(actor, versions_of(actor, 1), np.zeros((8, 1), dtype=np.int64))
    for row, prompt in enumerate(PROMPTS):
        ids = torch.tensor([prompt])
        wanted = actor.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=LENGTH, do_sample=False)[
            0, len(prompt) :
        ]
        count = int(found.mask[row].sum())
        assert found.token[row, :count].tolist() == wanted.tolist()
        assert bool(found.ended[row]) == (wanted[-1].item() in actor.end)


def test_a_row_ends_with_its_end_token_and_is_padded_behind_it(policy: Policies) -> None:
    actor = policy()
    found = sample(actor, versions_of(actor, 1), np.zeros((8, 1), dtype=np.int64), uniform=noise())
    assert found.ended.any()
    for row in range(8):
        count = int(found.mask[row].sum())
        token = found.token[row].tolist()
        assert found.mask[row, :count].all()
        assert not found.mask[row, count:].any()
        assert not set(token[: count - 1]) & set(actor.end)
        assert (token[count - 1] in actor.end) == bool(found.ended[row])
        assert set(token[count:]) <= {actor.pad}


def test_sampling_inverts_the_cumulative_distribution() -> None:
    logits = torch.tensor([[1.0, 0.0, -2.0, 0.5]])
    p = logits.double().softmax(-1)[0]
    edges = [0.0, *p.cumsum(0).tolist()]
    for token in range(4):
        for inside in (1e-6, 0.5, 1 - 1e-6):
            u = edges[token] + inside * (edges[token + 1] - edges[token])
            assert sample_cumulative(logits, torch.tensor([u], dtype=torch.float64)).item() == token
    draws = sample_cumulative(logits.expand(20_000, 4), torch.from_numpy(np.random.default_rng(0).random(20_000)))
    assert torch.allclose(torch.bincount(draws, minlength=4) / 20_000.0, p.float(), atol=0.01)
    assert sample_cumulative(torch.tensor([[0.0, -torch.inf]]), torch.tensor([1.0 - 2**-24])).item() == 0
    assert sample_cumulative(torch.tensor([[-torch.inf, 0.0]]), torch.tensor([0.0])).item() == 1


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_a_mixture_of_versions_equals_one_version_at_a_time(policy: Policies, kind: str) -> None:
    actor = policy(versions=kind)
    buffer, uniform = versions_of(actor, 3), noise()
    versions = np.array([0, 2, 1, 1, 0, 2, 2, 0])[:, None]
    mixed = sample(actor, buffer, versions, uniform=uniform)
    taken = set()
    for v in range(3):
        rows = np.flatnonzero(versions[:, 0] == v)
        only = sample(actor, buffer, np.full((8, 1), v), uniform=uniform)
        width = min(mixed.token.shape[1], only.token.shape[1])
        assert torch.equal(mixed.token[rows, :width], only.token[rows, :width])
        assert torch.allclose(mixed.logp[rows, :width], only.logp[rows, :width], atol=1e-5)
        taken.add(tuple(map(tuple, only.token.tolist())))
    assert len(taken) == 3  # the versions do differ


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_behaviour_logp_is_that_of_the_acting_version(policy: Policies, kind: str) -> None:
    actor = policy(versions=kind)
    buffer, uniform = versions_of(actor, 3), noise()
    before = [p.detach().clone() for p in actor.parameters.values()]
    versions = np.array([0, 2, 1, 1, 0, 2, 2, 0])[:, None]
    actor.micro_batch = 3
    decoder, asked = make_decoder(DECODER, actor), request(actor, versions, uniform=uniform)
    found = decoder.complete(asked, buffer)
    scored = behaviour_logp(decoder, asked, found, teacher_force(decoder, asked, found, buffer).logp)
    assert all(torch.equal(p, kept) for p, kept in zip(actor.parameters.values(), before, strict=True))
    for row in range(8):
        with torch.no_grad():
            for name, p in actor.parameters.items():
                p.copy_(buffer[int(versions[row, 0])].tensors[name])
        count = int(found.mask[row].sum())
        wanted = alone(actor, PROMPTS[row], found.token[row, :count].tolist())
        assert torch.allclose(scored[row, :count].double(), wanted, atol=1e-5)
        assert torch.allclose(found.logp[row, :count].double(), wanted, atol=1e-5)
        assert not scored[row, count:].any()


@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.parametrize("kv_cache", ["recompute", "keep"])
@pytest.mark.long
def test_in_flight_updates_leave_each_token_its_version(policy: Policies, kind: str, kv_cache: str) -> None:
    actor = policy(versions=kind, kv_cache=kv_cache)
    buffer, uniform = versions_of(actor, 3), 0.5 * noise()
    versions = np.array([[0, 1, 2, 2]] * 4 + [[1, 2, 2, 2]] * 4)
    decoder, asked = make_decoder(DECODER, actor), request(actor, versions, uniform=uniform, segment_length=3)
    found = decoder.complete(asked, buffer)
    assert torch.equal(found.version, torch.from_numpy(versions.repeat(3, 1)[:, : found.token.shape[1]]))
    scored = teacher_force(decoder, asked, found, buffer).logp
    reached = 0
    for row in range(8):
        count = int(found.mask[row].sum())
        for t in range(count):
            with torch.no_grad():
                for name, p in actor.parameters.items():
                    p.copy_(buffer[int(versions[row, t // 3])].tensors[name])
            wanted = alone(actor, PROMPTS[row], found.token[row, :count].tolist())[t]
            assert scored[row, t].item() == pytest.approx(wanted.item(), abs=1e-5)
            if kv_cache == "recompute":
                assert found.logp[row, t].item() == pytest.approx(wanted.item(), abs=1e-5)
            reached = max(reached, t)
    assert reached > 6  # at least one sequence saw three versions
    written = behaviour_logp(decoder, asked, found, scored)
    if kv_cache == "recompute":
        assert torch.equal(written, scored)
    else:  # keys and values of earlier versions stay in the cache: another distribution
        assert torch.equal(written, found.logp)
        assert not torch.allclose(found.logp, scored, atol=1e-3)
        assert torch.allclose(found.logp[:, :3], scored[:, :3], atol=1e-5)


def test_a_stop_string_ends_a_completion_after_its_last_token(policy: Policies) -> None:
    actor = policy()
    buffer, versions = versions_of(actor, 1), np.zeros((8, 1), dtype=np.int64)
    free = sample(actor, buffer, versions, uniform=noise())
    row = int(free.mask.sum(1).argmax())
    stop = actor.tokenizer.decode(free.token[row, 3:5].tolist())
    found = sample(actor, buffer, versions, uniform=noise(), stops=(stop,))
    count = int(found.mask[row].sum())
    text = actor.tokenizer.decode(found.token[row, :count].tolist())
    assert stop in text
    assert stop not in actor.tokenizer.decode(found.token[row, : count - 1].tolist())
    assert count <= 5
    assert bool(found.ended[row])
    assert torch.equal(found.token[row, :count], free.token[row, :count])


@pytest.mark.parametrize(
    ("kv_cache", "segment", "trusted"), [("keep", 5, True), ("keep", LENGTH, False), ("recompute", 5, False)]
)
def test_own_logp_counts_only_where_no_version_alone_sampled(
    policy: Policies, kv_cache: str, segment: int, trusted: bool
) -> None:
    actor = policy(kv_cache=kv_cache, lag="inflight:5", capacity=2)
    versions = np.zeros((8, LENGTH // segment), dtype=np.int64)
    asked = request(actor, versions, uniform=noise(), segment_length=segment)
    assert make_decoder(DECODER, actor).trusted(asked) is trusted


@pytest.mark.parametrize("stops", [(), ("1",)])
@pytest.mark.parametrize("batch", [0, 3])
@pytest.mark.parametrize("kv_cache", ["recompute", "keep"])
@pytest.mark.long
def test_rows_whose_versions_change_do_not_depend_on_each_other(
    policy: Policies, kv_cache: str, batch: int, stops: tuple[str, ...]
) -> None:
    """Rows change at different tokens, come together and part again, and end while others continue."""
    actor = policy(kv_cache=kv_cache)
    actor.decode_batch = batch
    buffer, uniform = versions_of(actor, 4), noise()
    versions = np.sort(np.random.default_rng(3).integers(0, 4, (8, LENGTH)), axis=1)
    versions[5] = versions[5][::-1]  # an earlier version may follow a later one
    whole = sample(actor, buffer, versions, uniform=uniform, segment_length=1, stops=stops)
    ends = set()
    for row in range(8):
        one = slice(row, row + 1)
        found = sample(actor, buffer, versions, rows=one, uniform=uniform[one], segment_length=1, stops=stops)
        width = found.token.shape[1]
        assert torch.equal(whole.token[one, :width], found.token)
        assert torch.equal(whole.mask[one, :width], found.mask) and not whole.mask[row, width:].any()
        assert torch.equal(whole.ended[one], found.ended)
        torch.testing.assert_close(whole.logp[one, :width], found.logp, atol=1e-5, rtol=1e-5)
        ends.add(int(found.mask.sum()))
    assert len(ends) > 2


def test_rows_are_read_again_only_where_their_version_changes(
    policy: Policies, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = policy()
    buffer = versions_of(actor, 3)
    versions = np.array([[0] * 2 + [1] * 8] * 4 + [[1] * 7 + [2] * 3] * 4)
    passes: list[tuple[int, int]] = []
    run = FusedForward.__call__

    def count(self: FusedForward, ids: Tensor, *rest: Any) -> Tensor:
        passes.append(tuple(ids.shape))  # type: ignore[arg-type]
        return run(self, ids, *rest)

    monkeypatch.setattr(FusedForward, "__call__", count)
    monkeypatch.setattr(actor, "end", ())  # every row is as long as may be
    sample(actor, buffer, versions, uniform=noise(), segment_length=1)
    rows_read = sum(rows for rows, tokens in passes if tokens == 3)  # token −1 and the two that are there
    assert rows_read >= 4 and sum(rows for rows, tokens in passes if tokens == 8) >= 4
    steps = [rows for rows, tokens in passes if tokens == 1]
    assert 8 in steps  # rows of both groups that version 1 samples, in one pass
    # version 0 alone and version 1 alone for two tokens, then version 1 for five and version 2 for three
    assert sum(steps) + rows_read + 4 <= 8 * LENGTH + 16


def test_segments_without_a_change_are_one() -> None:
    versions = np.array([[0, 0, 1, 1, 1], [2, 2, 2, 2, 3]])
    merged = join_segments([(0, 2), (2, 4), (4, 6), (6, 7), (7, 9)], versions)
    assert [(first, last, column.tolist()) for first, last, column in merged] == [
        (0, 4, [0, 2]),
        (4, 7, [1, 2]),
        (7, 9, [1, 3]),
    ]


def test_models_without_a_fused_pass_sample_the_same_tokens(policy: Policies) -> None:
    actor = policy()
    buffer, uniform = versions_of(actor, 3), noise()
    versions = np.array([[0, 1, 2, 2]] * 4 + [[1, 2, 2, 2]] * 4)
    fused = sample(actor, buffer, versions, uniform=uniform, segment_length=3)
    actor.fuses = False
    plain = sample(actor, buffer, versions, uniform=uniform, segment_length=3)
    assert torch.equal(plain.token, fused.token) and torch.equal(plain.ended, fused.ended)
    torch.testing.assert_close(plain.logp, fused.logp, atol=1e-5, rtol=1e-5)
