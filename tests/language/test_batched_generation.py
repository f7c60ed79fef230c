"""A token from one uniform number: the GPU's rule picks what the CPU's picks, with nothing that determinism forbids."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from staleharness.language.batched_generation import BLOCK, sample_blocks, sample_cumulative


def inputs(vocabulary: int, rows: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits, the first and the last token impossible, and noise that holds both ends of [0, 1)."""
    generator = torch.Generator().manual_seed(vocabulary)
    logits = 3.0 * torch.randn(rows, vocabulary, generator=generator)
    logits[:, 0] = logits[:, -1] = -torch.inf
    uniform = torch.rand(rows, generator=generator)
    uniform[0], uniform[1] = 0.0, 1.0 - 2.0**-24
    return logits, uniform


@pytest.mark.parametrize("vocabulary", [3, BLOCK - 1, BLOCK, BLOCK + 1, 5000])
@pytest.mark.parametrize("greedy", [False, True])
def test_blocks_pick_the_token_that_a_running_sum_picks(vocabulary: int, greedy: bool) -> None:
    logits, uniform = inputs(vocabulary)
    token, logp = sample_blocks(logits, None if greedy else uniform)
    assert torch.equal(token, sample_cumulative(logits, None if greedy else uniform))
    wanted = logits.double().log_softmax(-1).gather(1, token[:, None])[:, 0]
    torch.testing.assert_close(logp.double(), wanted, atol=1e-5, rtol=1e-5)


def test_a_token_of_probability_1e_7_has_its_place() -> None:
    probability = torch.full((1, 1000), 1e-7, dtype=torch.float64)
    probability[0, 0] = 1.0 - probability[0, 1:].sum()
    places = probability[0].cumsum(0)
    logits = probability.log().float().expand(3, -1)
    for token in (1, 400, 998):
        middle = (places[token] - 0.5e-7).repeat(3)
        found, logp = sample_blocks(logits, middle)
        assert (found - token).abs().max() <= 1  # the logits themselves are float32
        torch.testing.assert_close(logp, torch.full((3,), -16.118), atol=1e-2, rtol=0.0)


class Deterministic(TorchDispatchMode):
    """Refuses what torch refuses on a GPU where runs are deterministic, and float64 of the vocabulary's size."""

    def __init__(self, largest: int) -> None:
        super().__init__()
        self.largest = largest

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.name()
        if name.startswith(("aten::cumsum", "aten::multinomial")):
            raise RuntimeError(f"{name} has no deterministic implementation on a GPU")
        if isinstance(out, torch.Tensor) and out.dtype is torch.float64:
            assert out.numel() <= self.largest, f"{name} makes float64 {list(out.shape)}"
        return out


def test_block_sampling_uses_deterministic_operations_only() -> None:
    logits, uniform = inputs(50_000)
    with Deterministic(logits.numel() // 40):
        sample_blocks(logits, uniform)
        sample_blocks(logits, None)
    with Deterministic(10**9), pytest.raises(RuntimeError, match="no deterministic implementation"):
        sample_cumulative(logits, uniform)
