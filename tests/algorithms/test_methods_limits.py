"""Limits of methods at the ends of their settings: identities between methods."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from method_examples import make
from torch import Tensor

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions
from staleharness.objectives import masked_mean
from staleharness.testing import decisions, example_decisions, gradient_coefficients, variants
from staleharness.testing.example_batches import with_gradient
from staleharness.weights import batch_normalised, kept_share, level_log_ratio, vetoed

SEEDS = range(3)


def examples(seed: int, rows: int = 8, steps: int = 9) -> Decisions:
    return example_decisions(rows, steps, seed=seed, dtype=torch.float64)


def coefficients(name: str, d: Decisions, **options: Any) -> Tensor:
    return gradient_coefficients(make(name, **options), d)


def ratio_of(d: Decisions) -> Tensor:
    return (d.target_logp - d.behaviour_logp).detach().exp()


# --- everything open is importance sampling -----------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_unbounded_token_methods_are_token_importance_sampling(seed: int) -> None:
    d = examples(seed)
    expected = ratio_of(d) * d.advantage * d.mask
    for name, options in (
        ("tis", {"cap": math.inf}),
        ("tis", {"cap": 0.0}),
        ("tis", {"cap": 0.0, "clip": math.inf}),
        ("cispo", {"high": math.inf}),
        ("cispo", {"high": 0.0}),
        ("icepop", {"low": 0.0, "high": 0.0}),
        ("icepop", {"low": 0.0, "high": math.inf, "denominator": "kept", "clip": math.inf}),
        ("mis_geo", {"low": 0.0, "high": 0.0, "level": "token", "cap": 0.0}),
        ("k3_rejection", {"delta": math.inf}),
        ("m2po", {"tau": math.inf}),
        ("m2po", {"tau": math.inf, "form": "release"}),
        ("deepseek_mask", {"delta": math.inf, "clip": math.inf}),
        ("dppo", {"delta": math.inf, "cap": 0.0}),
        ("dppo", {"delta": math.inf, "cap": 0.0, "divergence": "kl"}),
        ("geppo", {"clip": math.inf}),
        ("vaco", {"delta": math.inf}),
        ("vaco", {"trust_region": "none"}),
        ("decoupled_ppo", {"clip": math.inf, "weight_cap": 0.0}),
        ("ppo_clip", {"anchor": "decoupled", "clip": math.inf}),
        ("ppo_clip", {"clip": math.inf}),
        ("ppo_kl", {"clip": 0.0, "kl_coef": 0.0}),
        ("a3po", {"clip": math.inf}),
        ("a3po", {"clip": math.inf, "interpolation": "linear"}),
        ("impala", {"pg_rho_bar": math.inf}),
        ("spo", {"epsilon": math.inf}),
    ):
        torch.testing.assert_close(coefficients(name, d, **options), expected, msg=f"{name} {options}")


@pytest.mark.parametrize("seed", SEEDS)
def test_unbounded_sequence_methods_are_sequence_is(seed: int) -> None:
    d = examples(seed)
    log_w = (ratio_of(d).log() * d.mask).sum(1, keepdim=True)
    expected = log_w.exp() * d.advantage * d.mask
    torch.testing.assert_close(coefficients("seq_is", d), expected)
    for name, options in (
        ("tis", {"level": "sequence", "cap": 0.0}),
        ("tis", {"level": "sequence", "cap": 0.0, "clip": math.inf}),
        ("mis_seq", {"low": 0.0, "high": 0.0}),
        ("mis_geo", {"low": 0.0, "high": 0.0, "level": "sequence", "cap": 0.0}),
    ):
        if "clip" not in options:
            torch.testing.assert_close(coefficients(name, d, **options), expected, msg=f"{name} {options}")
    three = coefficients("tis", d, level="sequence", cap=0.0, clip=math.inf)  # Π u_t times the token's own r
    u = ((d.proximal_logp - d.behaviour_logp) * d.mask).sum(1, keepdim=True).exp()
    r = (d.target_logp - d.proximal_logp).detach().exp()
    torch.testing.assert_close(three, u * r * d.advantage * d.mask)


@pytest.mark.parametrize("algorithm", [a for name in ALGORITHMS for a in variants(ALGORITHMS[name])], ids=str)
def test_on_rows_of_one_decision_all_levels_are_one(algorithm: Algorithm) -> None:
    d = examples(1, 30, 1)
    hints = type(algorithm).hyper_parameter_types()
    if "level" in hints and getattr(algorithm, "level") != "none":  # noqa: B009 (not every algorithm has one)
        twin = replace(algorithm, level="token")  # type: ignore[call-arg]
        torch.testing.assert_close(gradient_coefficients(algorithm, d), gradient_coefficients(twin, d))


@pytest.mark.parametrize("seed", SEEDS)
def test_on_control_gspo_is_ppo_with_its_own_bounds(seed: int) -> None:
    d = examples(seed, 40, 1)
    torch.testing.assert_close(
        coefficients("gspo", d, clip=0.2, clip_high=0.3), coefficients("ppo_clip", d, clip=0.2, clip_high=0.3)
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_with_both_bounds_at_one_cispo_is_uncorrected_reinforce(seed: int) -> None:
    d = examples(seed)
    torch.testing.assert_close(coefficients("cispo", d, low=1.0, high=1.0), d.advantage * d.mask)


# --- one method is another ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_methods_that_are_settings_of_others(seed: int) -> None:
    d = examples(seed)
    for (name, options), (twin, twins) in (
        (("deepseek_mask", {"delta": math.inf}), ("ppo_clip", {})),
        (("deepseek_mask", {"delta": math.inf, "anchor": "proximal"}), ("ppo_clip", {"anchor": "proximal"})),
        (("cispo", {"high": 3.0}), ("tis", {"cap": 3.0})),
        (("tis", {"cap": 1.0}), ("impala", {})),
        (("p3o", {"cap": "one", "kl_coef": 0.0}), ("impala", {})),
        (("tis", {"clip": 0.2, "cap": 0.0}), ("ppo_clip", {"anchor": "decoupled"})),
        (("icepop", {"low": 0.0, "high": 0.0, "clip": 0.2}), ("ppo_clip", {"anchor": "decoupled"})),
        (("topr", {"level": "token", "cap": 0.0}), ("topr", {"level": "token", "cap": math.inf})),
        (("m2po", {"form": "release", "tau": 0.0, "floor_low": 0.3}), ("ppo_clip", {"clip": 0.3, "clip_high": 0.5})),
        (("dppo", {"cap": 0.0}), ("ppo_clip", {})),  # the ratio's trust region, where there is a closed form
        (("appo", {"weight_cap": math.inf}), ("ppo_clip", {"anchor": "proximal", "clip": 0.4})),
        (("appo", {"proximal": "ewma"}), ("appo", {})),  # the learner brings the shadow
        (("ppo_clip", {"anchor": "decoupled"}), ("decoupled_ppo", {"weight_cap": 0.0})),
    ):
        torch.testing.assert_close(
            coefficients(name, d, **options), coefficients(twin, d, **twins), msg=f"{name} {options}"
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_geppo_is_ppo_on_fresh_data_with_a_smaller_clip_later(seed: int) -> None:
    d = examples(seed)
    fresh = replace(d, proximal_logp=d.behaviour_logp, lag=torch.zeros_like(d.lag))
    torch.testing.assert_close(coefficients("geppo", fresh), coefficients("ppo_clip", d))
    reused = replace(fresh, lag=torch.full_like(d.lag, 3.0))
    torch.testing.assert_close(coefficients("geppo", reused), coefficients("ppo_clip", d, clip=0.05))


@pytest.mark.parametrize(
    ("name", "narrow", "wide"),
    [
        ("ppo_clip", {"clip": 0.1}, {"clip": 0.2}),
        ("icepop", {"low": 0.8, "high": 1.3}, {"low": 0.5, "high": 2.0}),
        ("mis_seq", {"low": 0.8, "high": 1.3}, {"low": 0.5, "high": 2.0}),
        ("mis_geo", {"low": 0.9, "high": 1.1}, {"low": 0.7, "high": 1.3}),
        ("k3_rejection", {"delta": 0.1}, {"delta": 0.4}),
        ("deepseek_mask", {"delta": 0.01, "clip": 5.0}, {"delta": 0.1, "clip": 5.0}),
        ("m2po", {"tau": 0.04}, {"tau": 0.2}),
        ("dppo", {"delta": 0.1}, {"delta": 0.3}),
    ],
)
def test_a_wider_bound_keeps_all_that_a_narrow_one_kept(
    name: str, narrow: dict[str, float], wide: dict[str, float]
) -> None:
    kept_less = kept_more = 0
    for seed in range(6):
        d = examples(seed)
        less, more = coefficients(name, d, **narrow), coefficients(name, d, **wide)
        assert torch.equal(less[less != 0], more[less != 0])
        kept_less, kept_more = kept_less + int((less != 0).sum()), kept_more + int((more != 0).sum())
    assert 0 < kept_less < kept_more


# --- truncation and masks, by hand --------------------------------------------------------------------------


def row(name: str, ratio: list[list[float]], advantage: Any = 1.0, **options: Any) -> list[list[float]]:
    given = {key: options.pop(key) for key in ("mask", "proximal_ratio", "target_logp") if key in options}
    said: list[list[float]] = coefficients(name, decisions(ratio, advantage, **given), **options).tolist()
    return said


def test_levels_of_a_weight_by_hand() -> None:
    """Ratios 2, ½, 4 of a row: product 4, geometric mean 4^⅓; the masked fourth is not of the row."""
    d = decisions([[2.0, 0.5, 4.0, 100.0]], 1.0, mask=[[1, 1, 1, 0]])
    log_w = (d.target_logp - d.behaviour_logp).detach()
    for level, expected in (("sequence", 4.0), ("geometric", 4.0 ** (1 / 3))):
        weight = level_log_ratio(log_w, d.mask, level).exp()  # type: ignore[arg-type]
        assert weight[0, :3].tolist() == pytest.approx([expected] * 3)
    assert level_log_ratio(log_w, d.mask, "token") is log_w
    empty = level_log_ratio(log_w, 0 * d.mask, "geometric")
    assert empty.tolist() == [[0.0] * 4]


def test_one_impossible_token_vetoes_its_completion() -> None:
    ratio = [[1.0, 0.99e-4, 1.2], [1.0, 1.01e-4, 1.2]]
    for name in ("tis", "icepop"):
        first, second = row(name, ratio, veto=1e-4)
        assert first == [0.0, 0.0, 0.0] and second[0] == pytest.approx(1.0)
    said = make("tis", veto=1e-4).policy_loss(decisions(ratio, 1.0)).diagnostics
    assert said["vetoed"].tolist() == [[1.0] * 3, [0.0] * 3] == said["clipped"].tolist()
    padded = decisions([[1.0, 1e-9]], 1.0, mask=[[1, 0]])
    log_w = (padded.target_logp - padded.behaviour_logp).detach()
    assert not vetoed(log_w, padded.mask, 1e-4).any()


def test_masked_decisions_count_in_the_mean_or_do_not() -> None:
    """Two of four real decisions kept: what is kept pulls twice as hard when only it counts."""
    ratio, mask = [[9.0, 1.0, 1.0], [9.0, 1.0, 1.0]], [[1, 1, 0], [1, 1, 0]]
    assert row("icepop", ratio, mask=mask) == [[0.0, 1.0, 0.0]] * 2
    assert row("icepop", ratio, mask=mask, denominator="kept") == [[0.0, 2.0, 0.0]] * 2
    assert row("icepop", [[9.0, 9.0]], denominator="kept") == [[0.0, 0.0]]
    kept = torch.tensor([[1.0, 0.0, 1.0]])
    assert float(kept_share(kept, torch.tensor([[1.0, 1.0, 0.0]]), "kept")) == 0.5


@pytest.mark.parametrize("seed", SEEDS)
def test_the_mean_loss_is_over_the_decisions_that_stay(seed: int) -> None:
    d = examples(seed)
    whole, kept = (make("icepop", denominator=x).policy_loss(d) for x in ("all", "kept"))
    stays = d.mask * (1.0 - whole.diagnostics["masked"])
    torch.testing.assert_close(masked_mean(kept.loss, d.mask), masked_mean(whole.loss, stays))


@pytest.mark.parametrize("seed", SEEDS)
def test_normalised_weights_have_mean_one_in_their_unit(seed: int) -> None:
    d = examples(seed)
    log_w = (d.target_logp - d.behaviour_logp).detach()
    token = batch_normalised(log_w.exp(), d.mask, "token")
    assert float(masked_mean(token, d.mask)) == pytest.approx(1.0)
    for level in ("sequence", "geometric"):
        weight = batch_normalised(level_log_ratio(log_w, d.mask, level).exp(), d.mask, level)  # type: ignore[arg-type]
        assert float(weight[:, 0].mean()) == pytest.approx(1.0)
    empty = torch.cat([d.mask, torch.zeros(1, 9, dtype=torch.float64)])  # a row of padding does not count
    more = batch_normalised(torch.cat([log_w.exp(), torch.full((1, 9), 7.0)]), empty, "sequence")
    torch.testing.assert_close(more[:8], batch_normalised(log_w.exp(), d.mask, "sequence"))


def test_m2po_drops_the_largest_until_the_rest_is_within_budget() -> None:
    """Outward log-ratios 0.1, 0.2, 0.3: squares 0.01, 0.04, 0.09, means 0.01, 0.025, 0.0467. Inward 5 is free."""
    log = [0.1, 0.2, 0.3, -5.0]
    ratio = [[math.exp(x) for x in log]]
    for tau, kept in ((0.047, 3), (0.046, 2), (0.024, 1), (0.009, 0)):
        expected = [x if i < kept or i == 3 else 0.0 for i, x in enumerate(ratio[0])]
        assert row("m2po", ratio, tau=tau) == [pytest.approx(expected)]


def test_m2po_keeps_what_uses_up_its_budget_exactly() -> None:
    """log r = ½ in binary fractions: M₂ = ¼ is tau, and tau may be reached."""
    d = decisions([[1.0, 1.0]], 1.0, target_logp=[[-0.5, -0.5]])
    d = with_gradient(replace(d, behaviour_logp=torch.full_like(d.behaviour_logp, -1.0)))
    assert coefficients("m2po", d, tau=0.25).tolist() == [pytest.approx([math.exp(0.5)] * 2)]
    assert coefficients("m2po", d, tau=0.2499).tolist() == [[0.0, 0.0]]


def test_m2pos_release_caps_at_a_value_of_the_data() -> None:
    """Capped at 0.2: (0.01 + 0.04 + 0.04)/3 = 0.03 < 0.04; at 0.3 it is 0.0467. So the clip is at e^±0.2."""
    ratio = [[math.exp(x) for x in (0.1, 0.2, 0.3, -5.0)]]
    free = {"form": "release", "floor_low": 0.0, "floor_high": 0.0}
    assert row("m2po", ratio, **free) == [pytest.approx([*ratio[0][:2], 0.0, ratio[0][3]])]
    assert row("m2po", ratio, **free, tau=0.047) == [pytest.approx(ratio[0])]
    assert row("m2po", ratio, form="release") == [pytest.approx(ratio[0])]  # never tighter than 1.5


def test_equal_values_are_dropped_together_in_m2po() -> None:
    assert row("m2po", [[1.5, 1.5, 1.0]], [[1.0, 1.0, 1.0]], tau=0.1) == [[0.0, 0.0, 1.0]]


def test_the_gradient_of_gspo_is_that_of_its_sequence_ratio() -> None:
    """Averaged over a row's tokens, token form and d/dθ of min(sA, clip(s)A) agree."""
    d = examples(0)
    advantage = d.advantage[:, :1].expand(d.mask.shape)
    d = replace(d, advantage=advantage)
    length = d.mask.sum(1)
    s = (((d.target_logp - d.behaviour_logp) * d.mask).sum(1) / length).exp()
    objective = (s * advantage[:, 0]).minimum(s.clamp(0.9, 1.1) * advantage[:, 0])
    (expected,) = torch.autograd.grad(objective.sum(), d.target_logp)
    torch.testing.assert_close(coefficients("gspo", d, clip=0.1, clip_high=0.0) / length[:, None], expected)


