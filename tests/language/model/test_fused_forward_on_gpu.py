"""The fused forward pass as on a GPU: on the device `meta`, and on a CPU that is treated as one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from tiny_model import tiny_config
from torch import Tensor
from torch.nn import functional as F

from staleharness.language.model import kv_cache as attending
from staleharness.language.model.fused_forward import FusedForward
from staleharness.language.model.kv_cache import PrefixCache, PrefixLayer

Spy = list[dict[str, Any]]


def grouped_model(device: str = "cpu") -> Any:
    """Qwen2 with three heads of queries to each of keys."""
    sizes = {"hidden_size": 24, "intermediate_size": 20, "num_attention_heads": 6, "num_key_value_heads": 2}
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        config = tiny_config(30, **sizes, initializer_range=0.3)
        return transformers.AutoModelForCausalLM.from_config(config).eval()


@pytest.fixture
def attention_calls(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """Every call of attention; one with a mask and grouped heads, which no fused kernel takes, is refused."""
    seen: Spy = []
    attention = F.scaled_dot_product_attention

    def spy(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, **named: Any) -> Tensor:
        assert mask is None or not named.get("enable_gqa"), "torch falls back to the math kernel"
        seen.append({"query": query, "key": key, "mask": mask})
        return attention(query, key, value, mask, **named)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    return seen


def inputs(device: str = "cpu", new: int = 5, past: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    ids = torch.randint(3, 30, (4, new), generator=torch.Generator().manual_seed(1))
    attention = torch.ones(4, past + new, dtype=torch.int64)
    attention[1, :2] = attention[2, : past + new - 1] = 0
    positions = (attention.cumsum(1) - 1).clamp(min=0)[:, past:]
    return ids.to(device), attention.to(device), positions.to(device)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_attention_is_never_given_a_mask_and_grouped_heads(attention_calls: Spy, checkpointing: bool) -> None:
    """In a pass with gradient, a prompt that is read, what continues it, and a single token."""
    forward = FusedForward(grouped_model("meta"), torch.bfloat16, checkpointing)
    forward(*inputs("meta"), None, 5).sum().backward()
    prompt = PrefixCache([PrefixLayer(), PrefixLayer()])
    with torch.no_grad():
        forward(*inputs("meta"), prompt, 1)
        several = prompt.select(torch.zeros(4, dtype=torch.int64, device="meta"))
        forward(*inputs("meta", 3, 5), several, 3)
        forward(*inputs("meta", 1, 5), several, 1)
    assert len(attention_calls) == 2 * (5 if checkpointing else 4)
    assert {tuple(call["key"].shape[:2]) for call in attention_calls} == {(4, 2)}
    assert all(
        call["mask"].stride(-2) % attending.ALIGNMENT == 0 for call in attention_calls if call["mask"].shape[-2] > 1
    )


def test_the_mask_is_made_once_for_all_layers(attention_calls: Spy) -> None:
    FusedForward(grouped_model("meta"), torch.bfloat16)(*inputs("meta"), None, 5)
    assert attention_calls[0]["mask"] is attention_calls[1]["mask"]


@pytest.mark.parametrize(("new", "past"), [(5, 0), (3, 4), (1, 6)])
def test_grouped_queries_as_rows_of_one_head_are_the_same_attention(
    new: int, past: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = torch.Generator().manual_seed(0)
    length, dtype = new + past, torch.float32
    query = torch.randn(4, new, 6, 8, generator=draw).transpose(1, 2)
    keys, values = (torch.randn(4, 2, length, 8, generator=draw) for _ in range(2))
    _, attention, _ = inputs(new=new, past=past)
    wanted = attending.attend(query, keys, values, attending.mask_term(attention, new, dtype), 0.3)
    monkeypatch.setattr(attending, "NATIVE_GQA_DEVICES", ())  # the devices whose attention takes both
    mask = attending.mask_term(attention, new, dtype, 3)
    found = attending.attend(query, keys, values, mask, 0.3)
    assert found.shape == wanted.shape
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)
