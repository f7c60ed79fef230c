"""The contract suite over every registered algorithm, and over plugins that break it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from staleharness.algorithm import ALGORITHMS, NEEDS, Algorithm, Stop, check, unmet
from staleharness.batch import Decisions, PolicyLoss, Targets, Trajectories, Values
from staleharness.commands import new as scaffold
from staleharness.errors import UserError
from staleharness.objectives import gae, importance_ratio
from staleharness.running.plan import plan
from staleharness.spec import RunSpec
from staleharness.study import sweep_request
from staleharness.testing import CHECKS, check_algorithm

SEVEN = ["a3po", "decoupled_ppo", "impala", "ppo_clip", "ppo_kl", "spo", "vaco"]


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_registered_algorithm_keeps_the_contract(name: str) -> None:
    check_algorithm(ALGORITHMS[name])


def test_the_seven_algorithms_are_registered() -> None:
    assert set(SEVEN) <= set(ALGORITHMS)


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("ppo_clip", {"clip": 0.0}, "ppo_clip: clip must be above 0, not 0.0"),
        ("ppo_clip", {"clip": "wide"}, "ppo_clip: clip=wide is not a number"),
        ("ppo_clip", {"clip": True}, "ppo_clip: clip=true is not a number"),
        ("ppo_clip", {"anchor": "old"}, "anchor=old is not one of behaviour, proximal, decoupled"),
        ("ppo_kl", {"clip": -0.1}, "clip must be 0 (no clip) or above"),
        ("ppo_kl", {"kl_coef": -1.0}, "kl_coef must be 0 or above"),
        ("ppo_kl", {"target": 0.0}, "target must be above 0"),
        ("ppo_kl", {"adaptive": 1}, "adaptive=1 is not true or false"),
        ("spo", {"epsilon": -1.0}, "epsilon must be above 0"),
        ("impala", {"pg_rho_bar": 0.0}, "pg_rho_bar must be above 0"),
        ("vaco", {"delta": 0.0}, "delta must be above 0"),
        ("vaco", {"c_bar": -1.0}, "c_bar must be above 0"),
        ("vaco", {"entropy_coef": -0.1}, "entropy_coef must be 0 or above"),
        ("decoupled_ppo", {"ewma_decay": 1.0}, "ewma_decay must be at least 0 and below 1"),
        ("decoupled_ppo", {"weight_cap": 0.5}, "weight_cap must be 0 (no cap) or at least 1"),
        ("a3po", {"weight_cap": 0.0}, "weight_cap must be above 0"),
        ("a3po", {"clip": float("nan")}, "clip=nan is not finite"),
    ],
)
def test_a_bad_hyper_parameter_is_one_line(name: str, options: dict[str, object], complaint: str) -> None:
    with pytest.raises(UserError) as caught:
        ALGORITHMS[name](**options)
    assert complaint in str(caught.value)


def test_an_unknown_hyper_parameter_is_one_line() -> None:
    with pytest.raises(UserError, match=r"^ALGO=ppo_clip: unknown option 'clp'; did you mean 'clip'\?$"):
        plan(sweep_request(env="bit-chain", algo="ppo_clip[clp=0.1]"))


def test_an_integer_will_do_for_a_number() -> None:
    assert ALGORITHMS["vaco"](rho_bar=2) == ALGORITHMS["vaco"](rho_bar=2.0)


@dataclass(frozen=True)
class Needy(Algorithm):
    name = "needy"
    needs = frozenset({"groups", "reference"})


def test_unmet_needs_of_a_method_are_one_error_line() -> None:
    everything, spec = frozenset(NEEDS), RunSpec(env="Hopper-v5", algorithm="needy")
    assert unmet(Needy(), everything) is None and unmet(Algorithm(), frozenset()) is None
    assert unmet(Needy(), everything - {"groups"}) == "needy needs groups of completions of one prompt"
    assert unmet(Needy(), frozenset()) == "needy needs groups of completions of one prompt and a reference policy"
    for name, option in (("ppo_kl", "estimator"), ("p3o", "estimator"), ("vaco", "kl_estimator")):
        wanted = f"{name} needs a policy whose KL has a closed form"
        assert unmet(ALGORITHMS[name](**{option: "analytic"}), everything - {"closed_form"}) == wanted
        assert unmet(ALGORITHMS[name](), everything - {"closed_form"}) is None
    check(Needy(), spec, everything)
    with pytest.raises(UserError, match="and a reference policy, which Hopper-v5 does not have"):
        check(Needy(), spec)


IGNORED_BY_COMPLETIONS = [{"entropy_coef": 0.01}, {"normalise_advantage": True}, {"discount": 0.9}, {"gae_lambda": 0.9}]


@pytest.mark.parametrize("setting", IGNORED_BY_COMPLETIONS, ids=str)
def test_what_a_gradient_by_completions_leaves_out_is_refused(setting: dict[str, Any]) -> None:
    own, groups = ALGORITHMS["vcpo"], frozenset({"groups"})
    plain = RunSpec(env="word-problems", algorithm="vcpo", normalise_advantage=False, discount=1.0, gae_lambda=1.0)
    check(own(), plain, groups)
    asked = replace(plain, **setting)
    check(own(baseline="group"), asked, groups)
    with pytest.raises(UserError, match=f"vcpo has its own baseline .* excludes {next(iter(setting))}="):
        check(own(), asked, groups)


def test_an_anchor_recomputed_before_a_single_step_is_idle() -> None:
    decoupled = ALGORITHMS["decoupled_ppo"]
    line = decoupled().inactive(1)
    assert line is not None and line.startswith("decoupled_ppo: ") and "ever acts" in line and "\n" not in line
    assert decoupled().inactive(2) is None
    assert decoupled(proximal="ewma").inactive(1) is None
    assert ALGORITHMS["ppo_clip"]().inactive(1) is None
    assert ALGORITHMS["ppo_clip"](anchor="proximal").inactive(1) is not None


# The contract must also be able to fail. Each plugin below breaks one promise.


@dataclass(frozen=True)
class Honest(Algorithm):
    """Importance weighting."""

    paper = "none"
    scale: float = 1.0

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return PolicyLoss(-self.scale * importance_ratio(d.target_logp, d.behaviour_logp) * d.advantage)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A private copy of the registry, so that broken plugins are seen by nobody else."""
    list(ALGORITHMS)
    monkeypatch.setattr(ALGORITHMS, "_classes", dict(ALGORITHMS._classes))