def test_dppo_looks_at_probabilities_where_ppo_looks_at_ratios() -> None:
    """π = 0.5 from μ = 0.25 moved 0.25 and goes; π = 0.02 from 0.01 has the same ratio 2 and stays."""
    d = decisions([[2.0, 2.0]], 1.0, target_logp=[[math.log(0.5), math.log(0.02)]], closed_form=False)
    assert coefficients("dppo", d).tolist() == [pytest.approx([0.0, 2.0])]
    assert coefficients("ppo_clip", d).tolist() == [[0.0, 0.0]]
    back = replace(d, advantage=-d.advantage)
    assert coefficients("dppo", with_gradient(back, closed_form=False)).tolist() == [pytest.approx([-2.0, -2.0])]


@pytest.mark.parametrize("divergence", ["tv", "kl"])
def test_dppo_tells_unlikely_tokens_apart(divergence: str) -> None:
    """π = 1e-4 from μ = 5e-4: |π − μ| = 4e-4, and KL = μ log 5 − (μ − π) = 4.05e-4 to first order."""
    d = decisions([[0.2]], -1.0, target_logp=[[math.log(1e-4)]], closed_form=False)
    assert coefficients("dppo", d, divergence=divergence, delta=3.9e-4).tolist() == [[0.0]]
    assert coefficients("dppo", d, divergence=divergence, delta=4.1e-4).tolist() == [pytest.approx([-0.2])]


