"""Models, tokenizers and problems that do not belong together: one line, and no run with made-up weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from language_fixtures import Specs, error_line
from tiny_model import write_model, write_problems

import staleharness as sh
from staleharness.errors import UserError
from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.model.model_preflight import shapes_in
from staleharness.language.problem import Problem
from staleharness.language.simulation import LanguageSimulation
from staleharness.language.spec import LanguageSpec
from staleharness.language.task import LanguageTask
from staleharness.task import find_env
from staleharness.training.loop import simulation_of

LAYER = "model.layers.1.mlp.up_proj.weight"


def rewrite(model: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    from safetensors.torch import load_file, save_file

    file = model / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file, metadata={"format": "pt"})


def refusal(spec: LanguageSpec) -> str:
    """Return the line that refuses it."""
    return error_line(lambda: simulation_of(spec))


def test_weights_that_are_missing_are_not_made_up(model: Path, spec: Specs) -> None:
    rewrite(model, lambda weights: weights.pop(LAYER))
    assert f"lacks {LAYER}, which its config.json asks for" in refusal(spec(model=str(model)))
    rewrite(model, lambda weights: [weights.pop(name) for name in list(weights) if "layers.0" in name])
    assert " more weights, which its config.json asks for" in refusal(spec(model=str(model)))


def test_weights_of_another_shape(model: Path, spec: Specs) -> None:
    rewrite(model, lambda weights: weights.update({LAYER: weights[LAYER][:5].contiguous()}))
    line = refusal(spec(model=str(model)))
    assert f"has {LAYER} of shape [5, 16], where its config.json makes it [24, 16]" in line


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_weights_that_are_not_finite_are_refused(model: Path, spec: Specs, value: float) -> None:
    rewrite(model, lambda weights: weights[LAYER].__setitem__((3, 4), value))
    assert f"has weights that are not finite, in {LAYER}; fetch or save it again" in refusal(spec(model=str(model)))


def test_weights_that_the_model_has_no_place_for(model: Path, spec: Specs) -> None:
    """Such as biases of another config.json; masks that earlier releases saved are none."""
    biases = {f"model.layers.{i}.self_attn.o_proj.bias": torch.ones(16) for i in range(2)}
    masks = {"model.layers.0.self_attn.masked_bias": torch.ones(1)}
    rewrite(model, lambda weights: weights.update(masks))
    simulation_of(spec(model=str(model)))
    rewrite(model, lambda weights: weights.update(biases))
    line = refusal(spec(model=str(model)))
    assert f"has {', '.join(biases)}, for which its config.json (qwen2) makes no place; give the config.json" in line


def test_a_head_that_differs_from_the_embedding_is_kept(model: Path, tmp_path: Path, spec: Specs) -> None:
    """Under a config.json that ties them, also in a saved copy."""
    heads = []
    rewrite(model, lambda weights: weights.update({"lm_head.weight": 2 * weights["model.embed_tokens.weight"]}))
    for folder in (model, tmp_path / "copy"):
        policy = CausalLM(str(folder), spec())
        heads.append(policy.model.lm_head.weight.detach().clone())
        assert torch.equal(heads[-1], 2 * policy.model.model.embed_tokens.weight)
        assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is (folder == model)
        (tmp_path / "copy").mkdir(exist_ok=True)
        policy.save(tmp_path / "copy")
    assert torch.equal(*heads)


def test_weights_as_integers_need_settings_that_explain_them(model: Path, spec: Specs) -> None:
    rewrite(model, lambda weights: weights.update({LAYER: (10 * weights[LAYER]).to(torch.int8)}))
    line = refusal(spec(model=str(model)))
    assert f"has {LAYER} as integers (I8), and its config.json has no quantization_config" in line
    assert line.endswith("give weights in float32, bfloat16 or float16")


def test_weights_that_were_rounded_are_warned_of(model: Path, spec: Specs) -> None:
    quantised = "training began from rounded weights"
    assert not [line for line in simulation_of(spec(model=str(model))).warnings if quantised in line]
    config = json.loads((model / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (model / "config.json").write_text(json.dumps(config))
    (line,) = [line for line in simulation_of(spec(model=str(model))).warnings if quantised in line]
    assert f"those of {model} are stored as fp8 and were dequantised" in line


def test_a_file_of_weights_that_did_not_arrive_whole(model: Path) -> None:
    file = model / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(UserError, match=r"is cut short, or longer than its header says; fetch it again"):
        shapes_in(model)
    file.write_bytes(whole)
    assert shapes_in(model)


def test_a_padding_token_without_a_vector_is_never_used(model: Path, tiny: Path, spec: Specs) -> None:
    """Happens after `add_special_tokens({"pad_token": ...})` without new rows in the embedding."""
    tokenizer = CausalLM(str(model), spec()).tokenizer
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(model)
    loaded = CausalLM(str(model), spec())
    assert loaded.tokenizer.pad_token_id == loaded.vocabulary
    assert loaded.pad == loaded.end[0]
    given, plain = ([record.metrics["reward"] for record in simulation_of(spec(model=str(m)))] for m in (model, tiny))
    assert given == plain


def test_tokens_that_the_model_does_not_know(model: Path, spec: Specs) -> None:
    tokenizer = CausalLM(str(model), spec()).tokenizer
    tokenizer.add_tokens(["cards"])
    tokenizer.save_pretrained(model)
    line = refusal(spec(model=str(model)))
    assert f"gives token {len(tokenizer) - 1} ('cards'), but the model has only {len(tokenizer) - 1} tokens" in line


def test_rows_beyond_the_positions_of_the_model_are_warned_of(spec: Specs) -> None:
    """64 positions."""
    fits, beyond = (simulation_of(spec(completion_tokens=n)).warnings for n in (8, 60))
    assert not [line for line in fits if "positions" in line]
    (line,) = [line for line in beyond if "positions" in line]
    assert "completion_tokens=60 that is more than the 64 positions of the model" in line


@pytest.fixture
def finite(model: Path, spec: Specs) -> Path:
    """A GPT-2 with a table of 64 positions."""
    import transformers

    words = CausalLM(str(model), spec()).tokenizer
    config = transformers.GPT2Config(
        vocab_size=len(words), n_positions=64, n_embd=16, n_layer=1, n_head=2, eos_token_id=1, bos_token_id=1
    )
    shutil.rmtree(model)
    with torch.random.fork_rng():
        transformers.GPT2LMHeadModel(config).save_pretrained(model)
    words.save_pretrained(model)
    return model


def test_where_positions_end_a_longer_row_is_refused(finite: Path, spec: Specs) -> None:
    line = refusal(spec(model=str(finite), completion_tokens=60))
    most = int(line.rpartition("completion_tokens to ")[2].split()[0])
    fits = spec(model=str(finite), completion_tokens=most, steps=1)
    assert [record.metrics["phase"] for record in simulation_of(fits)] == [0]


def test_weights_stored_in_by_out_are_rounded_by_outputs(finite: Path, spec: Specs) -> None:
    """GPT-2's: an output's weights are a column there, a row of `torch.nn.Linear`."""
    simulation = simulation_of(spec(model=str(finite), mismatch="int8", steps=1))
    assert isinstance(simulation, LanguageSimulation) and simulation.sampler.copies is not None
    name = "transformer.h.0.mlp.c_fc.weight"
    version = simulation.policy.snapshot(0, 0)
    weight, copy = version.tensors[name], simulation.sampler.copies.of(version).tensors[name]
    scale = weight.abs().amax(0) / 127
    assert weight.shape == (16, 64) and torch.equal(copy, (weight / scale).round() * scale)


@pytest.mark.usefixtures("own_cache")
def test_where_positions_end_longer_lessons_are_refused(
    finite: Path, spec: Specs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warm start reads whole solutions, however few tokens a completion may have."""
    task = find_env("word-problems")[1]
    solve = lambda question, steps: Problem(question, "3+2=5\n" * steps + "#### 5", "5")  # noqa: E731
    monkeypatch.setattr(task, "problems", lambda *_: [solve("3+2=", 1), solve("2+3=", 40)])
    small = {"model": str(finite), "evaluation_problems": 2, "prompt_format": "plain"}
    line = refusal(spec(**small, warm_start=1))
    assert "tokens in the warm start, which is more than the 64 positions of the model; leave long solutions" in line
    assert line.endswith("out with warm_start_most_steps (now any)")
    simulation_of(spec(**small, warm_start=1, warm_start_most_steps=1))
    simulation_of(spec(**small))


