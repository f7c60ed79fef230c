"""Folders of models that are damaged, or made to do harm: one line each, and nothing of theirs is executed."""

from __future__ import annotations

import builtins
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from language_fixtures import error_line
from tiny_model import write_model

from staleharness.errors import UserError
from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.model.model_loading import end_tokens, load
from staleharness.language.model.model_preflight import check_model
from staleharness.language.problem import Problem
from staleharness.language.prompt_formatting import find_prompt, tokenise_prompts
from staleharness.language.spec import LanguageSpec

HARM = "from pathlib import Path\nPath({!r}).touch()\nclass Config: ...\nclass Model: ...\nclass Words: ...\n"


def rewrite(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize("kind", ["qwen2", "of_nobody"])
@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_the_python_of_a_models_folder_never_runs(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, file: str
) -> None:
    touched = tmp_path / "touched"
    (model / "harm.py").write_text(HARM.format(str(touched)))
    names = {"AutoConfig": "harm.Config", "AutoModelForCausalLM": "harm.Model", "AutoTokenizer": ["harm.Words", None]}
    rewrite(model / "config.json", model_type=kind, auto_map=names)
    if file == "tokenizer_config.json":
        rewrite(model / file, auto_map=names, tokenizer_class="OfNobody")
    questions: list[str] = []

    def agree(question: str = "") -> str:
        questions.append(question)
        return "y"

    monkeypatch.setattr(builtins, "input", agree)
    if kind == "of_nobody":
        assert "has no usable config.json" in error_line(lambda: load(str(model)))
    else:
        try:
            load(str(model))
        except UserError as error:
            assert "\n" not in str(error)
    assert questions == [] and not touched.exists()


DAMAGED: dict[str, tuple[dict[str, Any], str, str]] = {
    "layers": ({"num_hidden_layers": 7}, "weights of 2 layers", "config.json"),
    "a width in words": ({"hidden_size": "x"}, "whose hidden_size is 'x'", "config.json"),
    "a width of millions": ({"hidden_size": 10**7}, "makes hidden_size=10000000", "asks for"),
    "no width": ({"hidden_size": 0}, "whose hidden_size is 0", ""),
    "heads that do not divide": ({"num_attention_heads": 7}, "", ""),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_config_is_one_line_wherever_it_is_read(model: Path, damage: str) -> None:
    changes, when_planned, when_loaded = DAMAGED[damage]
    rewrite(model / "config.json", **changes)
    if when_planned:
        assert when_planned in error_line(
            lambda: check_model(LanguageSpec(env="gsm8k", algorithm="ppo_clip", model=str(model)))
        )
    assert when_loaded in error_line(lambda: load(str(model)))


@pytest.mark.parametrize("eos", ["</s>", [2, "</s>"], 2.5, True, -1, {"id": 2}], ids=str)
def test_an_end_of_sequence_that_is_no_token_is_one_line(tiny_parts: tuple[Any, Any], eos: object) -> None:
    tokenizer, model = copy.deepcopy(tiny_parts)
    model.generation_config.eos_token_id = eos
    line = error_line(lambda: end_tokens(model, tokenizer))
    assert line.startswith("generation_config.json has the eos_token_id ")
    assert line.endswith("which is not a token id; give a whole number or a list of them")


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for i in range(10**9) %}x{% endfor %}", "takes no single turn of a user"),
        ("{{ messages.none.none }}", "takes no single turn of a user"),
        ("{{ 1 // 0 }}", "takes no single turn of a user"),
        ("{{ '\\ud800' }}", "takes no single turn of a user"),
        ("{{ 'x' * 10**16 }}", "takes no single turn of a user: MemoryError"),
        ("", "leaves out what a user says"),
        ("{{ messages[0].role }}", "leaves out what a user says"),
        ("{{ '' if '1' in messages[0].content else messages[0].content }}", "makes a prompt of no tokens"),
    ],
)
def test_a_chat_template_that_asks_nothing_is_one_line(tiny: Path, template: str, words: str) -> None:
    spec = LanguageSpec(env="gsm8k", algorithm="ppo_clip", model=str(tiny), chat_template=True)
    policy = CausalLM(str(tiny), spec)
    policy.tokenizer.chat_template = template
    problems = [Problem("1 + 1?", "2", "two\n#### 2")]
    assert words in error_line(lambda: tokenise_prompts(problems, find_prompt("plain"), (), policy, spec, "train"))


RECURRENT: dict[str, dict[str, Any]] = {
    "Mamba": {"state_size": 4, "time_step_rank": 2},
    "Lfm2": {"layer_types": ["conv", "full_attention"]},
    "RecurrentGemma": {},
    "Rwkv": {},
}


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_recurrent_model_is_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    write_model(tmp_path, kind=kind, **RECURRENT[kind])
    line = error_line(lambda: load(str(tmp_path)))
    assert "is recurrent in some layers (" in line and line.endswith("give a model with attention in all layers")
