"""Reach of a plugin: stopping early, a value loss and tensors of its own, progress, time order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from known_plugins import loaded_plugins
from small_specs import small_control
from torch import Tensor

from staleharness.algorithm import ALGORITHMS, Algorithm, Stop, check, defines
from staleharness.batch import Decisions, PolicyLoss, Progress, Values
from staleharness.errors import UserError
from staleharness.objectives import importance_ratio
from staleharness.task import find_env
from staleharness.testing import decisions, gradient_coefficients, parametrize_with_checks
from staleharness.training.loop import simulation_of

with loaded_plugins():  # it registers itself, here and not for others' tests
    from annealed_clip import AnnealedClip

CONTROL = small_control(4, 4, 16, env="CartPole-v1", epochs=3, value_clip=0.0)
HOOKS = ("stop", "value_loss")


@dataclass(frozen=True)
class Reaching(Algorithm):
    """Importance weighting with every hook there is, and a note of what it was asked."""

    paper = "a test of staleharness"
    seen: ClassVar[list[Decisions]] = []
    values: ClassVar[list[Values]] = []

    stop_at: int = -1  # the step of an epoch
    what: str = "phase"
    own_value: bool = False

    def init_state(self) -> dict[str, Any]:
        return {"phases": 0.0, "window": torch.zeros(3)}

    def next_state(self, state: Any, diagnostics: Any) -> dict[str, Any]:
        window = torch.cat([state["window"][1:], torch.tensor([diagnostics["ratio"]])])
        return {"phases": state["phases"] + 1.0, "window": window}

    def stop(self, d: Decisions) -> Stop:
        return self.what if d.progress.step == self.stop_at else "no"  # type: ignore[return-value]

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        self.seen.append(replace(d, target_logp=d.target_logp.detach().clone()))
        ratio = importance_ratio(d.target_logp, d.behaviour_logp)
        return PolicyLoss(-ratio * d.advantage, {"ratio": ratio})


@dataclass(frozen=True)
class Valuing(Reaching):
    def value_loss(self, v: Values) -> Tensor:
        self.values.append(v)
        return 0.5 * (v.value - v.target).square()


@dataclass(frozen=True)
class TimeOrder(Reaching):
    @property
    def time_order(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    Reaching.seen.clear(), Reaching.values.clear()
    with loaded_plugins():
        for name, cls in (("reaching", Reaching), ("valuing", Valuing), ("ordered", TimeOrder)):
            ALGORITHMS.register(name)(cls)
        ALGORITHMS.register("annealed_clip")(AnnealedClip)
        yield


def run_to_end(name: str, **changed: Any) -> tuple[Any, list[dict[str, Any]]]:
    hyper = {key: changed.pop(key) for key in ("stop_at", "what", "delta", "every") if key in changed}
    simulation: Any = simulation_of(replace(CONTROL, algorithm=name, hyper=hyper, **changed))
    return simulation, [record.metrics for record in simulation]


@parametrize_with_checks([AnnealedClip])
def test_an_annealed_clip_is_a_plugin_of_few_lines(algorithm: Algorithm, check: Any) -> None:
    check(algorithm)


def test_a_clip_that_narrows_clips_more() -> None:
    d = decisions([[1.15, 0.95, 1.3]], [[1.0, -1.0, 1.0]])
    late = replace(d, progress=Progress(phase=5, phases=10))
    assert gradient_coefficients(AnnealedClip(), d).tolist() == [[pytest.approx(1.15), pytest.approx(-0.95), 0.0]]
    assert gradient_coefficients(AnnealedClip(), late).tolist() == [[0.0, pytest.approx(-0.95), 0.0]]
    simulation, _ = run_to_end("annealed_clip")
    assert simulation.phase == 4


def test_no_built_in_method_but_espo_pays_for_a_hook() -> None:
    own = {n for n in ALGORITHMS for hook in HOOKS if defines(ALGORITHMS[n](), hook)}
    assert own == {"espo", "reaching", "valuing", "ordered"}


def test_progress_counts_phases_epochs_and_steps() -> None:
    run_to_end("reaching")
    asked = [d.progress for d in Reaching.seen]
    wanted = [Progress(p, 4, e, 3, s, 2) for p in range(4) for e in range(3) for s in range(2)]
    assert asked == wanted
    fractions = [each.fraction for each in asked]
    assert fractions[0] == 0.0 and fractions == sorted(fractions) and fractions[-1] == pytest.approx(23 / 24)


def test_progress_on_tokens() -> None:
    _, family = find_env("bit-chain")
    spec: Any = family.settings.from_dict(
        {"env": "bit-chain", "algorithm": "reaching", "steps": 8, "minibatches": 2, "epochs": 2, "evaluations": 1}
    )
    for _ in simulation_of(spec):
        pass
    count = spec.phases
    wanted = [Progress(p, count, e, 2, s, 2) for p in range(count) for e in range(2) for s in range(2)]
    assert [d.progress for d in Reaching.seen] == wanted and count > 1


@pytest.mark.parametrize(
    ("stop_at", "what", "steps"), [(-1, "phase", 6), (1, "phase", 1), (0, "phase", 0), (1, "epoch", 3), (0, "epoch", 0)]
)
def test_a_method_ends_an_epoch_or_a_phase_before_a_step(stop_at: int, what: str, steps: int) -> None:
    simulation, records = run_to_end("reaching", stop_at=stop_at, what=what)
    assert [m["gradient_steps"] for m in records] == [steps * (i + 1) for i in range(4)]
    assert all(m["policy_loss"] is not None for m in records)
    moved = not torch.equal(simulation.policy.flat, simulation_of(simulation.spec).policy.flat)
    assert moved == (steps > 0)


def train_on(part: Decisions) -> tuple[list[int], int]:
    """Decisions of a minibatch that teach, by lag, and its rows."""
    return torch.bincount(part.lag[part.mask > 0].long()).tolist(), int(part.mask.any(1).sum())


@pytest.mark.parametrize("name", ["reaching", "ordered"])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_accounts_of_a_short_epoch_count_its_steps(name: str, steps: int) -> None:
    simulation, records = run_to_end(name, stop_at=steps, minibatches=4, capacity=4)
    told, lags, rows = 0, [0] * 4, 0
    for m in records:
        shown = Reaching.seen[told : (told := told + steps + 1)]  # one more than is taken: it ends the phase
        by_lag, many = zip(([0], 0), *map(train_on, shown[:-1]), strict=True)
        lags = [a + sum(each[lag] for each in by_lag if lag < len(each)) for lag, a in enumerate(lags)]
        rows += sum(many)
        assert m["decisions/trained"] == sum(lags) == (m["phase"] + 1) * steps * 16
        assert m["decisions/masked"] == (m["phase"] + 1) * (4 - steps) * 16
        if name == "ordered":  # minibatches of whole rows
            assert m["sequences/trained"] == rows == (m["phase"] + 1) * steps
    assert simulation.accounts.histograms["trained"] == lags[: len(simulation.accounts.histograms["trained"])]
    assert sum(lags[1:]) > 0 if steps else sum(lags) == 0


def test_accounts_of_a_short_token_epoch_count_its_groups() -> None:
    _, family = find_env("bit-chain")
    content = {"env": "bit-chain", "algorithm": "reaching", "hyper": {"stop_at": 2}, "evaluations": 1}
    content |= {"steps": 24, "minibatches": 4, "capacity": 3}
    simulation: Any = simulation_of(family.settings.from_dict(content))
    records = [record.metrics for record in simulation]
    taken = [train_on(d) for i, d in enumerate(Reaching.seen) if i % 3 < 2]
    assert records[-1]["sequences/trained"] == sum(rows for _, rows in taken)
    assert records[-1]["sequences/generated"] == 2 * records[-1]["sequences/trained"]
    by_lag = [sum(each[lag] for each, _ in taken if lag < len(each)) for lag in range(3)]
    assert simulation.accounts.histograms["trained"] == by_lag and by_lag[1] > 0


def test_espo_ends_the_phase_where_the_ratios_have_strayed() -> None:
    _, whole = run_to_end("espo", delta=1e9)
    _, cut = run_to_end("espo", delta=0.02, learning_rate=0.02)
    full = [6 * (i + 1) for i in range(4)]
    assert [m["gradient_steps"] for m in whole] == full
    taken = [m["gradient_steps"] for m in cut]
    assert 1 <= taken[0] < 6 and taken[-1] < 24
    _, again = run_to_end("espo", delta=0.02, learning_rate=0.02, every="epoch")
    assert again[0]["gradient_steps"] >= taken[0]


def test_espo_on_tokens() -> None:
    _, family = find_env("bit-chain")
    content = {"env": "bit-chain", "algorithm": "espo", "steps": 16, "epochs": 4, "evaluations": 1}
    content |= {"learning_rate": 0.5, "hyper": {"delta": 0.01}}
    simulation: Any = simulation_of(family.settings.from_dict(content))
    records = [record.metrics for record in simulation]
    assert 0 < records[-1]["gradient_steps"] < 4 * len(records)


def test_the_usual_value_loss_written_by_hand_learns_the_same() -> None:
    plain, _ = run_to_end("reaching")
    own, records = run_to_end("valuing")
    torch.testing.assert_close(own.policy.flat, plain.policy.flat, rtol=1e-4, atol=1e-5)
    assert len(Reaching.values) == 24 and all(v.value.shape == v.target.shape == v.mask.shape for v in Reaching.values)
    assert records[0]["value_loss"] > 0


def test_tensor_state_is_resumed_and_no_metric() -> None:
    whole, records = run_to_end("reaching")
    assert whole.learner.state["window"].shape == (3,) and whole.learner.state["phases"] == 4.0
    assert records[-1]["algorithm/phases"] == 4.0 and "algorithm/window" not in records[-1]
    first: Any = simulation_of(replace(CONTROL, algorithm="reaching"))
    first.advance(), first.advance()
    resumed: Any = simulation_of(replace(CONTROL, algorithm="reaching"))
    resumed.load_state_dict(first.state_dict())
    assert [resumed.advance().metrics, resumed.advance().metrics] == records[2:]
    assert torch.equal(resumed.learner.state["window"], whole.learner.state["window"])


def test_time_order_gives_whole_rows_and_where_episodes_end() -> None:
    run_to_end("reaching")
    assert all(d.mask.shape == (32, 1) and d.continues is None for d in Reaching.seen)
    Reaching.seen.clear()
    run_to_end("ordered")
    for d in Reaching.seen:
        assert d.mask.shape == (2, 16) and d.continues is not None and not d.continues[:, -1].any()
    assert any(bool((d.continues[:, :-1] == 0).any()) for d in Reaching.seen if d.continues is not None)
    with pytest.raises(UserError, match="ordered keeps time order, so its minibatches are whole rows"):
        check(TimeOrder(), replace(CONTROL, algorithm="ordered", num_envs=1, minibatches=2))
