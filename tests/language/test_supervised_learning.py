"""Supervised learning before a run: it learns what it is shown, once, and every run begins with the same weights."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from language_fixtures import Policies, Specs
from needs import needs_compiler
from torch import Tensor

from staleharness.base import cancellation
from staleharness.base.artifact_cache import build_once
from staleharness.errors import Interrupted, UserError
from staleharness.language import supervised_learning
from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.problem import Problem
from staleharness.language.prompt_formatting import PromptSet, closing_token
from staleharness.language.supervised_learning import _solutions, train_policy
from staleharness.task import find_env
from staleharness.training.loop import simulation_of

pytestmark = pytest.mark.usefixtures("own_cache")
NATALIA = "Natalia sold 48/2 = <<48/2=24>>24 in May.\n48+24 = <<48+24=72>>72 in all.\n#### 72"


@pytest.fixture
def lessons(monkeypatch: pytest.MonkeyPatch) -> list[list[Problem]]:
    """Problems of every fine-tuning, none of which takes a step."""
    seen: list[list[Problem]] = []
    monkeypatch.setattr(supervised_learning, "train_policy", lambda policy, prompts, *_: seen.append(prompts.problems))
    return seen


def one_example(policy: CausalLM) -> PromptSet:
    problems = [Problem("Ann has 3 cards. How many?", "3+2=<<3+2=5>>5\n#### 5", "5")]
    return PromptSet(problems, [list(policy.tokenizer(problems[0].question)["input_ids"])], 0)


def test_the_loss_is_the_mean_over_solution_tokens(policy: Policies) -> None:
    actor = policy()
    examples = one_example(actor)
    answer = [*actor.tokenizer("3+2=5\n#### 5")["input_ids"], actor.end[0]]  # no annotation
    with torch.no_grad():
        logits = actor.model(input_ids=torch.tensor([examples.tokens[0] + answer])).logits[0].log_softmax(-1)
    start = len(examples.tokens[0]) - 1
    wanted = -sum(float(logits[start + i, token]) for i, token in enumerate(answer)) / len(answer)
    told: list[str] = []
    train_policy(actor, examples, 60, 2e-5, told.append)
    assert told[0] == f"warm start: step 1 of 60, loss {wanted:.2f}"
    assert float(told[-1].rsplit(" ", 1)[1]) < wanted - 0.01


@pytest.mark.parametrize(
    ("template", "chat", "wanted"),
    [
        ("{{ messages[0].content }} {{ messages[1].content }} <eos>", True, "<eos>"),  # the second of the end tokens
        ("{{ messages[0].content }} {{ messages[1].content }}", True, "<pad>"),  # none behind a turn: the first
        ("{{ messages[0].content }} {{ messages[1].content }} <eos>", False, "<pad>"),
    ],
)
def test_a_chat_model_is_taught_to_end_its_turn_as_its_template_does(
    policy: Policies, template: str, chat: bool, wanted: str
) -> None:
    actor = policy(chat_template=chat)
    actor.tokenizer.chat_template = template
    actor.end = [actor.tokenizer.convert_tokens_to_ids(name) for name in ("<pad>", "<eos>")]
    assert closing_token(actor) == actor.tokenizer.convert_tokens_to_ids(wanted)
    token, _ = _solutions(actor, ["3"])
    assert token[0].tolist() == [*actor.tokenizer("3")["input_ids"], closing_token(actor)]


def test_a_chat_template_without_answers_is_refused(policy: Policies) -> None:
    actor = policy(chat_template=True, model="mine")
    actor.tokenizer.chat_template = "{% if messages[1] %}{{ raise_exception('users only') }}{% endif %}"
    with pytest.raises(UserError, match="MODEL=mine takes no answer to a user: users only; SET=chat_template=f"):
        closing_token(actor)


def test_pieces_of_a_step_are_the_step(policy: Policies, monkeypatch: pytest.MonkeyPatch) -> None:
    """Solutions of different lengths weigh by their tokens, however the rows are cut."""
    texts = [f"{i}+{i}=<<{i}+{i}={2 * i}>>{2 * i}" + "\n#### 5" * (i % 4) for i in range(1, 17)]
    problems = [Problem(f"Ann has {i} cards. How many?", text, "5") for i, text in enumerate(texts)]
    weights, told = [], []
    for tokens in (10**6, 300, 1):
        monkeypatch.setattr("staleharness.language.supervised_learning.TOKENS", tokens)
        actor, lines = policy(), list[str]()
        prompts = [list(ids) for ids in actor.tokenizer([p.question for p in problems])["input_ids"]]
        passes, whole = [], actor.score
        monkeypatch.setattr(actor, "score", lambda *a, w=whole, p=passes, **k: p.append(len(a[0])) or w(*a, **k))
        train_policy(actor, PromptSet(problems, prompts, 0), 2, 2e-5, lines.append)
        assert sum(passes) == 32
        assert {10**6: max(passes) == 16, 300: 1 < max(passes) < 16, 1: max(passes) == 1}[tokens]
        told.append(lines)
        weights.append(torch.cat([p.detach().flatten() for p in actor.parameters.values()]))
    assert told[0] == told[1] == told[2]
    assert torch.allclose(weights[0], weights[1], atol=1e-6) and torch.allclose(weights[0], weights[2], atol=1e-6)


def test_fine_tuning_stops_at_the_requested_step(spec: Specs, own_cache: Path) -> None:
    steps: list[int] = []

    def stop_at_2() -> bool:
        steps.append(len(steps))
        return len(steps) == 2

    cancellation.listen(stop_at_2)
    try:
        with pytest.raises(Interrupted, match=r"before the first phase \(warm start: step 2 of 50"):
            simulation_of(spec(warm_start=50))
    finally:
        cancellation.listen(lambda: False)
    left = {path.suffix for path in (own_cache / "taught").iterdir()}
    assert left == {".lock", ".checkpoints"}
    simulation_of(spec(warm_start=3))  # what was left behind is in nobody's way
    simulation_of(spec(warm_start=50))  # and gone once it has served
    assert {path.suffix for path in (own_cache / "taught").iterdir()} == {".lock", ""}


class Crash(BaseException):
    """Between two steps, without a word."""


@pytest.mark.parametrize("asked", [True, False], ids=["asked to end", "killed"])
def test_fine_tuning_resumes_to_the_same_bits(
    policy: Policies, asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised_learning, "SAVE_EVERY", 3600.0 if asked else 0.0)

    def weights(actor: CausalLM) -> Tensor:
        return torch.cat([p.detach().flatten() for p in actor.parameters.values()])

    def stopped_at_4(line: str) -> None:
        if line.startswith("warm start: step 4"):
            raise Interrupted("asked to") if asked else Crash

    straight, first, second = policy(), policy(), policy()
    whole, rest = list[str](), list[str]()
    train_policy(straight, one_example(straight), 7, 2e-3, whole.append)
    with pytest.raises((Interrupted, Crash)):
        train_policy(first, one_example(first), 7, 2e-3, stopped_at_4, tmp_path)
    train_policy(second, one_example(second), 7, 2e-3, rest.append, tmp_path)
    assert rest == whole[4 if asked else 3 :]
    assert torch.equal(weights(second), weights(straight))
    assert not torch.equal(weights(first), weights(straight))


def test_waiting_for_another_process_can_be_stopped(own_cache: Path) -> None:
    def make(folder: Path) -> None:
        with pytest.raises(Interrupted, match="waiting for it, which another process is building"):
            build_once("kind", "it", make)  # a second hold of the lock, as another process would have
        folder.mkdir()

    cancellation.listen(lambda: True)
    try:
        assert build_once("kind", "it", make).is_dir()
    finally:
        cancellation.listen(lambda: False)


def test_every_run_begins_with_the_same_weights_made_once(
    spec: Specs, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def start(**settings: Any) -> torch.Tensor:
        policy: Any = simulation_of(spec(**settings)).policy
        return torch.cat([p.detach().flatten() for p in policy.parameters.values()])

    plain, first = start(), start(warm_start=3)
    assert not torch.equal(plain, first)
    assert torch.equal(first, start(warm_start=3, seed=7, algorithm="spo"))
    folders = [path for path in (own_cache / "taught").iterdir() if path.is_dir()]
    assert len(folders) == 1
    assert not torch.equal(first, start(warm_start=4))
    # Adam's first step is the learning rate, up or down, wherever there is a gradient
    assert float((start(warm_start=1, warm_start_rate=1e-3) - plain).abs().max()) == pytest.approx(1e-3, rel=1e-3)


@needs_compiler
def test_either_learner_begins_with_weights_of_its_own(spec: Specs, own_cache: Path) -> None:
    # they round differently: whichever is first must not teach for the other
    for learner in ("torch", "native"):
        simulation_of(spec(warm_start=3, learner=learner))
    weights = [path.read_bytes() for path in (own_cache / "taught").glob("*/model.safetensors")]
    assert len(set(weights)) == 2


def test_adapters_begin_on_the_fine_tuned_weights(spec: Specs) -> None:
    full: Any = simulation_of(spec(warm_start=3)).policy
    lora: Any = simulation_of(spec(warm_start=3, versions="lora", lora_rank=2)).policy
    name = "model.layers.0.mlp.down_proj.weight"
    base = dict(lora.model.named_parameters())[f"base_model.model.{name}".replace("proj.", "proj.base_layer.")]
    assert torch.equal(base, full.parameters[name])


def test_hard_problems_are_left_out(spec: Specs) -> None:
    easy: Any = simulation_of(spec(most_steps=1))
    assert {problem.steps for problem in easy.test.problems} == {1}
    everything: Any = simulation_of(spec())
    assert {problem.steps for problem in everything.test.problems} == {1, 2, 3}


@pytest.mark.parametrize(
    ("solution", "steps"),
    [
        (NATALIA, 2),
        ("He hit 100*2/5=40.\n75/3=25.\nThat is 40+25 = <<40+25=65>>65.\n#### 65", 3),  # one annotation
        ("48 and 24 are <<48+24=72>>72.\nA third is <<72/3=24>>24.\n#### 24", 2),  # no equation
        ("She has half of 48.\n#### 24", 1),  # neither
    ],
)
def test_steps_are_calculations(solution: str, steps: int) -> None:
    assert Problem("", solution, "").steps == steps


def test_the_first_problems_of_the_training_split(spec: Specs) -> None:
    few: Any = simulation_of(spec(training_problems=5, most_steps=2, warm_start=1))
    all_short: Any = simulation_of(spec(most_steps=2, warm_start=1))
    assert few.generator.sampler.prompts.problems == all_short.generator.sampler.prompts.problems[:5]
    assert few.test.problems == all_short.test.problems  # tests are not touched
    with pytest.raises(UserError, match="training_problems=-1 must not be negative"):
        spec(training_problems=-1)


def test_missing_training_problems_are_warned_of(spec: Specs) -> None:
    run: Any = simulation_of(spec(training_problems=10**6))
    count = len(run.generator.sampler.prompts.problems)
    assert f"training_problems=1000000, but there are only {count}: all are trained on" in run.warnings


def test_a_warm_start_teaches_what_the_run_trains_on(spec: Specs, lessons: list[list[Problem]]) -> None:
    for settings in ({}, {"most_steps": 1}, {"most_steps": 2, "training_problems": 6}):
        run: Any = simulation_of(spec(warm_start=3, **settings))
        assert lessons[-1] == run.generator.sampler.prompts.problems


@pytest.mark.parametrize(
    ("solution", "answer", "equations"),
    [
        (NATALIA, "72", "48/2=24\n48+24=72\n#### 72"),
        ("She pays $1200 - $200 = $<<1200-200=1000>>1000.\n#### 1,000", "1000", "1200-200=1000\n#### 1000"),
        ("Half is <<3*.5=1.50>>1.5.\n#### 1.5", "1.5", "3*.5=1.50\n#### 1.5"),
        ("35+20 = <<35+20=55>>55, and 75-55 = 20.\n#### 20", "20", None),  # the last one is not annotated
        ("3+4=7\n#### 7", "7", None),  # no annotation
        ("Half is <<8/2>>4.\n#### 4", "4", None),  # without a result
    ],
)
def test_solutions_in_equations(solution: str, answer: str, equations: str | None) -> None:
    found = Problem("How many?", solution, answer).in_equations
    assert found == (equations and Problem("How many?", equations, answer))


def test_a_warm_start_text_equations(spec: Specs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Teaches the annotated calculations alone, and counts the solutions without."""
    words = sys.modules[find_env("word-problems")[1].__module__]
    plain = {split: list(words.problems(split)) for split in ("train", "test")}

    def start(train: list[Problem], **settings: Any) -> tuple[torch.Tensor, list[str]]:
        monkeypatch.setattr(words, "problems", {**plain, "train": train}.__getitem__)
        run: Any = simulation_of(spec(warm_start=3, **settings))
        weights = torch.cat([p.detach().flatten() for p in run.policy.parameters.values()])
        return weights, [text for text in run.warnings if "annotate" in text]

    def annotate(problem: Problem) -> Problem:
        *steps, end = problem.solution.splitlines()
        return replace(problem, solution="\n".join([*[f"It is {step}<<{step}>>." for step in steps], end]))

    rows = [annotate(problem) for problem in plain["train"]]
    wanted, nothing = start(plain["train"][1:])
    found, said = start([plain["train"][0], *rows[1:]], warm_start_text="equations")
    assert torch.equal(found, wanted)
    assert not nothing
    assert said == [
        f"the warm start leaves out 1 of {len(rows)} training problems: they do not annotate the "
        "calculation of their answer"
    ]
    assert not torch.equal(start(rows[1:])[0], wanted)
    with pytest.raises(UserError, match=r"annotates the calculation of its answer.*SET=warm_start_text=solutions"):
        start(plain["train"], warm_start_text="equations")


