"""Two-factor weights: a weight for the sampler's engine times PPO's objective, as systems write them, in doubles.

Each form is written out from its system's code with π_old, the policy that the clip is around. The systems' π_old is
the trainer at the start of the step (`correct=all`, π_prox); with `correct=engine` the same formulas hold with the
version that acted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from method_examples import make
from torch import Tensor

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.base.plugins import source_file
from staleharness.batch import Decisions

ROWS, STEPS = 40, 9
TOLERANCE = 2e-13
Form = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # log π, log π_old, log μ, A, mask -> loss [B, T]


def ppo(logp: Tensor, old: Tensor, advantage: Tensor) -> Tensor:
    """verl/trainer/ppo/core_algos.py, `compute_policy_loss_vanilla` without its dual clip."""
    ratio = torch.exp(logp - old)
    return torch.maximum(-advantage * ratio, -advantage * torch.clamp(ratio, 1 - 0.2, 1 + 0.2))


def verl_token_tis(logp: Tensor, old: Tensor, mu: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """verl's decoupled_token_is: rollout_is=token, threshold 2."""
    return ppo(logp, old, advantage) * torch.clamp(torch.exp(old - mu), max=2.0)


def openrlhf_tis(logp: Tensor, old: Tensor, mu: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """OpenRLHF's `tis`: clamped on both sides, 0.5 and 5."""
    return ppo(logp, old, advantage) * torch.exp(old - mu).clamp(0.5, 5.0)


def verl_sequence_tis(logp: Tensor, old: Tensor, mu: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """verl's decoupled_seq_is: rollout_is=sequence, threshold 2."""
    product = torch.exp(((old - mu) * mask).sum(-1).clamp(-20.0, 20.0))
    return ppo(logp, old, advantage) * torch.clamp(product, max=2.0)[:, None]


def icepop(logp: Tensor, old: Tensor, mu: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """IcePop, arXiv:2510.18855, eq. 4: M(k; 0.5, 5) of k = π_old/μ, which is k inside and 0 outside."""
    k = torch.exp(old - mu)
    return ppo(logp, old, advantage) * torch.where((k >= 0.5) & (k <= 5.0), k, torch.zeros_like(k))


def trl_sequence_mask(logp: Tensor, old: Tensor, mu: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """TRL's default, `sequence_mask` with a cap of 3: the product of the ratios, 0 where that is above the cap."""
    product = torch.exp(((old - mu) * mask).sum(-1, keepdim=True))
    return ppo(logp, old, advantage) * product.masked_fill(product > 3.0, 0.0)


def nemo_sequence_mask_tis(logp: Tensor, old: Tensor, mu: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """NeMo-RL's and OpenRLHF's `seq-mask-tis`: a window on the geometric mean, then each token's own raw ratio."""
    mean = torch.exp(((old - mu) * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True))
    return ppo(logp, old, advantage) * torch.exp(old - mu) * ((mean >= 0.98) & (mean <= 1.03))


def verl_k3_rejection(logp: Tensor, old: Tensor, mu: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """verl's rollout_rs=seq_mean_k3 with rollout_is=token, uncapped: rows whose mean k3 is above the bound are out."""
    log_ratio = old - mu
    k3 = ((torch.exp(log_ratio) - log_ratio - 1.0) * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
    return ppo(logp, old, advantage) * torch.exp(log_ratio) * (k3 <= 0.05)


FORMS: dict[str, tuple[Algorithm, Form]] = {
    "verl token": (make("tis", clip=0.2), verl_token_tis),
    "OpenRLHF": (make("tis", clip=0.2, low=0.5, cap=5.0), openrlhf_tis),
    "verl sequence": (make("tis", clip=0.2, level="sequence"), verl_sequence_tis),
    "IcePop": (make("icepop", clip=0.2), icepop),
    "TRL": (make("mis_seq", clip=0.2, low=0.0, high=3.0), trl_sequence_mask),
    "NeMo-RL": (make("mis_geo", clip=0.2, low=0.98, high=1.03, level="token", cap=0.0), nemo_sequence_mask_tis),
    "verl k3": (make("k3_rejection", clip=0.2, delta=0.05), verl_k3_rejection),
}
of_each = pytest.mark.parametrize(("algorithm", "form"), FORMS.values(), ids=list(FORMS))


def example(seed: int, engine: float = 0.4, lag: float = 0.3) -> Decisions:
    """Decisions whose engine and lag differ by normal log-ratios of these deviations, from token to token and row to
    row."""
    g = torch.Generator().manual_seed(seed)

    def drift(size: float) -> Tensor:
        rows = torch.linspace(0.02, 1.0, ROWS, dtype=torch.float64)[:, None]
        return size * rows * torch.randn(ROWS, STEPS, generator=g, dtype=torch.float64)

    behaviour = -0.1 - 3.0 * torch.rand(ROWS, STEPS, generator=g, dtype=torch.float64)
    version = behaviour + drift(engine)
    proximal = version + drift(lag)
    mask = (torch.arange(STEPS) < torch.randint(2, STEPS + 1, (ROWS, 1), generator=g)).double()
    zeros = torch.zeros_like(behaviour)
    return Decisions(
        target_logp=(proximal + drift(0.3)).requires_grad_(),
        behaviour_logp=behaviour,
        proximal_logp=proximal,
        advantage=torch.randn(ROWS, 1, generator=g, dtype=torch.float64).expand(ROWS, STEPS),
        lag=zeros,
        gradient_lag=zeros,
        mask=mask,
        version_logp=version,
    )


def coefficients(d: Decisions, loss: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad((loss * d.mask).sum(), d.target_logp)
    return gradient


@of_each
@pytest.mark.parametrize("correct", ["all", "engine"])
def test_the_loss_is_the_systems_two_factor_form(algorithm: Algorithm, form: Form, correct: str) -> None:
    method = replace(algorithm, correct=correct)  # type: ignore[call-arg]
    assert method.proximal == ("recompute" if correct == "all" else "behaviour")
    for seed in range(5):
        d = example(seed)
        assert d.version_logp is not None
        old = d.proximal_logp if correct == "all" else d.version_logp
        mine, literal = method.policy_loss(d).loss, form(d.target_logp, old, d.behaviour_logp, d.advantage, d.mask)
        torch.testing.assert_close(coefficients(d, mine), coefficients(d, literal), rtol=0.0, atol=TOLERANCE)
        torch.testing.assert_close(mine * d.mask, literal * d.mask, rtol=0.0, atol=TOLERANCE)
        cut = form(d.target_logp, old, d.behaviour_logp, torch.ones_like(d.advantage), d.mask) != form(
            d.target_logp, old, old, torch.ones_like(d.advantage), d.mask
        )
        assert cut.any() and (mine != 0).any()


@of_each
def test_an_engine_weight_is_one_where_the_version_sampled(algorithm: Algorithm, form: Form) -> None:
    """Then it is PPO around the version, whatever the lag, and a missing `version_logp` says the same."""
    method = replace(algorithm, correct="engine")  # type: ignore[call-arg]
    d = example(7)
    plain = replace(d, version_logp=d.behaviour_logp)
    expected = ppo(d.target_logp, d.behaviour_logp, d.advantage)
    for same in (plain, replace(d, version_logp=None)):
        torch.testing.assert_close(method.policy_loss(same).loss, expected, rtol=0.0, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["tis", "icepop", "mis_seq"])
def test_without_a_clip_the_engine_alone_is_weighted(name: str) -> None:
    """u A ∇ log π with u = π_version/μ: lag is left as it is."""
    d = example(3, engine=0.05)
    assert d.version_logp is not None
    log_u = (d.version_logp - d.behaviour_logp) * d.mask
    u = log_u.sum(1, keepdim=True).exp() if name == "mis_seq" else log_u.exp()
    found = coefficients(d, make(name, correct="engine").policy_loss(d).loss)
    inside = (u > 0.5) & (u < 2.0)
    expected = -u * d.advantage * d.mask
    torch.testing.assert_close(found[inside.expand_as(found)], expected[inside.expand_as(found)], rtol=0, atol=1e-12)
    assert inside.float().mean() > 0.9


def test_by_hand() -> None:
    """One token of ratio 1.5 to its version, which is 3 times as likely as the sampler had it: weight cut to 2, and
    1.5 A clipped to 1.2 A."""
    one = torch.ones(1, 1, dtype=torch.float64)
    d = Decisions(
        target_logp=(0.3 * 1.5 * one).log().requires_grad_(),
        behaviour_logp=(0.1 * one).log(),
        proximal_logp=(0.1 * one).log(),
        advantage=one,
        lag=one,
        gradient_lag=one,
        mask=one,
        version_logp=(0.3 * one).log(),
    )
    answer = make("tis", correct="engine", clip=0.2).policy_loss(d)
    assert answer.loss.item() == pytest.approx(-2 * 1.2)
    assert float(answer.diagnostics["truncated"]) == float(answer.diagnostics["clipped"]) == 1.0
    half = replace(d, advantage=-one)
    assert make("tis", correct="engine", clip=0.2).policy_loss(half).loss.item() == pytest.approx(2 * 1.5)


def test_both_families_can_correct_the_engine_alone() -> None:
    """`seq_is` has no options: it is `tis[level=sequence,cap=0]`."""
    files = {"truncated_is.py", "masked_is.py"}
    members = {name for name in ALGORITHMS if Path(source_file(ALGORITHMS[name])).name in files}
    assert members == {"icepop", "k3_rejection", "mis_geo", "mis_seq", "seq_is", "tis"}
    assert {name for name in members if "correct" in ALGORITHMS[name].hyper_parameters()} == members - {"seq_is"}
    d = example(2)
    same = [m.policy_loss(d).loss for m in (make("seq_is"), make("tis", level="sequence", cap=0.0))]
    torch.testing.assert_close(*same, rtol=0.0, atol=TOLERANCE)


# --- what the clip around another engine does by itself


def step_without_signal(method: Algorithm, policy: Tensor, sampler: Tensor) -> Tensor:
    """Expected step on logits [tokens] of a learner that is the version, over tokens of the sampler and A = ±1."""
    logits = policy.log().requires_grad_()
    logp = logits.log_softmax(-1).repeat(2)[:, None]
    ones = torch.ones_like(logp)
    d = Decisions(
        target_logp=logp,
        behaviour_logp=sampler.log().repeat(2)[:, None],
        proximal_logp=logp.detach(),
        advantage=torch.cat([ones[: len(policy)], -ones[: len(policy)]]),
        lag=0 * ones,
        gradient_lag=0 * ones,
        mask=ones,
        version_logp=logp.detach(),
    )
    loss = (method.policy_loss(d).loss[:, 0] * sampler.repeat(2) / 2).sum()
    return -torch.autograd.grad(loss, logits)[0]


def test_a_clip_around_the_sampler_pulls_without_signal() -> None:
    """The expected step leads π towards μ although advantages ±a say nothing of any token.

    The gradient of min(wA, clip(w, 1 − ε, 1 + ε)A) in log π is wA, but 0 where A > 0 and w > 1 + ε, and where A < 0 and
    w < 1 − ε. Of both signs, each in half of the cases, the mean is −½aw above 1 + ε, +½aw below 1 − ε and
    ½a(w − w) = 0 between. A token comes with probability μ, and μw = π: c = −½aπ, +½aπ and 0, in logits c − πΣc.

    Here a = 1, μ = (.4, .3, .2, .1) and π = (.52, .3, .14, .04): w = (1.3, 1, .7, .4), c = (−.26, 0, .07, .02) and
    Σc = −.17. KL[μ ‖ π] changes by (π − μ) · (c − πΣc) = −.0278 per step size.
    """
    sampler = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    policy = torch.tensor([0.52, 0.3, 0.14, 0.04], dtype=torch.float64)
    step = step_without_signal(make("ppo_clip"), policy, sampler)
    expected = torch.tensor([-0.1716, 0.051, 0.0938, 0.0268], dtype=torch.float64)
    torch.testing.assert_close(step, expected, rtol=0.0, atol=1e-12)
    assert float((policy - sampler) @ step) == pytest.approx(-0.027828)
    for method in (
        make("ppo_clip", anchor="proximal"),  # blind to the sampler
        make("tis"),  # without a clip
        make("tis", clip=0.2),  # around the learner at the start of the round
        make("tis", clip=0.2, correct="engine"),  # around the version
    ):
        assert step_without_signal(method, policy, sampler).abs().max() < 1e-15, method


@pytest.mark.parametrize("moves", [False, True])
def test_a_copy_that_moves_with_the_learner_is_never_reached(moves: bool) -> None:
    """A sampler that stands still, as with lag, pulls π no further than the clip; one with the same error in every
    version goes ahead of π until a single token is left."""
    error = torch.tensor([0.0, 0.3, -0.4, 0.6], dtype=torch.float64)
    logits, most = torch.zeros_like(error), 0.0
    for _ in range(400):
        sampler = ((logits if moves else torch.zeros_like(error)) + error).softmax(-1)
        policy = logits.softmax(-1)
        step = step_without_signal(make("ppo_clip"), policy, sampler)
        logits, most = logits + 0.5 * step, float(policy.max())
    ratio = policy / sampler
    if moves:
        assert most > 0.95 and ratio.max() > 1.2
    else:
        assert step.abs().max() == 0 and ratio.min() >= 0.8 and ratio.max() <= 1.2 and most < float(sampler.max())
