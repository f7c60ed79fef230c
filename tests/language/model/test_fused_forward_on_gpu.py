"""What a GPU would be asked, seen without one: tensors on the device `meta` take the ways of every device but the CPU,
and the same ways are walked with numbers where the device is called something else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from torch.nn import functional as F

from staleharness.language.model import kv_caches as attending
from staleharness.language.model.fused_forward import FusedForward
from staleharness.language.model.kv_caches import PrefixCache, PrefixLayer

Spy = list[dict[str, Any]]


def grouped(device: str = "cpu", **changes: Any) -> Any:
    """Qwen2 with three heads of queries to each of keys."""
    config = transformers.Qwen2Config(
        vocab_size=30,
        hidden_size=24,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        initializer_range=0.3,
        **changes,
    )
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        return transformers.AutoModelForCausalLM.from_config(config).eval()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """Every call of attention; one with a mask and grouped heads, which no fused kernel takes, is refused."""
    seen: Spy = []
    attention = F.scaled_dot_product_attention

    def spy(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, **named: Any) -> Tensor:
        assert mask is None or not named.get("enable_gqa"), "torch falls back to the math kernel"
        seen.append({"query": query, "key": key, "mask": mask})
        return attention(query, key, value, mask, **named)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    return seen


def given(device: str = "cpu", new: int = 5, past: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    ids = torch.randint(3, 30, (4, new), generator=torch.Generator().manual_seed(1))
    attention = torch.ones(4, past + new, dtype=torch.int64)
    attention[1, :2] = attention[2, : past + new - 1] = 0
    positions = (attention.cumsum(1) - 1).clamp(min=0)[:, past:]
    return ids.to(device), attention.to(device), positions.to(device)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_attention_is_never_given_a_mask_and_grouped_heads(asked: Spy, checkpointing: bool) -> None:
    """In a pass with gradient, a prompt that is read, what continues it, and a single token."""
    forward = FusedForward(grouped("meta"), torch.bfloat16, checkpointing)
    forward(*given("meta"), None, 5).sum().backward()
    prompt = PrefixCache([PrefixLayer(), PrefixLayer()])
    with torch.no_grad():
        forward(*given("meta"), prompt, 1)
        several = prompt.select(torch.zeros(4, dtype=torch.int64, device="meta"))
        forward(*given("meta", 3, 5), several, 3)
        forward(*given("meta", 1, 5), several, 1)
    assert len(asked) == 2 * (5 if checkpointing else 4)
    assert {tuple(call["key"].shape[:2]) for call in asked} == {(4, 2)}  # none was copied for its queries' heads
    assert all(call["mask"].stride(-2) % attending.ALIGNMENT == 0 for call in asked if call["mask"].shape[-2] > 1)


def test_the_mask_is_made_once_for_all_layers(asked: Spy) -> None:
    FusedForward(grouped("meta"), torch.bfloat16)(*given("meta"), None, 5)
    assert asked[0]["mask"] is asked[1]["mask"]


@pytest.mark.parametrize(("new", "past"), [(5, 0), (3, 4), (1, 6)])
def test_grouped_queries_as_rows_of_one_head_are_the_same_attention(
    new: int, past: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = torch.Generator().manual_seed(0)
    length, dtype = new + past, torch.float32
    query = torch.randn(4, new, 6, 8, generator=draw).transpose(1, 2)
    keys, values = (torch.randn(4, 2, length, 8, generator=draw) for _ in range(2))
    _, attention, _ = given(new=new, past=past)
    wanted = attending.attend(query, keys, values, attending.mask_term(attention, new, dtype), 0.3)
    monkeypatch.setattr(attending, "NATIVE_GQA_DEVICES", ())  # the devices whose attention takes both
    mask = attending.mask_term(attention, new, dtype, 3)
    found = attending.attend(query, keys, values, mask, 0.3)
    assert found.shape == wanted.shape
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)