LONG_FACTORS = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "original_max_position_embeddings": 48}


@pytest.mark.parametrize(
    ("kind", "sizes", "rope", "alike"),
    [
        ("Llama", {}, {"rope_type": "dynamic", "factor": 2.0}, 64),
        ("Phi3", {"original_max_position_embeddings": 48}, {"rope_type": "longrope", **LONG_FACTORS}, 48),
        ("Llama", {}, {"type": "longrope", **LONG_FACTORS}, 48),
    ],
)
def test_rope_that_depends_on_the_longest_row_is_refused(
    tmp_path: Path, spec: Specs, kind: str, sizes: dict[str, Any], rope: dict[str, Any], alike: int
) -> None:
    write_model(tmp_path, kind=kind, **sizes, rope_parameters={"rope_theta": 10000.0, **rope})
    line = refusal(spec(model=str(tmp_path), completion_tokens=60))
    assert f"is more than {alike} positions, beyond which rope_type={rope.get('rope_type', 'longrope')} makes" in line
    most = int(line.rpartition("completion_tokens to ")[2].split()[0])
    assert not [w for w in simulation_of(spec(model=str(tmp_path), completion_tokens=most)).warnings if "position" in w]


@pytest.mark.parametrize("template", ["{{ raise_exception('give\na system prompt') }}", "{% for x in %}"])
def test_a_chat_template_that_fails(model: Path, spec: Specs, template: str) -> None:
    (model / "chat_template.jinja").write_text(template)
    line = refusal(spec(model=str(model), chat_template=True))
    assert "the chat template of MODEL=" in line and "SET=chat_template=false" in line


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("tiny-Instruct", "is a chat model: prompts go through its template; SET=chat_template=false for none"),
        ("mine", "has a chat template, which is not used, as its name does not say that it is a chat model"),
    ],
)
def test_a_chat_template_is_used_or_a_line_says_why_not(
    tiny: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, note: str
) -> None:
    model = Path(shutil.copytree(tiny, tmp_path / name))
    asked: dict[str, Any] = {"model": str(model), "decoder": "transformers"}
    assert LanguageTask.completed(asked) == asked and not caplog.text
    (model / "chat_template.jinja").write_text("{{ messages }}")
    found = LanguageTask.completed(asked)
    assert found.get("chat_template", False) is (name != "mine")
    assert note in caplog.text
    caplog.clear()
    write_problems(tmp_path)
    methods = ["ppo_clip[learning_rate=1e-3]", "spo[learning_rate=1e-3]"]
    for _ in range(2):  # each sweep says it, once
        sh.plan(env="gsm8k", algo=methods, model=str(model), data=str(tmp_path), settings={"completion_tokens": 8})
        assert len(caplog.messages) == 1 and note in caplog.text
        caplog.clear()
    asked["chat_template"] = False
    assert LanguageTask.completed(asked) == asked and not caplog.text


