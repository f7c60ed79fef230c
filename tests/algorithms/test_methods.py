"""Each method against a slow literal reading of its gradient coefficient, in numpy, on random masked rows;
and what it answers besides."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from method_examples import assert_clipped_have_no_gradient, examples, inputs_of, make
from method_readings import (
    Reading,
    appo,
    cispo,
    deepseek,
    dppo,
    geppo,
    gspo,
    k3_rejection,
    m2po_paper,
    m2po_release,
    mask_out,
    otb,
    p3o,
    per_decision,
    seq_is,
    tba,
    terms,
    tis,
    topr,
    unit_weight,
    window,
)

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Progress
from staleharness.errors import UserError
from staleharness.testing import decisions, example_trajectories, gradient_coefficients

CASES: list[tuple[Algorithm, Reading]] = [
    (make("seq_is"), per_decision(seq_is)),
    (make("tis"), tis("token", 2.0)),
    (make("tis", level="sequence", cap=8.0), tis("sequence", 8.0)),
    (make("tis", level="geometric", cap=1.1), tis("geometric", 1.1)),
    (make("tis", cap=1.1, clip=0.1), tis("token", 1.1, clip=0.1)),
    (make("tis", level="sequence", clip=0.1), tis("sequence", 2.0, clip=0.1)),
    (make("tis", normalise=True, veto=0.5), tis("token", 2.0, normalise=True, veto=0.5)),
    (make("tis", level="sequence", normalise=True), tis("sequence", 2.0, normalise=True)),
    (make("icepop"), mask_out(window("token", 0.5, 5.0), terms("token"))),
    (make("icepop", low=0.9, high=1.1), mask_out(window("token", 0.9, 1.1), terms("token"))),
    (
        make("icepop", low=0.9, high=1.2, denominator="kept", veto=0.6),
        mask_out(window("token", 0.9, 1.2), terms("token"), "kept", veto=0.6),
    ),
    (make("icepop", low=0.9, clip=0.2), mask_out(window("token", 0.9, 5.0), terms("token"), clip=0.2)),
    (make("mis_seq"), mask_out(window("sequence", 0.5, 2.0), terms("sequence"))),
    (
        make("mis_seq", low=0.8, high=1.2, denominator="kept"),
        mask_out(window("sequence", 0.8, 1.2), terms("sequence"), "kept"),
    ),
    (make("mis_geo"), mask_out(window("geometric", 0.99, 1.01), unit_weight)),
    (make("mis_geo", low=0.9, level="token", cap=1.05), mask_out(window("geometric", 0.9, 1.01), terms("token", 1.05))),
    (
        make("mis_geo", high=1.3, level="sequence", denominator="kept"),
        mask_out(window("geometric", 0.99, 1.3), terms("sequence", 2.0), "kept"),
    ),
    (make("k3_rejection"), k3_rejection(0.01)),
    (make("k3_rejection", delta=0.1, denominator="kept"), k3_rejection(0.1, "kept")),
    (make("k3_rejection", delta=0.1, clip=0.1), k3_rejection(0.1, clip=0.1)),
    (make("cispo"), cispo(0.0, 5.0)),
    (make("cispo", low=0.95, high=1.05, anchor="proximal"), cispo(0.95, 1.05, proximal=True)),
    (make("topr"), topr("sequence", 1.0)),
    (make("topr", level="token", cap=1.1), topr("token", 1.1)),
    (make("deepseek_mask"), deepseek(0.5, 0.8, 1.2)),
    (make("deepseek_mask", delta=0.01, clip=0.1, clip_high=0.3, anchor="proximal"), deepseek(0.01, 0.9, 1.3, True)),
    (make("m2po"), m2po_paper(0.04)),
    (make("m2po", tau=0.001, anchor="proximal"), m2po_paper(0.001, True)),
    (make("m2po", form="release"), m2po_release(0.04, 0.3, 0.5)),
    (make("m2po", form="release", tau=0.001, floor_low=0.0, floor_high=0.0), m2po_release(0.001, 0.0, 0.0)),
    (make("gspo"), gspo(3e-4, 4e-4)),
    (make("gspo", clip=0.05, clip_high=0.0, anchor="proximal"), gspo(0.05, 0.05, True)),
    (make("dppo"), dppo("tv", 0.2)),
    (make("dppo", delta=0.01, cap=1.5), dppo("tv", 0.01, 1.5)),
    (make("dppo", divergence="kl", delta=0.05), dppo("kl", 0.05)),
    (make("dppo", divergence="kl", delta=1e-4), dppo("kl", 1e-4)),
    (make("tba"), tba(0.005)),
    (make("tba", beta=1.0), tba(1.0)),
    (make("otb"), otb("token", 2.0)),
    (make("otb", level="none", zero_tail=False), otb("none", 1.0, False)),
    (make("otb", level="sequence", cap=8.0), otb("sequence", 8.0)),
    (make("geppo"), geppo(0.2)),
    (make("appo"), appo(0.4, 2.0)),
    (make("appo", clip=0.1, weight_cap=1.1, proximal="ewma"), appo(0.1, 1.1)),
    (make("p3o"), p3o("ess", 1.0)),
    (make("p3o", cap="one", kl_coef=0.5, estimator="k2"), p3o("one", 0.5, "k2")),
]
NAMES = sorted({algorithm.name for algorithm, _ in CASES})


@pytest.mark.parametrize("spread", [1.0, 0.1])
@pytest.mark.parametrize(("algorithm", "reading"), CASES, ids=[str(a) for a, _ in CASES])
def test_each_decision_pulls_as_the_formula_reads(algorithm: Algorithm, reading: Reading, spread: float) -> None:
    for seed in range(4):
        d = examples(seed, spread)
        expected = torch.zeros_like(d.mask)
        for (b, t), pull in reading(inputs_of(d)).items():
            expected[b, t] = pull
        torch.testing.assert_close(gradient_coefficients(algorithm, d), expected)


@pytest.mark.parametrize(("algorithm", "reading"), CASES, ids=[str(a) for a, _ in CASES])
def test_the_examples_are_not_all_alike(algorithm: Algorithm, reading: Reading) -> None:
    """Over them every method pulls somewhere, and not everywhere as plain importance weighting would."""
    plain, pulls = [], []
    for spread in (1.0, 0.1):
        for seed in range(4):
            d = examples(seed, spread)
            w = (d.target_logp - d.behaviour_logp).detach().exp()
            plain.append(w * d.advantage * d.mask)
            pulls.append(gradient_coefficients(algorithm, d))
    assert any(bool(x.any()) for x in pulls)
    assert not all(torch.allclose(x, y) for x, y in zip(plain, pulls, strict=True))


@pytest.mark.parametrize("algorithm", [a for a, _ in CASES if a.policy_gradient], ids=str)
def test_clipped_marks_exactly_the_decisions_without_gradient(algorithm: Algorithm) -> None:
    assert_clipped_have_no_gradient(algorithm, seeds=4)


def test_every_method_says_what_its_mechanisms_touched() -> None:
    """By name, as 0 or 1 for each decision; the two that have no mechanism say something else."""
    mechanisms = {"clipped", "masked", "vetoed", "truncated"}
    without = {"seq_is", "tba"}
    for algorithm, _ in CASES:
        d = replace(examples(0, 1.0), state=algorithm.init_state())
        diagnostics = algorithm.policy_loss(d).diagnostics
        assert diagnostics and (mechanisms & set(diagnostics) or algorithm.name in without)
        for name in mechanisms & set(diagnostics):
            assert ((diagnostics[name] == 0) | (diagnostics[name] == 1)).all()


# --- what is not a coefficient ----------------------------------------------------------------------------


def test_dppo_on_control_measures_the_distribution() -> None:
    """tv is |w − 1| there: 1.3 goes too far up, 0.7 too far down; a density above 1 is no obstacle."""
    d = decisions([[1.3, 1.3, 0.7, 0.7, 1.1]], [[1.0, -1.0, 1.0, -1.0, 1.0]], target_logp=3.0)
    pull = gradient_coefficients(make("dppo"), d)
    torch.testing.assert_close(pull, torch.tensor([[0.0, -1.3, 0.7, 0.0, 1.1]], dtype=torch.float64))
    clip = gradient_coefficients(make("ppo_clip", clip=0.2), d)
    torch.testing.assert_close(pull, clip)
    kl = make("dppo", divergence="kl", delta=0.03)  # the stand-in's ½ log² w is 0.034, 0.064, 0.0045
    torch.testing.assert_close(gradient_coefficients(kl, d), clip)
    assert torch.equal(gradient_coefficients(make("dppo", divergence="kl", delta=0.07), d) != 0, d.mask == 1)


def test_geppo_adapts_its_step_to_the_distance_moved() -> None:
    geppo = make("geppo")
    start = geppo.init_state()
    for moved, factor in ((1.01, 1 / 1.03), (0.99, 1.0), (0.51, 1.0), (0.49, 1.03), (0.0, 1.0)):
        state = geppo.next_state(start, {"moved": moved})
        assert state == {"step_factor": pytest.approx(factor)}
        assert geppo.step_scale(replace(examples(0, 1.0), state=state)) == pytest.approx(factor)
    assert make("geppo", adapt=0.0).next_state(start, {"moved": 9.0}) == start


def test_geppo_measures_total_variation_by_half_its_clip() -> None:
    """w = 1.3, 1.1, u = 1.2, 1: ½ E|w − u| = 0.05. Lag 1 halves ε to 0.1, half of which is 0.05."""
    d = decisions([[1.3, 1.1]], [[1.0, 1.0]], proximal_ratio=[[1.2, 1.0]], lag=1.0)
    several = replace(d, progress=Progress(steps=2))
    said = make("geppo").policy_loss(several).diagnostics["moved"]
    torch.testing.assert_close(said, torch.ones(1, 2, dtype=torch.float64))


def test_geppo_measures_nothing_before_a_single_step() -> None:
    """Another order of sums, or bfloat16, tells w from u there."""
    d = decisions([[1.0 + 1e-3, 1.0]], [[1.0, 1.0]], proximal_ratio=1.0, lag=7.0)
    geppo = make("geppo")
    for progress in (Progress(), Progress(epochs=2), Progress(steps=2)):
        moved = geppo.policy_loss(replace(d, progress=progress)).diagnostics["moved"].mean()
        state = geppo.next_state(geppo.init_state(), {"moved": moved.item()})
        assert (state == geppo.init_state()) == (progress == Progress())


def test_appos_advantage_is_vtraces_times_a_truncated_weight() -> None:
    t = example_trajectories(dtype=torch.float64)
    said, plain = make("appo", rho_bar=1.5).targets(t), make("vaco", rho_bar=1.5).targets(t)
    w = (t.target_logp - t.behaviour_logp).exp().clamp(max=1.5)
    torch.testing.assert_close(said.advantage, w * plain.advantage)
    torch.testing.assert_close(said.value_target, plain.value_target)


def test_the_targets_of_geppo_are_vtraces() -> None:
    t = example_trajectories(dtype=torch.float64)
    said, vaco = make("geppo", rho_bar=2.0).targets(t), make("vaco", rho_bar=2.0, c_bar=2.0).targets(t)
    torch.testing.assert_close(said.advantage, vaco.advantage)
    torch.testing.assert_close(said.value_target, vaco.value_target)


def test_impacts_ratio_has_the_slower_of_two_policies_below_it() -> None:
    """r = π/max(π_tgt, μ/2): 1.2, then μ = 4 π_tgt, where r is 1.2·½ and not 1.2."""
    d = decisions([[1.2, 0.3]], [[1.0, 1.0]], proximal_ratio=[[1.0, 0.25]])
    pull = gradient_coefficients(make("appo"), d)
    torch.testing.assert_close(pull, torch.tensor([[1.2, 0.6]], dtype=torch.float64))


@pytest.mark.parametrize("name", NAMES)
def test_a_number_below_zero_is_refused_in_one_line(name: str) -> None:
    cls = ALGORITHMS[name]
    for key, hint in cls.hyper_parameter_types().items():
        if hint is float:
            with pytest.raises(UserError, match=f"{name}: {key} must be"):
                cls(**{key: -0.5})