def test_a_warm_start_on_the_problems_that_the_run_leaves_out(spec: Specs, lessons: list[list[Problem]]) -> None:
    words = sys.modules[find_env("word-problems")[1].__module__]
    every = list(words.problems("train"))
    for settings in ({"most_steps": 1}, {"training_problems": 10}, {"most_steps": 2, "training_problems": 10}):
        run: Any = simulation_of(spec(warm_start=3, warm_start_problems="others", **settings))
        trained = [problem.question for problem in run.generator.sampler.prompts.problems]
        assert lessons[-1] == [problem for problem in every if problem.question not in trained]
        assert 0 < len(lessons[-1]) < len(every)
    with pytest.raises(UserError, match="warm_start_problems=others needs problems that the run does not train on"):
        spec(warm_start=3, warm_start_problems="others")
    with pytest.raises(UserError, match=r"no problem is left .*=others, warm_start_most_steps=0, most_steps=3, "):
        simulation_of(spec(warm_start=3, warm_start_problems="others", most_steps=3))


@pytest.mark.parametrize("which", ["same", "others"])
def test_a_warm_start_on_short_solutions(which: str, spec: Specs, lessons: list[list[Problem]]) -> None:
    some: Any = {"warm_start": 3, "warm_start_problems": which, "training_problems": 100}
    simulation_of(spec(**some))
    simulation_of(spec(**some, warm_start_most_steps=2))
    assert lessons[1] == [problem for problem in lessons[0] if problem.steps <= 2]
    assert 0 < len(lessons[1]) < len(lessons[0])
    with pytest.raises(UserError, match="warm_start_most_steps=-1 must not be negative"):
        spec(warm_start_most_steps=-1)


def test_lessons_with_long_prompts_are_counted(spec: Specs, lessons: list[list[Problem]]) -> None:
    run: Any = simulation_of(
        spec(warm_start=1, warm_start_problems="others", most_steps=1, prompt_tokens=24, long_prompts="drop")
    )
    (remark,) = [text for text in run.warnings if "warm start" in text]
    words = sys.modules[find_env("word-problems")[1].__module__]
    others = [problem for problem in words.problems("train") if problem.steps > 1]
    assert remark == (
        f"the warm start leaves out {len(others) - len(lessons[0])} of {len(others)} training problems: their prompts "
        "are longer than prompt_tokens=24"
    )
    assert 0 < len(lessons[0]) < len(others)


def test_no_problem_within_most_steps_is_refused(spec: Specs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Problem, "steps", property(lambda self: 9))
    with pytest.raises(UserError, match="every train problem takes more than most_steps=2 steps; raise it"):
        simulation_of(spec(most_steps=2))
