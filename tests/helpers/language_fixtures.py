"""A Qwen2 of a few thousand parameters, saved to disk and loaded through the path that users take."""

from __future__ import annotations

import copy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from needs import hint
from tiny_model import write_model
from whole_runs import one_thread as one_thread

pytest.importorskip("transformers", reason=hint("llm"))

from staleharness.errors import UserError
from staleharness.language import task
from staleharness.language.answer_grading import Grade
from staleharness.language.model import causal_lm_policy
from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.model.model_loading import load
from staleharness.language.spec import LanguageSpec
from staleharness.task import find_env

Specs = Callable[..., LanguageSpec]
Policies = Callable[..., CausalLM]


def error_line(call: Callable[[], object]) -> str:
    """Return the one line of the `UserError` that a call raises."""
    with pytest.raises(UserError) as caught:
        call()
    line = str(caught.value)
    assert "\n" not in line and len(line) < 1000
    return line


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model and tokenizer."""
    folder = tmp_path_factory.mktemp("tiny")
    write_model(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a mixture of experts, two of six for each token, and a tokenizer."""
    folder = tmp_path_factory.mktemp("mixture")
    sizes = {"moe_intermediate_size": 8, "num_experts": 6, "num_experts_per_tok": 2, "head_dim": 8}
    write_model(folder, kind="Qwen3Moe", norm_topk_prob=True, **sizes)
    return folder


@pytest.fixture
def mixture(spec: Specs, tiny_mixture: Path) -> Specs:
    """A small run on that mixture; keyword arguments change settings."""
    return lambda **settings: spec(**{"model": str(tiny_mixture), **settings})


@pytest.fixture
def model(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model that a test may break."""
    return Path(shutil.copytree(tiny, tmp_path / "model"))


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("STALEHARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def grades_by_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Completions of even length are right: a model of random weights solves nothing."""
    monkeypatch.setattr(task, "grade", lambda text, *_: Grade(len(text) % 2 == 0, len(text) > 0))


PROBLEMS = 256  # of word-problems, for training: every run turns all of them into tokens


@pytest.fixture
def few_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[find_env("word-problems")[1].__module__]
    all_problems = module.problems
    monkeypatch.setattr(module, "problems", lambda split: all_problems(split)[:PROBLEMS])


@pytest.fixture
def spec(tiny: Path, few_problems: None) -> Specs:
    """A small run on that model; keyword arguments change settings."""

    def make(**settings: Any) -> LanguageSpec:
        small: dict[str, Any] = {
            "env": "word-problems",
            "algorithm": "ppo_clip",
            "model": str(tiny),
            "steps": 4,
            "prompts": 4,
            "completions": 3,
            "prompt_tokens": 64,
            "completion_tokens": 10,
            "learning_rate": 1e-2,
            "evaluations": 1,
            "evaluation_problems": 4,
        }
        return LanguageSpec.from_dict({**small, **settings})

    return make


@pytest.fixture(scope="session")
def tiny_parts(tiny: Path) -> tuple[Any, Any]:
    """Tokenizer and model: a copy takes a tenth of the time of loading."""
    return load(str(tiny))


@pytest.fixture
def policy(spec: Specs, tiny: Path, tiny_parts: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> Policies:
    find = lambda source: copy.deepcopy(tiny_parts) if source == str(tiny) else load(source)  # noqa: E731
    monkeypatch.setattr(causal_lm_policy, "load", find)
    return lambda **settings: CausalLM(str(tiny), spec(**settings))
