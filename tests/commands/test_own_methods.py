"""Wrong assumptions and answers of a plugin are one line, at its first gradient step."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import Cli
from known_plugins import loaded_plugins

from staleharness.algorithm import Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.errors import Diverged, UserError
from staleharness.running.plan import plan
from staleharness.study import sweep_request
from staleharness.testing import example_decisions
from staleharness.training.hook_checks import loss_of, state_of
from staleharness.training.loop import simulation_of

PLUGIN = '''
from dataclasses import dataclass
from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import PolicyLoss

@ALGORITHMS.register("{name}")
@dataclass(frozen=True)
class Mine(Algorithm):
    """A method of one's own."""
    needs = frozenset({needs})
    def policy_loss(self, d):
        plain = -d.target_logp * d.advantage
        return {answer}
{more}
'''
TINY = ["--seeds", "1", "--steps", "2", "--k", "2", "--set", "batch=8,horizon=8,evaluations=1"]
SHORT = {
    "Pendulum": [
        "--seeds",
        "1",
        "--k",
        "2",
        "--steps",
        "128",
        "--set",
        "num_envs=4,num_steps=16,epochs=1,minibatches=2,evaluations=1",
    ]
}
PLAIN = "PolicyLoss(plain)"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """No plugin of a test outlives it."""
    with loaded_plugins():
        yield


@pytest.fixture
def command_words(tmp_path: Path) -> Callable[..., list[str]]:
    def words(name: str, answer: str, env: str, *more: str, needs: Any = (), methods: str = "") -> list[str]:
        path = tmp_path / f"{name}.py"
        path.write_text(PLUGIN.format(name=name, answer=answer, needs=needs, more=methods))
        return ["--env", env, "--algo", name, "--plugin", str(path), *more]

    return words


UNDECLARED = {
    "kl": ('PolicyLoss(plain + d.analytic_kl("behaviour"))', "bit-chain", "analytic_kl", "closed_form"),
    "norm": ("PolicyLoss(plain * d.logit_norm)", "bit-chain", "logit_norm", "logit_norm"),
    "start": ("PolicyLoss(plain - d.reference_logp)", "bit-chain", "reference_logp", "reference"),
    "prompt": ("PolicyLoss(plain + d.group.float()[:, None])", "Pendulum", "group", "groups"),
}


@pytest.mark.parametrize("name", UNDECLARED)
def test_a_field_that_is_used_undeclared_is_refused_in_one_line(name: str, command_words: Any, call: Cli) -> None:
    answer, env, field, need = UNDECLARED[name]
    code, _, errors = call("sweep", *command_words(name, answer, env, *SHORT.get(env, TINY)))
    assert code == 2
    for part in (f"UserError: {name}: ", f"decisions.{field}, which is None", f"needs = frozenset({{'{need}'}})"):
        assert part in errors


@pytest.mark.parametrize(
    ("answer", "env"),
    [
        ('PolicyLoss(plain if d.analytic_kl is None else plain + d.analytic_kl("behaviour"))', "bit-chain"),
        ('PolicyLoss(plain + d.analytic_kl("behaviour"))', "Pendulum"),
        ("PolicyLoss(plain + d.group.float()[:, None])", "bit-chain"),
    ],
)
@pytest.mark.long
def test_what_is_there_or_is_done_without_is_given(answer: str, env: str, command_words: Any, call: Cli) -> None:
    code, _, errors = call("sweep", *command_words("careful", answer, env, *SHORT.get(env, TINY)))
    assert code == 0, errors


@pytest.mark.parametrize("slip", ["d.advantages", "d.version_logp.exp()"])
def test_a_call_of_mean_is_no_field_of_a_distribution(slip: str, command_words: Any) -> None:
    plugin = command_words("mistaken", f"PolicyLoss(plain + {slip} * plain.mean())", "Pendulum")[-1]
    with loaded_plugins(Path(plugin)):
        (run,) = plan(
            sweep_request(env="Pendulum", algo="mistaken", k="2", seeds="1", settings=SHORT["Pendulum"][-1])
        ).runs
        with pytest.raises(AttributeError, match="has no attribute"):
            list(simulation_of(run.spec))


def test_another_mistake_of_a_plugin_stays_what_it_is(command_words: Any, call: Cli) -> None:
    code, _, errors = call("sweep", *command_words("slip", "PolicyLoss(plain + d.lags)", "bit-chain", *TINY))
    assert code == 1 and "AttributeError: 'Decisions' object has no attribute 'lags'" in errors


def test_what_is_declared_is_given(command_words: Any, call: Cli) -> None:
    words = command_words("declared", "PolicyLoss(plain * d.logit_norm)", "bit-chain", *TINY, needs=["logit_norm"])
    code, _, errors = call("sweep", *words)
    assert code == 0, errors


ANSWERS = {
    "mean": ("PolicyLoss(plain.mean())", "the loss that policy_loss returns is of shape []"),
    "sums": ("PolicyLoss(plain.sum(1))", "of shape [8]; give a tensor with a number of each decision"),
    "noted": ("PolicyLoss(plain, {'x': 1.0})", "the x that policy_loss returns is a float"),
    "bare": ("plain", "policy_loss returns a Tensor, not a PolicyLoss"),
    "detached": ("PolicyLoss(plain.detach())", "its loss does not depend on the policy"),
}


@pytest.mark.long
def test_a_wrong_answer_ends_the_run_as_the_users_mistake(command_words: Any, call: Cli, tmp_path: Path) -> None:
    """Rows are as many as decisions in a row here, so that a loss of each row would be spread over decisions."""
    for name, (answer, said) in ANSWERS.items():
        code, out, errors = call("sweep", "--json", *command_words(name, answer, "bit-chain", *TINY))
        assert code == 2 and f"UserError: {name}: " in errors and said in errors, errors
        assert len(json.loads(out.splitlines()[-1])["runs"]["failed"]) == 1
    code, _, errors = call("sweep", *command_words("sound", PLAIN, "bit-chain", *TINY))
    assert code == 0, errors


OTHERS = {
    "stops": ("    def stop(self, d): return True", "stop returns True; give one of 'no', 'epoch', 'phase'"),
    "forgets": ("    def next_state(self, *_): return None", "next_state returns a NoneType, not a Mapping"),
    "lists": ("    def init_state(self): return {'n': [1]}", "the n that init_state returns is a list; a state"),
    "turns": ("    def step_scale(self, d): return -0.5", "step_scale returns -0.5; give a number that is not"),
    "words": ("    def step_scale(self, d): return None", "step_scale returns None; give a number"),
    "long": (
        "    def step_scale(self, d): return d.lag",
        "step_scale returns tensor([[0., 0., 0., 0., 0., 0., 0., 0.], [0",
    ),
    "bursts": ("    def step_scale(self, d): return float('inf')", "step_scale is not finite in phase 0"),
    "none": ("    def targets(self, t): return None", "targets returns a NoneType, not a Targets"),
    "rows": (
        "    def targets(self, t):\n        from staleharness.batch import Targets\n"
        "        return Targets(t.reward.sum(1), t.value)",
        "the advantage that targets returns is of shape [8]; give a tensor with a number of each decision, here [8, ",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_wrong_answer_of_any_other_kind_too(name: str, command_words: Any) -> None:
    methods, said = OTHERS[name]
    plugin = command_words(name, PLAIN, "bit-chain", methods=methods)[-1]
    with loaded_plugins(Path(plugin)):
        (run,) = plan(sweep_request(env="bit-chain", algo=name, k="2", seeds="1", steps="2", settings=TINY[-1])).runs
        with pytest.raises(Diverged if name == "bursts" else UserError, match=re.escape(said)):
            list(simulation_of(run.spec))


SILENT = {
    "loss": ("PolicyLoss(plain + 0 * d.advantage.mul_(2.0))", "", "policy_loss changes advantage in place"),
    "goal": (
        PLAIN,
        "    def targets(self, t):\n        t.reward.add_(1.0)\n        return super().targets(t)",
        "targets changes reward in place",
    ),
    "scale": (
        PLAIN,
        "    def step_scale(self, d): return float(d.lag.add_(100.0).mean() > 0)",
        "step_scale changes lag in place",
    ),
    "halt": (
        PLAIN,
        "    def stop(self, d): return 'no' if d.lag.add_(100.0).mean() else 'epoch'",
        "stop changes lag in place",
    ),
    "pair": (
        "PolicyLoss(plain, {'n': 7 * plain})",
        "    def init_state(self): return {'n': 1.0}",
        "n names a diagnostic and a part of its state; rename",
    ),
    "list": ("PolicyLoss(plain, [])", "", "the diagnostics of policy_loss are a list; give a dict"),
}


@pytest.mark.parametrize("name", SILENT)
def test_an_answer_that_would_spoil_metrics_is_refused(name: str, command_words: Any) -> None:
    answer, methods, said = SILENT[name]
    plugin = command_words(name, answer, "bit-chain", methods=methods)[-1]
    with loaded_plugins(Path(plugin)):
        (run,) = plan(sweep_request(env="bit-chain", algo=name, k="2", seeds="1", steps="2", settings=TINY[-1])).runs
        with pytest.raises(UserError, match=re.escape(said)):
            list(simulation_of(run.spec))


DUAL = """
    def init_state(self):
        import torch
        return {"log_beta": torch.zeros((), requires_grad=True)}"""


@pytest.mark.parametrize(("env", "settings"), [("bit-chain", TINY[-1]), ("Pendulum", SHORT["Pendulum"][-1])])
@pytest.mark.parametrize("detach", [".detach()", ""])
def test_a_trained_state_does_not_hide_a_detached_policy(
    detach: str, env: str, settings: str, command_words: Any
) -> None:
    answer = f"PolicyLoss(plain{detach} + d.state['log_beta'].exp() * d.target_logp{detach}.abs())"
    plugin = command_words("dual", answer, env, methods=DUAL)[-1]
    with loaded_plugins(Path(plugin)):
        (run,) = plan(sweep_request(env=env, algo="dual", k="2", seeds="1", steps="128", settings=settings)).runs
        simulation = simulation_of(run.spec)
        if not detach:
            simulation.advance()
            return
        with pytest.raises(UserError, match=r"^dual: its loss does not depend on the policy, so nothing would be"):
            simulation.advance()


def test_the_mean_of_a_diagnostic_takes_numbers_beside_tensors(command_words: Any) -> None:
    answer = "PolicyLoss(plain, {'x': d.mask + 1.0 if d.progress.epoch else d.mask.mean() + 2.0})"
    plugin = command_words("mixed", answer, "Pendulum")[-1]
    settings = SHORT["Pendulum"][-1].replace("epochs=1", "epochs=2")
    with loaded_plugins(Path(plugin)):
        (run,) = plan(
            sweep_request(env="Pendulum", algo="mixed", k="2", seeds="1", steps="128", settings=settings)
        ).runs
        assert simulation_of(run.spec).advance().metrics["algorithm/x"] == 2.5


def test_an_option_with_the_name_of_a_setting_is_refused(command_words: Any, call: Cli) -> None:
    option = "    learning_rate: float = 1.0"
    code, _, errors = call("sweep", *command_words("clash", PLAIN, "bit-chain", *TINY, methods=option))
    assert code == 2 and "its option learning_rate has the name of a setting of every run; rename it" in errors


def test_targets_of_another_shape_are_refused_on_control(command_words: Any, call: Cli) -> None:
    """Both would be flattened, or spread over the decisions."""
    targets = """
    def targets(self, t):
        from staleharness.objectives import gae
        from staleharness.batch import Targets
        right = gae(t)
        return Targets(right.advantage.T, right.value_target)"""
    code, _, errors = call("sweep", *command_words("aside", PLAIN, "Pendulum", *SHORT["Pendulum"], methods=targets))
    assert code == 2 and "aside: the advantage that targets returns is of shape [" in errors, errors
    value = "    def value_loss(self, v): return (v.value - v.target).square().sum(1)"
    code, _, errors = call("sweep", *command_words("flat", PLAIN, "Pendulum", *SHORT["Pendulum"], methods=value))
    assert code == 2 and "flat: the tensor that value_loss returns is of shape [32]" in errors, errors
    value = "    def value_loss(self, v): return (v.value.detach() - v.target).square()"
    code, _, errors = call("sweep", *command_words("still", PLAIN, "Pendulum", *SHORT["Pendulum"], methods=value))
    assert code == 2 and "still: value_loss does not depend on values.value" in errors, errors


@pytest.mark.parametrize("number", ["np.int64(3)", "np.float32(3)", "3"])
@pytest.mark.long
def test_a_methods_state_is_in_metrics_and_checkpoints(
    number: str, command_words: Any, call: Cli, tmp_path: Path
) -> None:
    """Checkpoints are read without running code from them, so NumPy's own numbers would not come back."""
    methods = f"""
    def init_state(self):
        import numpy as np
        return {{"n": {number}}}
    def next_state(self, state, diagnostics): return {{"n": state["n"] + 1}}"""
    words = command_words("counts", PLAIN, "bit-chain", *TINY, methods=methods)
    code, _, errors = call("sweep", *words)
    assert code == 0, errors
    state = state_of(Answering(), "init_state", {"n": eval(number, {"np": np}), "t": torch.ones(2)})
    stored = io.BytesIO()
    torch.save(state, stored)
    stored.seek(0)
    assert torch.load(stored, weights_only=True)["n"] == 3
    (metrics,) = tmp_path.rglob("metrics.parquet")
    assert pd.read_parquet(metrics)["algorithm/n"].tolist() == [4.0, 5.0]


class Answering(Algorithm):
    """Answers what it is told to, and has a name."""

    name = "answering"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return PolicyLoss(-d.target_logp * d.advantage, {"share": torch.tensor(0.5), "each": d.lag})


class Wide(Answering):
    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return PolicyLoss(-d.target_logp[:, :1] * d.advantage[:, :1])


def test_a_loss_of_each_decision_and_numbers_beside_it_are_taken() -> None:
    d = example_decisions()
    assert loss_of(Answering(), d).loss.shape == d.mask.shape
    with pytest.raises(UserError, match=r"answering: the loss .* of shape \[4, 1\]; .* here \[4, 6\]"):
        loss_of(Wide(), d)


def test_only_what_init_state_makes_is_trained() -> None:
    dual = torch.nn.Parameter(torch.ones(()))
    assert state_of(Answering(), "init_state", {"dual": dual})["dual"] is dual
    assert state_of(Answering(), "next_state", {"dual": 2.0 * dual}, {"dual": dual})["dual"] is dual
    for hook, x, trained in (("init_state", 2.0 * dual, None), ("next_state", dual, {}), ("step_state", dual, {})):
        with pytest.raises(UserError, match=rf"the dual that {hook} returns requires a gradient; only a tensor that"):
            state_of(Answering(), hook, {"dual": x}, trained)


@pytest.mark.long
def test_after_edits_a_report_has_the_runs_of_the_present_code(command_words: Any, call: Cli, tmp_path: Path) -> None:
    """Three versions of a method in one folder: the first with another default, the last two with equal options."""
    versions = [("1.2", "PolicyLoss(plain)"), ("1.3", "PolicyLoss(plain)"), ("1.3", "PolicyLoss(2.0 * plain)")]
    scores = []
    for cap, answer in versions:
        words = command_words("mine", answer, "bit-chain", *TINY, methods=f"    cap: float = {cap}")
        code, out, errors = call("sweep", *words, "--out", "r", "--json")
        assert code == 0, errors
        scores.append(json.loads(out)["table"][0]["raw_mean"])
    code, out, errors = call("report", "--out", "r", "--plugin", words[5], "--json")
    assert code == 0 and "left out: 2 runs of earlier code of mine" in errors
    assert [row["raw_mean"] for row in json.loads(out)["table"]] == scores[-1:]
    (tmp_path / "mine.py").unlink()
    code, _, errors = call("report", "--out", "r")  # nothing says which of them is the present code's
    assert code == 2 and "no setting tells the runs that match apart" in errors
    code, _, errors = call("compare", "r", "r/../r")
    assert code == 2 and "the same folder" in errors
    shutil.copytree("r", "other")
    code, _, errors = call("compare", "r", "other")
    assert code == 2 and "share no cell" in errors and "Traceback" not in errors
