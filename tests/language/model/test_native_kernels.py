"""Functions of `native/` alone, against torch in double precision."""

from __future__ import annotations

import pytest
import torch
from needs import needs_compiler
from torch import Tensor

from staleharness.language.model.native_kernels import WIDTH, at, gate, is_bfloat16, kernels, norm

pytestmark = needs_compiler
COLUMNS, SIZE, SCALE = 12, 16, 0.3
PROMPT = torch.tensor([0, 0, 0, 1, 2, 2])  # of each row
LENGTHS = torch.tensor([9, 1, 24])


def decode(qkv: Tensor, heads: int, groups: int, column: int, cache: tuple[Tensor, ...]) -> Tensor:
    """The new tokens' attention [B, heads · SIZE]; writes their keys and values into the cache."""
    out = torch.full((len(qkv), heads * SIZE), torch.nan)
    keys, values, own_keys, own_values = cache
    prompts = at(keys), at(values), at(LENGTHS), keys.shape[3]
    sizes = len(qkv), heads, groups, SIZE, column, SCALE
    kernels().decode(at(qkv), at(PROMPT), *sizes, *prompts, at(own_keys), at(own_values), COLUMNS, at(out))
    return out


@pytest.mark.parametrize(("heads", "groups"), [(3, 1), (9, 3), (4, 4), (4, 2), (7, 1), (14, 2)])
def test_a_new_token_attends_to_its_prompt_and_its_own_row(heads: int, groups: int) -> None:
    generator = torch.Generator().manual_seed(heads)
    width = int(LENGTHS.max()) + -int(LENGTHS.max()) % WIDTH
    prompt_keys, prompt_values = torch.randn((2, len(LENGTHS), groups, width, SIZE), generator=generator)
    for u, length in enumerate(LENGTHS.tolist()):  # as `store` leaves what is beyond a prompt
        prompt_keys[u, :, length:] = prompt_values[u, :, length:] = 0.0
    own = torch.full((2, len(PROMPT), groups, COLUMNS, SIZE), torch.nan)  # what is not there yet is not read
    cache = prompt_keys.mT.contiguous(), prompt_values, own[0], own[1]
    for column in range(COLUMNS):
        qkv = torch.randn((len(PROMPT), (heads + 2 * groups) * SIZE), generator=generator)
        out = decode(qkv, heads, groups, column, cache).view(len(PROMPT), heads, SIZE)
        new = qkv.view(len(PROMPT), -1, SIZE)
        assert torch.equal(own[0, :, :, column], new[:, heads : heads + groups])
        assert torch.equal(own[1, :, :, column], new[:, heads + groups :])
        for row, u in enumerate(PROMPT.tolist()):
            parts = ((prompt_keys, own[0]), (prompt_values, own[1]))
            keys, values = (torch.cat([old[u, :, : LENGTHS[u]], of[row, :, : column + 1]], 1) for old, of in parts)
            keys, values = (x.double().repeat_interleave(heads // groups, 0) for x in (keys, values))
            weights = (SCALE * keys @ new[row, :heads, :, None].double()).softmax(1)
            torch.testing.assert_close(out[row].double(), (weights * values).sum(1), atol=2e-6, rtol=2e-6)


def sample(logits: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
    token, logp = torch.full((len(logits),), -1), torch.empty(len(logits))
    kernels().sample(at(logits), at(noise), *logits.shape, at(token), at(logp), is_bfloat16(logits))
    return token, logp


@pytest.mark.parametrize("size", [1, 7, 8, 31, 32, 33, 255, 601, 2048])
def test_samples_invert_the_cumulative_distribution(size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    logits, noise = 3 * torch.randn((64, size), generator=generator) - 40, torch.rand(64, generator=generator)
    token, logp = sample(logits, noise)
    p = logits.double().softmax(1)
    ends = p.cumsum(1)
    chosen = token[:, None]
    torch.testing.assert_close(logp.double(), p.log().gather(1, chosen)[:, 0], atol=1e-5, rtol=1e-5)
    assert bool((ends.gather(1, chosen)[:, 0] > noise.double() - 1e-6).all())
    assert bool(((ends - p).gather(1, chosen)[:, 0] <= noise.double() + 1e-6).all())


@pytest.mark.parametrize("size", [1, 8, 33, 601])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_without_noise_the_first_of_the_likeliest_is_taken(size: int, sign: float) -> None:
    for place in range(size):
        logits = torch.full((2, size), sign * 5.0)
        logits[:, place:] += 1.0
        assert sample(logits, None)[0].tolist() == [place, place]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("noise", [None, torch.tensor([0.3, 0.7])], ids=["greedy", "sample"])
def test_a_logit_that_is_not_finite_makes_no_score(number: float, noise: Tensor | None) -> None:
    for place in (0, 8, 40, 70, slice(None)):  # in several vectors, in one, after the last, everywhere
        logits = torch.zeros((2, 71))
        logits[0, place] = number
        token, logp = sample(logits, noise)
        assert torch.isnan(logp[0]) and torch.isfinite(logp[1])
        assert bool((token >= 0).all() and (token < 71).all())


def test_results_in_bfloat16_are_rounded_as_torch_rounds() -> None:
    numbers = torch.tensor([1.0, -1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 3.4e38, 1e-40, -0.0, 0.0])
    weight = torch.cat([numbers, torch.tensor([float("inf"), float("-inf"), float("nan")])])
    ones = torch.ones((2, len(weight)))  # whose root mean square is 1
    y = norm(ones, None, weight, 0.0, torch.bfloat16)[1]
    torch.testing.assert_close(y, weight.bfloat16().expand_as(y), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(y[:, :-1].view(torch.int16), weight.bfloat16()[:-1].view(torch.int16).expand(2, -1))


def random_bfloat16(*shape: int) -> tuple[Tensor, Tensor]:
    """Random numbers in bfloat16, and the same in float32."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()
    return x, x.float()


@pytest.mark.parametrize("width", [8, 37, 576])
def test_layers_compute_in_float32_between_bfloat16(width: int) -> None:
    """The same numbers as with float32 throughout, rounded at the end: widening is exact."""
    (_, x32), (branch, branch32), (_, weight) = (
        random_bfloat16(5, width),
        random_bfloat16(5, width + 1),
        random_bfloat16(width),
    )
    branch, branch32 = branch[:, :width].contiguous(), branch32[:, :width].contiguous()
    for half, full in ((None, None), (branch, branch32)):
        total, y, scale = norm(x32.clone(), half, weight, 1e-5, torch.bfloat16)
        expected = norm(x32.clone(), full, weight, 1e-5, torch.float32)
        assert torch.equal(total, expected[0]) and torch.equal(scale, expected[2])
        assert torch.equal(y, expected[1].bfloat16())
    columns = []
    for pull in (branch, branch32):
        of_x, of_weight = x32.clone(), torch.zeros(width)
        rows = at(x32), at(weight), at(scale), at(pull)
        kernels().norm_backward(*rows, 5, width, at(of_x), at(of_weight), is_bfloat16(pull))
        columns.append((of_x, of_weight))
    assert all(map(torch.equal, *columns))
    gates, gates32 = random_bfloat16(5, 2 * width)
    assert torch.equal(gate(gates), gate(gates32).bfloat16())
    for inputs, pull in ((gates, branch), (gates32, branch32)):
        kernels().gate_backward(at(inputs), 5, width, at(pull), is_bfloat16(pull))
    assert torch.equal(gates, gates32.bfloat16()) and torch.equal(branch, branch32.bfloat16())


@pytest.mark.parametrize("size", [7, 601, 2048])
def test_vocabularies_compute_in_float32_between_bfloat16(size: int) -> None:
    logits, logits32 = random_bfloat16(6, size)
    token, noise = torch.arange(6), torch.rand(6, generator=torch.Generator().manual_seed(0))
    for u in (None, noise):
        assert all(map(torch.equal, sample(logits, u), sample(logits32, u)))
    columns = []
    for x in (logits, logits32):
        logp, entropy, square, total = torch.empty((4, 6)).unbind()
        kernels().scores_forward(
            at(x), at(token), 6, size, at(logp), at(entropy), at(square), at(total), is_bfloat16(x)
        )
        pull = at(noise), at(noise)
        kernels().scores_backward(at(x), at(token), 6, size, at(total), at(entropy), *pull, is_bfloat16(x))
        columns.append((logp, entropy, square, total, x.bfloat16()))
    assert all(map(torch.equal, *columns))