# --- the three policies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tis", "icepop", "mis_seq", "mis_geo", "k3_rejection"])
def test_with_a_clip_masks_are_of_the_proximal_policy(name: str) -> None:
    d, algorithm = examples(0), make(name, clip=0.2)
    assert algorithm.proximal == "recompute" and make(name).proximal == "behaviour"
    at_start = replace(d, proximal_logp=d.behaviour_logp)
    torch.testing.assert_close(gradient_coefficients(algorithm, at_start), coefficients("ppo_clip", d))
    assert algorithm.inactive(1) is not None and algorithm.inactive(4) is None and make(name).inactive(1) is None


@pytest.mark.parametrize("name", ["cispo", "deepseek_mask", "m2po", "gspo"])
def test_a_trust_region_around_the_learner_is_idle_at_first(name: str) -> None:
    """π = π_prox: all pull as if nothing were stale, and the method says so."""
    d = examples(0)
    first = replace(d, proximal_logp=d.target_logp.detach())
    algorithm = make(name, anchor="proximal")
    said = gradient_coefficients(algorithm, first)
    kept = said != 0
    assert torch.equal(said[kept], (d.advantage * d.mask)[kept])
    if name != "deepseek_mask":  # its mask looks at the recorded policy and acts
        assert torch.equal(said, d.advantage * d.mask)
    assert algorithm.inactive(1) is not None and make(name).inactive(1) is None