def test_an_honest_plugin_passes(registry: None) -> None:
    check_algorithm(ALGORITHMS.register("honest")(Honest))


def test_a_freshly_written_plugin_passes(registry: None, tmp_path: Path) -> None:
    ALGORITHMS.load_file(scaffold.write("algorithm", "my_idea", str(tmp_path)))
    check_algorithm(ALGORITHMS["my_idea"])


class WithoutName(Honest):
    pass


class Averages(Honest):
    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return PolicyLoss(super().policy_loss(d).loss.mean())


class CountsPadding(Honest):
    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return PolicyLoss(super().policy_loss(replace(d, advantage=d.advantage - d.advantage.mean())).loss)


class Draws(Honest):
    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return PolicyLoss(super().policy_loss(d).loss * (torch.rand(()) < 2))


class Writes(Honest):
    def policy_loss(self, d: Decisions) -> PolicyLoss:
        d.advantage.mul_(2.0)
        return super().policy_loss(d)


class WithoutGradient(Honest):
    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return super().policy_loss(replace(d, target_logp=d.target_logp.detach() + 0.0 * d.target_logp))


class LostWithoutAClosedForm(Honest):
    def policy_loss(self, d: Decisions) -> PolicyLoss:
        unknown = float("nan") if d.analytic_kl is None else 1.0
        return PolicyLoss(unknown * super().policy_loss(d).loss)


class Halves(Honest):
    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return PolicyLoss(0.5 * super().policy_loss(d).loss)


class Overflows(Honest):
    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return PolicyLoss(-(20 * (d.target_logp - d.behaviour_logp)).exp() * d.advantage / 20)


class SortsRows(Honest):
    def policy_loss(self, d: Decisions) -> PolicyLoss:
        by_place = torch.arange(len(d.mask)).exp2()[:, None]
        return PolicyLoss(super().policy_loss(d).loss * by_place)


class CrossesEnds(Honest):
    def targets(self, t: Trajectories) -> Targets:
        return gae(replace(t, continues=torch.ones_like(t.continues)))


class RowlessTargets(Honest):
    def targets(self, t: Trajectories) -> Targets:
        return Targets(gae(t).advantage.sum(1), t.value)


class InfiniteState(Honest):
    def init_state(self) -> dict[str, float]:
        return {"bound": float("inf")}


class ValuesPadding(Honest):
    def value_loss(self, v: Values) -> Tensor:
        return (v.value - v.target).square() - v.value.mean()


class RatioOfRow(Honest):
    def policy_loss(self, d: Decisions) -> PolicyLoss:
        log_ratio = (d.target_logp - d.behaviour_logp) * d.mask
        return PolicyLoss(-(log_ratio.sum(1, keepdim=True) / d.mask.sum(1, keepdim=True)).exp() * d.advantage)


class StopsAndWrites(Honest):
    def stop(self, d: Decisions) -> Stop:
        d.lag.add_(100.0)
        return "no"


class DrawsGradient(Honest):
    def gradient(self, previous: Tensor, now: Tensor) -> Tensor:
        return now + torch.rand_like(now)


class ScalesGradientInPlace(Honest):
    def gradient(self, previous: Tensor, now: Tensor) -> Tensor:
        return now.mul_(0.5)


class ShortensGradient(Honest):
    def gradient(self, previous: Tensor, now: Tensor) -> Tensor:
        return now[:-1]


class StateInPlace(Honest):
    def init_state(self) -> dict[str, Any]:
        return {"mean": torch.ones(2)}

    def next_state(self, state: Mapping[str, Any], diagnostics: Mapping[str, float]) -> dict[str, Any]:
        return {"mean": state["mean"].mul_(0.9)}