def test_a_warm_start_teaches_solutions_that_earn_reward(spec: Specs, own_cache: None) -> None:
    line = refusal(spec(warm_start=1, prompt_format="areal"))
    assert "warm_start cannot teach solutions that are graded as wrong" in line
    assert simulation_of(spec(warm_start=1, prompt_format="areal", extractor="flexible"))


@pytest.mark.parametrize(
    ("problems", "words"),
    [
        ([], 'ENV=word-problems: problems(spec, "train") returns no problem'),
        ([("How many?", "#### 2", "2")], 'ENV=word-problems: problems(spec, "train") returns a tuple, not a Problem'),
        (
            [Problem("How many?", "many\n#### many", "many")],
            "the answer 'many' to the train problem 'How many?' is not a number",
        ),
    ],
)
def test_problems_of_a_plugin_that_cannot_be_graded(
    spec: Specs, monkeypatch: pytest.MonkeyPatch, problems: list[Any], words: str
) -> None:
    family = find_env("word-problems")[1]
    assert issubclass(family, LanguageTask)
    monkeypatch.setattr(family, "problems", lambda *_: problems)
    assert words in refusal(spec())


def test_problems_are_checked_before_the_model_is_made(spec: Specs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of one's own may make its model from its problems."""
    family = find_env("word-problems")[1]
    assert issubclass(family, LanguageTask)
    monkeypatch.setattr(family, "problems", lambda *_: [])
    monkeypatch.setattr(family, "weights", lambda *_: pytest.fail("made a model"))
    assert "returns no problem" in refusal(spec())


@pytest.mark.parametrize("copies", [0, 1, 3])
def test_questions_of_both_splits_are_warned_of(
    spec: Specs, monkeypatch: pytest.MonkeyPatch, own_cache: None, copies: int
) -> None:
    family = find_env("word-problems")[1]
    assert issubclass(family, LanguageTask)
    all_problems = family.problems

    def problems(self: LanguageTask, spec: LanguageSpec, split: Any) -> list[Problem]:
        test = list(all_problems(self, spec, "test"))[:20]
        return test if split == "test" else [*all_problems(self, spec, split), *test[:copies], *test[:copies]]

    monkeypatch.setattr(family, "problems", problems)
    found = [line for line in simulation_of(spec()).warnings if "also trained on" in line]
    assert (
        found
        == {
            0: [],
            1: ["1 of 20 test questions is also trained on, so scores partly measure memory"],
            3: ["3 of 20 test questions are also trained on, so scores partly measure memory"],
        }[copies]
    )
    assert not [line for line in simulation_of(spec(training_problems=9)).warnings if "also trained on" in line]


def test_a_plugin_may_yield_its_problems(spec: Specs, monkeypatch: pytest.MonkeyPatch) -> None:
    family = find_env("word-problems")[1]
    assert issubclass(family, LanguageTask)
    all_problems = family.problems
    monkeypatch.setattr(family, "problems", lambda *arguments: iter(all_problems(*arguments)))
    assert simulation_of(spec()).test_size > 0


def test_missing_test_problems_are_warned_of(spec: Specs) -> None:
    count = len(simulation_of(spec()).test.problems)  # type: ignore[attr-defined]
    for asked, said in ((count, []), (count + 1, [f"but there are only {count} test problems"])):
        lines = simulation_of(spec(evaluation_problems=asked)).warnings
        found = [line.partition(", ")[2].partition(":")[0] for line in lines if "evaluation_problems=" in line]
        assert found == said


def test_prompts_lack_the_tokenizers_trailing_special_tokens(model: Path, spec: Specs) -> None:
    """A model that reads its end token, as with `add_eos_token`, has nothing left to say."""
    from tokenizers.processors import TemplateProcessing

    plain = CausalLM(str(model), spec())
    (ids,) = plain.tokens(["Ann has 3 cards."], special=True)
    tokenizer, first, end = plain.tokenizer, plain.tokenizer.unk_token, plain.tokenizer.eos_token
    known = [(token, tokenizer.convert_tokens_to_ids(token)) for token in (first, end)]
    for around, before in ((f"$A {end}", []), (f"{first} $A {end}", [known[0][1]]), (f"{end} $A", [known[1][1]])):
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=around, special_tokens=known)
        tokenizer.save_pretrained(model)
        loaded = CausalLM(str(model), spec())
        assert loaded.tokens(["Ann has 3 cards."], special=True) == [[*before, *ids]]
        assert loaded.tokens(["Ann has 3 cards."], special=False) == [ids]


@pytest.mark.parametrize(
    ("file", "text"),
    [("tokenizer.json", '{"version": "1.0"'), ("tokenizer.json", "{}"), ("tokenizer_config.json", "[1]")],
)
def test_a_tokenizer_that_is_broken(model: Path, spec: Specs, file: str, text: str) -> None:
    (model / file).write_text(text)
    assert "has no tokenizer that transformers can load" in refusal(spec(model=str(model)))
