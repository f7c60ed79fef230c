"""Language runs on a GPU: `make slow` where there is one."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from language_fixtures import Policies, Specs
from torch import Tensor

from staleharness.language.model import native_forward_backward
from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.model.kv_cache import CausalWithPadding, attend, mask_term
from staleharness.training.loop import simulation_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
WIDE = {"dtype": "bfloat16", "device": "cuda"}


@pytest.fixture(autouse=True)
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set torch up as a worker does."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("error")
    yield
    torch.set_deterministic_debug_mode(before)


def completions() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return prompts padded on the left, one of a single token, and completions padded on the right; pairs share a
    prompt."""
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(3, 20, (3, 7), generator=generator).repeat_interleave(2, 0)
    token = torch.randint(3, 20, (6, 9), generator=generator)
    prompt_mask, mask = torch.ones(6, 7, dtype=torch.int64), torch.ones(6, 9)
    prompt_mask[2:4, :4] = prompt_mask[4:, :6] = 0
    mask[1, 4:] = mask[4, 1:] = 0
    return prompt, prompt_mask, token, mask


def scores_and_gradient(policy: CausalLM) -> tuple[Tensor, Tensor]:
    scores = policy.score(*(x.to(policy.device) for x in completions()))
    gradient = torch.autograd.grad(scores.logp.sum(), list(policy.parameters.values()))
    return scores.logp.detach().cpu(), torch.cat([g.flatten() for g in gradient]).cpu()


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_scores_and_gradients_agree_with_the_cpu(
    policy: Policies, monkeypatch: pytest.MonkeyPatch, dtype: str, checkpointing: bool
) -> None:
    """In float32; bfloat16 may be as far from that as it is on the CPU, and half as far again."""
    monkeypatch.setattr(native_forward_backward, "CHUNK", 100)
    exact = scores_and_gradient(policy())
    on_cpu = scores_and_gradient(policy(dtype=dtype))
    on_gpu = scores_and_gradient(policy(device="cuda", dtype=dtype, gradient_checkpointing=checkpointing))
    for wanted, near, found in zip(exact, on_cpu, on_gpu, strict=True):
        error, allowed = (float((x - wanted).norm() / wanted.norm()) for x in (found, near))
        assert error < max(1e-4, 1.5 * allowed)


@pytest.mark.parametrize("heads, groups, width", [(14, 2, 64), (4, 4, 32), (8, 2, 128)])
@pytest.mark.parametrize("new, length", [(512, 1024), (300, 300), (1, 77), (64, 448)])
def test_flash_attention_agrees_with_a_dense_mask(heads: int, groups: int, width: int, new: int, length: int) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = (3, heads, new, width), (3, groups, length, width), (3, groups, length, width)
    exact = [torch.randn(s, generator=generator).cuda().requires_grad_() for s in shapes]
    rounded = [x.detach().bfloat16().requires_grad_() for x in exact]
    attention = torch.ones(3, length, dtype=torch.int64, device="cuda")
    attention[1, : length // 3] = attention[2, : length - 1] = 0
    real = attention[:, None, length - new :, None].float()
    group = heads // groups
    wanted = attend(*exact, mask_term(attention, new, torch.float32, group), width**-0.5) * real
    found = attend(*rounded, CausalWithPadding.of(attention, torch.bfloat16), width**-0.5).float() * real
    assert float((found - wanted).norm() / wanted.norm()) < 1e-2
    pull = torch.randn(wanted.shape, generator=generator).cuda()
    for a, b in zip(
        torch.autograd.grad((found * pull).sum(), rounded),
        torch.autograd.grad((wanted * pull).sum(), exact),
        strict=True,
    ):
        assert a.isfinite().all()
        assert float((a.float() - b).norm() / b.norm()) < 2e-2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_of_padding_have_finite_gradients(dtype: torch.dtype) -> None:
    """With a mask of -1e30 those of bfloat16 were NaN."""
    query, keys, values = (
        torch.randn(2, h, 48, 64, generator=torch.Generator().manual_seed(h)).to("cuda", dtype).requires_grad_()
        for h in (4, 2, 3)
    )
    values = values[:, :2]
    attention = torch.ones(2, 48, dtype=torch.int64, device="cuda")
    attention[0, :30] = 0
    output = attend(query, keys, values, mask_term(attention, 48, dtype, 2), 0.125)
    assert all(g.isfinite().all() for g in torch.autograd.grad(output.sum(), (query, keys)))


def digest(simulation: Any) -> str:
    parts = (p.detach().cpu().numpy().tobytes() for p in simulation.policy.parameters.values())
    return hashlib.sha256(b"".join(parts)).hexdigest()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"dtype": "bfloat16"},
        {"micro_batch": 5},
        {"gradient_checkpointing": True, "dtype": "bfloat16"},
        {"versions": "lora"},
        {"lag": "areal"},
        {"lag": "inflight:4"},
        {"mismatch": "int8"},
        {"algorithm": "vcpo"},
        {"algorithm": "decoupled_ppo", "minibatches": 2},
    ],
    ids=lambda settings: ",".join(f"{name}={value}" for name, value in settings.items()) or "plain",
)
def test_a_resumed_run_has_the_same_bits(spec: Specs, grades_by_length: None, settings: dict[str, Any]) -> None:
    run_spec = spec(**{"device": "cuda", "capacity": 6, "steps": 8, **settings})
    one = simulation_of(run_spec)
    one.advance()
    content = io.BytesIO()
    torch.save(one.state_dict(), content)
    one.advance()
    content.seek(0)
    resumed = simulation_of(run_spec)
    resumed.load_state_dict(torch.load(content, map_location="cpu", weights_only=True))
    record = resumed.advance()
    assert digest(one) == digest(resumed)
    assert record.metrics["policy_loss"] == record.metrics["policy_loss"]  # not NaN


def test_versions_act_from_the_device_and_not_from_the_host(spec: Specs, grades_by_length: None) -> None:
    simulation: Any = simulation_of(spec(device="cuda", capacity=3, steps=6, dtype="bfloat16"))
    loads: list[int] = []
    resident = simulation.policy.resident
    assert resident is not None and resident.capacity == 3
    load = resident.load
    resident.load = lambda version: (loads.append(version.phase), load(version))[1]
    for _ in range(5):
        simulation.advance()
    # each version once, while it is the learner's, and the untrained policy for its evaluation
    assert loads == [0, *range(5)]
