"""Distances between sampler and trainer at one version, by hand and on tables of known distributions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from staleharness.batch import Completions, Decisions
from staleharness.objectives import masked_mean
from staleharness.tokens.token_metrics import age_metrics, mismatch_metrics, tail_masks

ROWS, LENGTH, WORDS = 300, 10, 20


def completions(token: Tensor, mask: Tensor, sampler: Tensor | None, logits: Tensor) -> Completions:
    """Completions whose version has these logits [B, T, V]."""
    all_logp = logits.log_softmax(-1)
    version = all_logp.gather(2, token[..., None])[..., 0] * mask
    zeros = torch.zeros_like(token)
    return Completions(
        prompt=zeros[:, :1],
        prompt_mask=zeros[:, :1],
        token=token,
        mask=mask,
        behaviour_logp=version,
        version=zeros,
        gradient_step=zeros,
        group=zeros[:, 0],
        outcome=mask[:, 0],
        truncated=zeros[:, 0].bool(),
        unparsed=zeros[:, 0].bool(),
        sampler_logp=sampler,
        version_logp=version,
        version_entropy=-(all_logp.exp() * all_logp).sum(-1) * mask,
    )


def distances(made: Completions) -> dict[str, float]:
    assert made.version_logp is not None and made.version_entropy is not None
    return mismatch_metrics(made.sampler_logp, made.version_logp, made.version_entropy, made.mask)


def drawn_by(p: Tensor, seed: int) -> Tensor:
    return torch.multinomial(p.flatten(0, 1), 1, generator=torch.Generator().manual_seed(seed)).view(p.shape[:2])


def logits_of(seed: int) -> Tensor:
    return 2.0 * torch.randn(ROWS, LENGTH, WORDS, generator=torch.Generator().manual_seed(seed))


def test_distances_of_sampler_and_trainer_by_hand() -> None:
    logits = logits_of(0)
    mask = (torch.arange(LENGTH) < torch.randint(1, LENGTH + 1, (ROWS, 1), generator=torch.Generator())).float()
    other = (logits + 0.3 * logits_of(1)).log_softmax(-1)
    token = drawn_by(other.exp(), 2)
    sampler = other.gather(2, token[..., None])[..., 0] * mask
    made = completions(token, mask, sampler, logits)
    found, valid = distances(made), mask.bool().numpy()
    assert made.version_logp is not None
    log_w = (made.version_logp - sampler).double().numpy()
    w, rows = np.exp(log_w[valid]), np.exp((log_w * valid).sum(1))
    wanted = {
        "kl_k1": -log_w[valid].mean(),
        "kl_k3": (w - 1 - log_w[valid]).mean(),
        "tv": abs(w - 1).mean() / 2,
        "ess": w.sum() ** 2 / w.size / (w**2).sum(),
        "ess_sequence": rows.sum() ** 2 / rows.size / (rows**2).sum(),
        "abs_mean": abs(log_w[valid]).mean(),
        "max": w.max(),
        "min": w.min(),
    }
    for name, value in wanted.items():
        assert found[f"mismatch/{name}"] == pytest.approx(value, rel=1e-4), name
    p = logits.double().softmax(-1).numpy()
    terms = (-(p * np.log(p)).sum(-1) + np.log(np.take_along_axis(p, token.numpy()[..., None], 2)[..., 0]))[valid]
    gap = terms.mean() / terms.std(ddof=1) * terms.size**0.5
    assert found["mismatch/surprisal_gap"] == pytest.approx(gap, rel=1e-4)


@pytest.mark.parametrize(("temperature", "sign"), [(1.0, 0), (0.8, 1), (1.25, -1)])
def test_the_surprisal_gap_tells_sharper_from_flatter_samplers(temperature: float, sign: int) -> None:
    """The sampler reports log-probabilities before its temperature, as vLLM does by default: no ratio sees it."""
    logits, mask = logits_of(3), torch.ones(ROWS, LENGTH)
    token = drawn_by((logits / temperature).softmax(-1), 4)
    raw = logits.log_softmax(-1).gather(2, token[..., None])[..., 0]
    found = distances(completions(token, mask, raw, logits))
    ratios = {name: found[f"mismatch/{name}"] for name in ("kl_k1", "kl_k3", "tv", "max", "min")}
    assert ratios == {"kl_k1": 0.0, "kl_k3": 0.0, "tv": 0.0, "max": 1.0, "min": 1.0}
    gap = found["mismatch/surprisal_gap"]
    assert abs(gap) < 2.5 if sign == 0 else sign * gap > 4


def test_equal_terms_have_no_surprisal_gap() -> None:
    for shape in ((1, 1), (2, 3)):
        found = mismatch_metrics(None, torch.full(shape, -1.0), torch.full(shape, 0.7), torch.ones(shape))
        assert found == {"mismatch/surprisal_gap": 0.0}


def test_of_an_engine_that_reports_nothing_only_the_gap_is_known() -> None:
    logits, mask = logits_of(5), torch.ones(ROWS, LENGTH)
    found = distances(completions(drawn_by(logits.softmax(-1), 6), mask, None, logits))
    assert list(found) == ["mismatch/surprisal_gap"]


def test_tails_by_factor_sign_and_age_by_hand() -> None:
    """Five tokens: π_version/μ, π/π_version, A and lag, and a sixth that is padding."""
    engine = torch.tensor([[3.0, 1.0, 0.4, 1.9, 1.9, 99.0]]).log()
    lag_part = torch.tensor([[1.0, 0.3, 2.2, 1.9, 0.6, 99.0]]).log()
    mask = torch.tensor([[1.0, 1.0, 1.0, 1.0, 1.0, 0.0]])
    behaviour = torch.full((1, 6), -2.0)
    decisions = Decisions(
        target_logp=behaviour + engine + lag_part,
        behaviour_logp=behaviour,
        proximal_logp=behaviour,
        advantage=torch.tensor([[1.0, -1.0, 1.0, -1.0, 1.0, 1.0]]),
        lag=torch.tensor([[0.0, 4.0, 0.0, 4.0, 2.0, 9.0]]),
        gradient_lag=mask,
        mask=mask,
        version_logp=behaviour + engine,
    )  # both: 3, 0.3, 0.88, 3.61, 1.14; mean lag 2
    found = {name: float(masked_mean(x.float(), mask)) for name, x in tail_masks(decisions).items()}
    wanted = {"engine": 0.4, "lag": 0.4, "positive": 0.2, "negative": 0.4, "newer": 0.2, "older": 0.4}
    assert found == pytest.approx({f"mismatch/tails_{name}": value for name, value in wanted.items()})
    assert tail_masks(replace(decisions, version_logp=None)) == {}
    newer, older = (torch.tensor(ratios).double() for ratios in ([3.0, 0.88, 1.14], [0.3, 3.61]))
    kl = {"newer": newer - 1.0 - newer.log(), "older": older - 1.0 - older.log()}
    assert age_metrics(decisions) == {f"mismatch/kl_k3_{age}": pytest.approx(float(x.mean())) for age, x in kl.items()}