def test_who_has_an_idle_mechanism_with_one_step_a_phase() -> None:
    said = {name for name in ALGORITHMS if make(name).inactive(1)}
    assert said == {"decoupled_ppo", "geppo", "minirl", "verl"}
    assert make("appo").inactive(1) is None  # its anchor is not only the proximal policy


def test_truncation_keeps_a_gradient_and_a_mask_does_not() -> None:
    assert row("tis", [[3.0, 0.1, 1.5]]) == [pytest.approx([2.0, 0.1, 1.5])]
    assert row("icepop", [[6.0, 0.1, 1.5]]) == [pytest.approx([0.0, 0.0, 1.5])]
    assert row("cispo", [[6.0, 0.1, 1.5]], low=0.8) == [pytest.approx([5.0, 0.8, 1.5])]


def test_a_whole_completion_goes_at_once() -> None:
    """Products 3 and 1.2: the first is cut to 2, or left out; its tokens alone would all have stayed."""
    ratio = [[1.5, 2.0], [1.5, 0.8]]
    assert row("tis", ratio, level="sequence") == [pytest.approx([2.0, 2.0]), pytest.approx([1.2, 1.2])]
    assert row("mis_seq", ratio) == [[0.0, 0.0], pytest.approx([1.2, 1.2])]
    assert row("icepop", ratio) == [pytest.approx([1.5, 2.0]), pytest.approx([1.5, 0.8])]
    assert row("mis_geo", ratio, high=1.1) == [[0.0, 0.0], [1.0, 1.0]]