class StateInPlaceAtSteps(StateInPlace):
    step_state, next_state = StateInPlace.next_state, Algorithm.next_state


class AnswersNonsense(Honest):
    realign_every = "sometimes"  # type: ignore[assignment]


class Careless(Honest):
    def __post_init__(self) -> None:
        pass


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (WithoutName, "is_named_and_explained"),
        (Averages, "has_a_loss_per_decision"),
        (CountsPadding, "ignores_padding"),
        (Draws, "is_deterministic_and_draws_nothing"),
        (Writes, "leaves_its_inputs_alone"),
        (StopsAndWrites, "leaves_its_inputs_alone"),
        (WithoutGradient, "pulls_on_the_policy"),
        (LostWithoutAClosedForm, "answers_for_tokens"),
        (Halves, "is_a_policy_gradient_on_policy"),
        (Overflows, "survives_extreme_ratios"),
        (SortsRows, "does_not_see_the_order_of_rows"),
        (CrossesEnds, "does_not_look_across_an_end"),
        (RowlessTargets, "has_targets_per_decision"),
        (ValuesPadding, "has_a_value_loss_per_decision"),
        (DrawsGradient, "has_a_gradient_of_the_same_kind"),
        (ScalesGradientInPlace, "has_a_gradient_of_the_same_kind"),
        (ShortensGradient, "has_a_gradient_of_the_same_kind"),
        (InfiniteState, "keeps_its_state_in_floats"),
        (StateInPlace, "keeps_its_state_in_floats"),
        (StateInPlaceAtSteps, "keeps_its_state_in_floats"),
        (AnswersNonsense, "answers_the_learner"),
        (Careless, "has_checked_hyper_parameters"),
    ],
)
def test_a_broken_promise_is_caught(registry: None, broken: type[Algorithm], check: str) -> None:
    if broken is not WithoutName:
        ALGORITHMS.register(broken.__name__)(broken)
    checks = {c.__name__: c for c in CHECKS}
    with pytest.raises(AssertionError):
        checks[check](broken())
    with pytest.raises(AssertionError):
        check_algorithm(broken)


class Pairs(Honest):
    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return super().policy_loss(d).loss, {}  # type: ignore[return-value]


class BareTargets(Honest):
    def targets(self, t: Trajectories) -> Targets:
        return t.reward, t.value  # type: ignore[return-value]


class InfiniteLoss(Honest):
    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return PolicyLoss(super().policy_loss(d).loss / 0.0)


class StopsByNumber(Honest):
    def stop(self, d: Decisions) -> Stop:
        return True  # type: ignore[return-value]


class StepsBack(Honest):
    def step_scale(self, d: Decisions) -> float:
        return -1.0


class StepsBeyondAllBounds(Honest):
    def step_scale(self, d: Decisions) -> float:
        return float("inf")


class FirstAnchor(Honest):
    proximal = "newest"  # type: ignore[assignment]


class LongShadow(Honest):
    ewma_decay = 1.0


class OrderInWords(Honest):
    time_order = "yes"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (Pairs, "has_a_loss_per_decision: .* Pairs: policy_loss returns a tuple, not a PolicyLoss$"),
        (BareTargets, "BareTargets: targets returns a tuple, not a Targets$"),
        (Averages, r"the loss that policy_loss returns is of shape \[\]; give a tensor with a number of each decision"),
        (InfiniteLoss, "the loss that policy_loss returns is not finite$"),
        (AnswersNonsense, "realign_every is 'sometimes'; give one of 'phase', "),
        (FirstAnchor, "proximal is 'newest'; give one of 'behaviour', 'recompute', 'ewma'$"),
        (LongShadow, "ewma_decay is 1.0; give a number of at least 0 and below 1$"),
        (OrderInWords, "time_order is 'yes'; give True or False$"),
        (StopsByNumber, "stop returns True; give one of 'no', 'epoch', 'phase'$"),
        (StepsBack, "step_scale returns -1.0; give a number that is not below 0$"),
        (StepsBeyondAllBounds, "step_scale is not finite in phase 0$"),
    ],
)
def test_the_contract_says_what_is_wrong(registry: None, broken: type[Algorithm], words: str) -> None:
    ALGORITHMS.register(broken.__name__)(broken)
    with pytest.raises(AssertionError, match=words):
        check_algorithm(broken)


def test_a_ratio_of_a_whole_row_is_pointed_to_gspo() -> None:
    checks = {c.__name__: c for c in CHECKS}
    with pytest.raises(AssertionError, match=r"written as in algorithms/gspo\.py"):
        checks["is_a_policy_gradient_on_policy"](RatioOfRow())


def test_every_check_is_seen_to_fail_once() -> None:
    marker = next(m for m in test_a_broken_promise_is_caught.pytestmark if m.name == "parametrize")
    assert {check for _, check in marker.args[1]} == {check.__name__ for check in CHECKS}
