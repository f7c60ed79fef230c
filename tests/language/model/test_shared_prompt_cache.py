"""One product over a prompt for all its completions: the attention of each row, whatever rows are left."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from decoder_requests import LENGTH, PROMPTS, noise, versions_of
from language_fixtures import Policies
from torch.nn import functional as F

from staleharness.language.decoder_interface import Request
from staleharness.language.in_process_decoders import make_decoder
from staleharness.language.model import shared_prompt_cache
from staleharness.language.model.kv_cache import MASK_VALUE, DistinctPrompts
from staleharness.language.model.matrix_products import has_bfloat16_kernels
from staleharness.language.model.shared_prompt_cache import PromptRows, SharedPromptCache, length_batches
from staleharness.language.prompt_formatting import pad_left


def test_rows_are_gathered_by_prompt_and_scattered_back() -> None:
    rows = PromptRows(torch.tensor([0, 0, 0, 2, 1, 2]))
    x = torch.arange(6.0).view(6, 1, 1, 1)
    assert rows.gather(x)[:, 0, :, 0].tolist() == [[0, 1, 2], [4, 0, 0], [3, 5, 0]]  # filled up with row 0
    for which in ([0, 0, 0, 2, 1, 2], [0, 0, 1, 1], [0, 1, 2], [1, 0, 1, 0]):
        rows, x = PromptRows(torch.tensor(which)), torch.randn(len(which), 2, 3, 4)
        gathered = rows.gather(x)
        assert gathered.shape == (len(set(which)), 2, 3 * max(map(which.count, which)), 4)
        assert torch.equal(rows.scatter(gathered), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("prompt", [0, 5], ids=["no-prompt", "prompt"])
def test_attention_over_a_shared_prompt_is_that_of_every_row_alone(dtype: torch.dtype, prompt: int) -> None:
    """Against torch's own attention over keys and values written out for each row, over two passes, the rows that are
    left, and one more pass."""
    torch.manual_seed(0)
    heads, groups, width, room = 6, 2, 8, 6
    which = torch.tensor([0, 0, 0, 1, 2, 2])
    real = torch.ones(3, prompt)
    real[1, :3] = 0
    cache = SharedPromptCache(1, room)
    (layer,) = cache.layers
    cache.mask = ((real == 0) * MASK_VALUE)[:, None, None]
    cache.reading = torch.arange(3), 0

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(shape).to(dtype)

    keys, values = (numbers(3, groups, prompt, width) for _ in range(2))
    if prompt:
        query = numbers(3, heads, prompt, width)
        mask = torch.zeros(3, 1, prompt, prompt, dtype=dtype)
        alone = F.scaled_dot_product_attention(query, keys, values, mask, scale=0.3, enable_gqa=True)
        found = layer.attend(query, keys, values, mask, 0.3)
        if dtype == torch.float32 or has_bfloat16_kernels():
            assert torch.equal(found, alone)
        assert found.dtype == dtype and torch.allclose(found, alone, atol=0.01)
    cache.rows = PromptRows(which)
    whole = [x.index_select(0, which) for x in (keys, values)]
    seen = real.index_select(0, which)
    for new, left in ((1, None), (3, [0, 2, 4, 5]), (1, [3]), (1, None)):
        rows = len(seen)
        query = numbers(rows, heads, new, width)
        more = [numbers(rows, groups, new, width) for _ in range(2)]
        whole = [torch.cat(pair, 2) for pair in zip(whole, more, strict=True)]
        seen = torch.cat([seen, torch.ones(rows, new)], 1)
        later = torch.full((new, seen.shape[1]), MASK_VALUE).triu(seen.shape[1] - new + 1)
        mask = torch.minimum(((seen == 0) * MASK_VALUE)[:, None, None], later)
        wanted = F.scaled_dot_product_attention(
            query.double(), *(x.double() for x in whole), mask.double(), scale=0.3, enable_gqa=True
        )
        found = layer.attend(query, *more, mask, 0.3)
        assert found.dtype == dtype
        atol = 1e-6 if dtype == torch.float32 else 0.01
        assert torch.allclose(found.double(), wanted, atol=atol)
        if left is not None:
            cache.select(torch.tensor(left))
            whole = [x[left] for x in whole]
            seen = seen[left]


@pytest.mark.parametrize("kv_cache", ["recompute", "keep"])
def test_shared_prompts_give_the_same_completions(policy: Policies, kv_cache: str) -> None:
    actor = policy(kv_cache=kv_cache)
    buffer = versions_of(actor, 3)
    prompts = [PROMPTS[i] for i in (0, 0, 0, 1, 2, 2, 3, 3)]
    prompt, mask = pad_left(prompts, actor.pad, actor.device)
    versions = np.array([[0, 1, 2, 2]] * 6 + [[1, 2, 2, 2]] * 2)
    asked = Request(prompt, mask, versions, 3, noise(), LENGTH, ())
    wanted, found = (make_decoder(name, actor).complete(asked, buffer) for name in ("transformers", "shared_prompts"))
    for field in ("token", "mask", "ended", "version"):
        assert torch.equal(getattr(found, field), getattr(wanted, field)), field
    assert len({int(n) for n in found.mask.sum(1)}) > 1  # rows that end early leave the others
    assert torch.allclose(found.logp, wanted.logp, atol=1e-5)


def test_prompts_are_read_in_pieces_of_like_length(policy: Policies, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = torch.tensor([3, 9, 4, 0, 9, 30])
    monkeypatch.setattr(shared_prompt_cache, "MAX_TOKENS", 18)
    pieces = [(rows.tolist(), longest) for rows, longest in length_batches(lengths)]
    assert pieces == [([3, 0, 2], 4), ([1, 4], 9), ([5], 30)]
    actor, found = policy(), []
    prompt, mask = pad_left(PROMPTS, actor.pad, actor.device)
    for tokens in (10**6, 8, 1):
        monkeypatch.setattr(shared_prompt_cache, "MAX_TOKENS", tokens)
        cache = actor.sampling_cache(prompt.shape[1], LENGTH, True)
        cache.begin(DistinctPrompts(prompt, mask, None), actor.forward_pass())
        found.append([x for layer in cache.layers for x in layer.prompt])
    real = mask[:, None, :-1, None] > 0
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert torch.allclose(a * real, b * real, atol=1e-6)
            assert b.isfinite().all()


def test_a_prompt_is_kept_once(policy: Policies) -> None:
    actor = policy()
    cache = actor.sampling_cache(7, LENGTH, True)
    assert isinstance(cache, SharedPromptCache)
    ids = torch.tensor([PROMPTS[1][:6]] * 2)
    cache.begin(DistinctPrompts(ids, torch.ones_like(ids), torch.tensor([0] * 4 + [1] * 4)), actor.forward_pass())
    actor.forward_pass()(torch.full((8, 1), 9), torch.ones(8, 6), torch.full((8, 1), 5), cache, 1)
    heads = actor.model.config.num_key_value_heads
    for layer in cache.layers:
        assert [x.shape[:3] for x in (*layer.prompt, *layer.completion)] == [(2, heads, 5)] * 2 + [
            (8, heads, LENGTH)
        ] * 2
    cache.select(torch.tensor([4, 6]))
    for layer in cache.layers:
        assert [len(x) for x in (*layer.prompt, *layer.completion)] == [1, 1, 2, 2]