def test_ratios_cancel_in_a_mean_of_logs_but_not_in_k3() -> None:
    """2 and ½ have geometric mean 1; mean k3 = (2 − 1 − log 2 + ½ − 1 + log 2)/2 = ¼."""
    assert row("mis_geo", [[2.0, 0.5]]) == [pytest.approx([1.0, 1.0])]
    assert row("k3_rejection", [[2.0, 0.5]], delta=0.24) == [[0.0, 0.0]]
    assert row("k3_rejection", [[2.0, 0.5]], delta=0.26) == [pytest.approx([2.0, 0.5])]


def test_topr_imitates_what_went_well_and_tapers_what_did_not() -> None:
    """Product ¼: a good completion pulls in full, a bad one by a quarter; product 4 is cut to 1."""
    assert row("topr", [[0.5, 0.5]], [[1.0, -1.0]]) == [pytest.approx([1.0, -0.25])]
    assert row("topr", [[2.0, 2.0]], [[1.0, -1.0]]) == [pytest.approx([1.0, -1.0])]


def test_deepseeks_mask_forgives_ones_own_mistakes_only() -> None:
    """Mean log μ/π = 0.6 in the first row and 0.4 in the second; only bad decisions of the first go."""
    ratio = [[math.exp(-1.0), math.exp(-0.2)], [math.exp(-0.5), math.exp(-0.3)]]
    said = row("deepseek_mask", ratio, [[-1.0, 1.0], [-1.0, 1.0]], clip=0.9)
    assert said == [[0.0, pytest.approx(ratio[0][1])], pytest.approx([-ratio[1][0], ratio[1][1]])]


def test_gspo_clips_completions_and_not_tokens() -> None:
    """Geometric means 1 and 1.1 with ε 0.05: the first row pulls with s = 1 although its tokens are 2 and ½."""
    ratio = [[2.0, 0.5], [1.1, 1.1]]
    assert row("gspo", ratio, clip=0.05, clip_high=0.0) == [pytest.approx([1.0, 1.0]), [0.0, 0.0]]
    assert row("gspo", ratio, -1.0, clip=0.05, clip_high=0.0)[1] == pytest.approx([-1.1, -1.1])


def test_p3o_holds_back_as_the_effective_sample_size_falls() -> None:
    """w = 1, 3: ESS = 16/(2·10) = 0.8; weights 0.8, 0.8; KL by k3 pulls 0.2·(1 − w)."""
    d = decisions([[1.0, 3.0]], 1.0, closed_form=False)
    assert coefficients("p3o", d).tolist() == [pytest.approx([0.8, 0.8 - 0.4])]
    assert coefficients("p3o", d, cap="one").tolist() == [pytest.approx([1.0, 1.0 - 0.4])]
    assert coefficients("p3o", d, kl_coef=0.0).tolist() == [pytest.approx([0.8, 0.8])]
