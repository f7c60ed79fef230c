"""The model that a finished run keeps: a folder that transformers loads, whose completions are shown, and from which
another run starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Cli
from language_fixtures import Policies
from tiny_model import write_problems

import staleharness as sh
from staleharness.errors import UserError
from staleharness.language.simulation import greedy_answers
from staleharness.language.spec import LanguageSpec
from staleharness.language.task import LanguageTask
from staleharness.store.store import Store
from staleharness.store.stored_run import StoredRun
from staleharness.task import find_env

SMALL = {
    "prompts": 2,
    "completions": 2,
    "completion_tokens": 8,
    "prompt_tokens": 64,
    "evaluations": 1,
    "evaluation_problems": 3,
    "learning_rate": 0.01,
    "weight_decay": 0.1,  # so that weights move, whatever is answered
}


def trained(folder: Path, **changes: Any) -> StoredRun:
    (folder / "data").mkdir(exist_ok=True)
    write_problems(folder / "data")
    settings = {**SMALL, "data": str(folder / "data"), **changes}
    (run,) = sh.sweep(
        env="gsm8k", algo="ppo_clip", k=2, seeds=1, steps=2, settings=settings, out=folder / "results"
    ).stored_runs[-1:]
    return run


@pytest.mark.parametrize("versions", ["full", "lora"])
@pytest.mark.long
def test_transformers_loads_the_model_of_a_run(
    tiny: Path, tmp_path: Path, versions: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    run = trained(tmp_path, model=str(tiny), keep="last", versions=versions)
    folder = run.model()
    found = transformers.AutoModelForCausalLM.from_pretrained(folder)
    first = transformers.AutoModelForCausalLM.from_pretrained(tiny)
    assert transformers.AutoTokenizer.from_pretrained(folder)("Ann has 3")["input_ids"]
    moved = [n for (n, a), b in zip(found.named_parameters(), first.parameters(), strict=True) if not torch.equal(a, b)]
    assert (moved or versions == "lora") and sorted(found.state_dict()) == sorted(first.state_dict())
    code, out, err = cli("show", run.id, "--out", str(tmp_path / "results"), "--episodes", "2", "--json")
    assert code == 0, err
    answers = json.loads(out)["answers"]
    assert [a["question"] for a in answers] == [f"Ann has {i} cards. How many?" for i in (12, 13)]
    assert [float(a["correct"]) for a in answers] == run.record["scores"]["deterministic"]["returns"][:2]
    again = trained(tmp_path, start=str(run.path))
    assert again.spec["model"] == str(folder) and again.id != run.id
    monkeypatch.chdir(run.path.parent)
    settings = {**SMALL, "data": str(tmp_path / "data")}
    (typed,) = sh.plan(env="gsm8k", algo=f"ppo_clip[start={run.id}]", k=2, seeds=1, steps=2, settings=settings).runs
    assert (typed.spec.to_dict()["start"], typed.run_id) == (str(run.path), again.id)
    assert again.metrics()["untrained/deterministic"].iloc[0] == run.record["scores"]["deterministic"]["mean"]


def test_a_model_trained_on_a_gpu_answers_without_one(tiny: Path, tmp_path: Path) -> None:
    write_problems(tmp_path)
    spec = LanguageSpec.from_dict(
        {**SMALL, "env": "gsm8k", "algorithm": "ppo_clip", "capacity": 2, "data": str(tmp_path), "device": "cuda:7"}
    )
    (answer,) = greedy_answers(spec, find_env("gsm8k")[1](), tiny, 1)
    assert answer.question == "Ann has 12 cards. How many?"


def test_a_run_that_keeps_none_has_the_id_of_before_and_says_so(tiny: Path, tmp_path: Path) -> None:
    run = trained(tmp_path, model=str(tiny))
    settings = {**SMALL, "model": str(tiny), "data": str(tmp_path / "data"), "keep": "last"}
    plan = sh.plan(env="gsm8k", algo="ppo_clip", k=2, seeds=1, steps=2, settings=settings)
    assert plan.runs[0].run_id == run.id
    with pytest.raises(UserError, match=f"run {run.id} has kept no model; SET=keep=last keeps it"):
        run.model()
    with pytest.raises(UserError, match=r"start=nowhere is not a finished run \(there is no folder nowhere\)"):
        trained(tmp_path, start="nowhere")
    with pytest.raises(UserError, match="names the model; leave out MODEL="):
        trained(tmp_path, start=str(run.path), model=str(tiny))


def test_a_run_from_a_model_is_prompted_as_that_was(tiny: Path, tmp_path: Path) -> None:
    """Also graded by its rule, unless the new run names another, or its task grades itself."""
    prompts = {"prompt_format": "plain", "extractor": "last_number"}
    run = trained(tmp_path, model=str(tiny), keep="last", **prompts)
    task = find_env("gsm8k")[1]
    start = {"start": str(run.path)}
    settings = task.completed(start)
    assert {name: settings[name] for name in prompts} == prompts
    assert task.completed({**start, "prompt_format": "verl"})["prompt_format"] == "verl"
    assert task.completed({**start, "extractor": "strict"})["extractor"] == "strict"
    own = type("Own", (LanguageTask,), {"grade": lambda *_: None})
    assert "extractor" not in own.completed(start) and own.completed(start)["prompt_format"] == "plain"
    assert not prompts.keys() & task.completed({"model": str(tiny)}).keys()


def test_changed_files_of_a_kept_model_are_refused(tiny: Path, tmp_path: Path) -> None:
    run = trained(tmp_path, model=str(tiny), keep="last")
    folder = run.model()
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    with pytest.raises(UserError, match=r"model/config.json differs from the manifest of its run"):
        run.model()
    assert Store(tmp_path / "results").read(run.id) is not None, "its numbers are those that they were"
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match=r"model/config.json differs"):
        run.model()


def test_an_adapter_is_added_to_the_weights_that_are_kept(policy: Policies, tmp_path: Path) -> None:
    import transformers

    actor = policy(versions="lora")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for p in actor.parameters.values():
            p.data.normal_(std=0.3)
    ids = torch.arange(3, 9)[None]
    with torch.no_grad():
        expected = actor.model(ids).logits
        actor.save(tmp_path / "model")
        found = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")(ids).logits
    assert torch.allclose(found, expected, atol=1e-4) and expected.std() > 0.01
