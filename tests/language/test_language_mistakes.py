"""One line for each mistake, before anything is written."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from language_fixtures import Specs, error_line
from raising import raising
from tiny_model import write_model

from staleharness.errors import UserError
from staleharness.language import setup
from staleharness.language.model import model_preflight
from staleharness.language.model.model_preflight import check_memory, shapes_in, trainable
from staleharness.language.spec import LanguageSpec
from staleharness.language.task import LanguageTask
from staleharness.running.plan import plan
from staleharness.running.plan_execution import runner_for
from staleharness.store.store import Store
from staleharness.study import sweep_request
from staleharness.task import find_env
from staleharness.training.loop import simulation_of

ROWS = '{"question": "1 + 1?", "answer": "two\\n#### 2"}\n'


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for split in ("train", "test"):
        (folder / f"{split}.jsonl").write_text(ROWS)
    return folder


def refusal(**asked: Any) -> str:
    """Return the line that refuses it."""
    return error_line(lambda: plan(sweep_request(**{"env": "word-problems", "algo": "ppo_clip", **asked})))


PUBLISHED = Path(__file__).parents[2] / "results" / "reference" / "corrections_word_problems"


@pytest.mark.parametrize("package", ["transformers", "tokenizers", "safetensors"])
def test_a_missing_package_of_the_extra_is_one_line(package: str, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    """At planning, and where stored runs are shown or made again."""
    version = lambda name: None if name == package else "1"  # noqa: E731
    monkeypatch.setattr("staleharness.language.task.package_version", version)
    monkeypatch.setattr("staleharness.running.plan_execution.execute_plan", raising(AssertionError("it was started")))
    run = Store(PUBLISHED).read_all()[0].id
    for words in (
        ["sweep", "--env", "word-problems", "--dry"],
        ["verify", str(PUBLISHED), "--n", "1"],
        ["show", run, "--out", str(PUBLISHED)],
    ):
        code, _, errors = cli(*words)
        assert code == 2 and errors.startswith("staleharness: ENV=word-problems needs the extra llm: "), words


@pytest.mark.parametrize("settings", [{}, {"learner": "native"}, {"warm_start": 2}, {"model": ""}])
def test_a_cache_that_cannot_be_written_is_refused_first(
    settings: dict[str, Any], spec: Specs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STALEHARNESS_CACHE", str(tmp_path / "file" / "cache"))
    family = find_env("word-problems")[1]
    begin = lambda: family.check_here(spec(**settings))  # noqa: E731
    if settings == {"model": ""}:
        LanguageTask.check_here(spec(**settings))  # a task of one's own may name a model of the hub
    if settings:
        assert "file/cache cannot be written" in error_line(begin)
    else:
        begin()


def test_a_sound_question_is_planned(model: Path, data: Path) -> None:
    (run,) = plan(sweep_request(env="gsm8k", model=str(model), data=str(data), algo="ppo_clip", seeds="1")).runs
    assert isinstance(run.spec, LanguageSpec)
    assert len(run.spec.model_digest) == len(run.spec.data_digest) == 16


def test_other_files_under_the_same_name_are_another_run(model: Path, data: Path) -> None:
    def run_id() -> str:
        return (
            plan(sweep_request(env="gsm8k", model=str(model), data=str(data), algo="ppo_clip", seeds="1"))
            .runs[0]
            .run_id
        )

    first = run_id()
    assert run_id() == first
    (model / "generation_config.json").write_text("{}")
    second = run_id()
    (data / "notes.txt").write_text("other data")
    third = run_id()
    (data / "train.jsonl").write_text(ROWS.replace("1 + 1", "9 - 7"))
    assert len({first, second, third, run_id()}) == 4


def test_rows_are_read_again_once_their_file_is_another(model: Path, data: Path) -> None:
    question: dict[str, Any] = {"env": "gsm8k", "model": str(model), "data": str(data)}
    planned = plan(sweep_request(**question, algo="ppo_clip", seeds="1")).runs[0].spec
    assert isinstance(planned, LanguageSpec)
    task = find_env("gsm8k")[1]()
    assert isinstance(task, LanguageTask)
    assert task.problems(planned, "train")[0].question == "1 + 1?"
    assert task.problems(planned, "train") is task.problems(planned, "train")
    (data / "train.jsonl").write_text(ROWS.replace("1 + 1", "9 - 7"))
    assert task.problems(planned, "train")[0].question == "9 - 7?"
    (data / "train.jsonl").write_text("{broken")
    assert "line 1" in refusal(**question)


def test_a_model_without_tokenizer_weights_or_config(model: Path) -> None:
    for name, words in (
        ("model.safetensors", "no weights in safetensors"),
        ("tokenizer.json", "has no tokenizer"),
        ("config.json", "has no config.json"),
    ):
        (model / name).unlink()
        assert words in refusal(model=str(model))


@pytest.mark.parametrize(
    "header",
    [
        '{"x": 1}',
        "[1]",
        "1",
        '{"x": {"dtype": "F32"}}',
        '{"x": {"shape": "a"}}',
        '{"x": {"shape": [2, -1]}}',
        '{"x": {"shape": [1.5]}}',
        '{"x": ' + "[" * 100_000,
    ],
    ids=lambda header: header[:24],
)
def test_a_weights_file_with_a_header_that_is_none(model: Path, header: str) -> None:
    for start in (struct.pack("<Q", len(header)), b"PK\x03\x04 no length"):
        (model / "model.safetensors").write_bytes(start + header.encode())
        assert "model.safetensors is not a safetensors file" in refusal(model=str(model))


@pytest.mark.parametrize(
    "config, words",
    [
        ('{"architectures": ["BertForMaskedLM"]}', "is a BertForMaskedLM, which is not a causal language model"),
        ('{"architectures": 5}', "architectures are no list of names"),
        ("[5]", "holds no settings of a model"),
        ('{"architectures": [5]}', "architectures are no list of names"),
        ("[" * 100_000, "is not JSON"),
    ],
    ids=lambda text: text[:24],
)
def test_settings_of_a_model_that_are_none(model: Path, config: str, words: str) -> None:
    (model / "config.json").write_text(config)
    assert words in refusal(model=str(model))


def test_a_model_that_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", raising(OSError("no network")))
    line = refusal(model="Nobody/no-such-model")
    assert "is not a folder here" in line and "(no network)" in line
    assert "without network give a folder" in line


@pytest.mark.parametrize("env", ["word-problems", "word-problems-moe"])
def test_data_of_a_task_that_reads_none(env: str, data: Path) -> None:
    assert f"ENV={env} has its own problems and reads none; leave it out" in refusal(env=env, data=str(data))


def test_gsm8k_without_a_model(data: Path) -> None:
    assert "needs a model: MODEL=" in refusal(env="gsm8k", data=str(data))


def test_broken_rows_are_named_by_file_and_line(model: Path, tmp_path: Path) -> None:
    for n, (rows, words) in enumerate(
        {
            ROWS + "{broken\n": "line 2",
            ROWS + '{"question": "q", "answer": "no marker 3"}\n': "####",
            "": "train.jsonl",
        }.items()
    ):
        folder = tmp_path / f"data{n}"
        folder.mkdir()
        (folder / "train.jsonl").write_text(rows)
        (folder / "test.jsonl").write_text(ROWS)
        line = refusal(env="gsm8k", model=str(model), data=str(folder))
        assert words in line
        assert "train.jsonl" in line


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"settings": "completions=1"}, "give at least 2, or baseline=none"),
        ({"n": "5"}, "STEPS=96 is not a whole number of generation rounds of 5 optimiser steps; give 95 or 100"),
        ({"env": "Hopper", "n": "4"}, "N counts minibatches per generation round of a language task"),
        ({"env": "Hopper", "lag": "inflight:8"}, "Hopper-v5 cannot"),
        ({"lag": "inflight:0"}, "at least 1"),
        ({"settings": "prompt_format=verll"}, "did you mean 'verl'?"),
        ({"settings": "extractor=strickt"}, "did you mean 'strict'?"),
        ({"settings": "num_envs=4"}, "unknown option 'num_envs' of word-problems"),
        ({"settings": "aggregation=mean"}, "is not one of token-mean"),
        ({"preset": "papper"}, "did you mean 'paper'?"),
        ({"settings": "lora_rank=0"}, "must be positive"),
    ],
)
def test_a_mistake_gets_one_line(asked: dict[str, str], words: str) -> None:
    assert words in refusal(**asked)


def test_versions_beyond_memory_are_refused_with_the_largest_k(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, where they are to run; they can be planned for other machines, and be read wherever they have run."""
    size = 4 * trainable(shapes_in(model), LanguageSpec.from_dict({"env": "e", "algorithm": "a"}))
    store = Store(tmp_path / "out")
    asked = {"env": "word-problems", "algo": "ppo_clip", "model": str(model)}
    fits, large = plan(sweep_request(**asked, k="8")), plan(sweep_request(**asked, k="9"))
    for module in (model_preflight, setup):
        monkeypatch.setattr(module, "memory", lambda: 10 * size)
    assert runner_for(fits, store, jobs="1").capacity == 1
    for begin in (lambda: runner_for(large, store), lambda: simulation_of(large.runs[0].spec)):
        with pytest.raises(UserError, match=r"K=9 versions of .* and this machine has .*; give K=8 or less"):
            begin()
    monkeypatch.setattr(Store, "is_done", lambda store, run_id: True)
    assert runner_for(large, store, jobs="1").capacity == 1


def test_the_size_of_a_version_is_that_of_the_loaded_model(tiny: Path, policy: Any) -> None:
    for kind in ("full", "lora"):
        actor = policy(versions=kind, lora_rank=4)
        assert trainable(shapes_in(tiny), actor.spec) == actor.size


def test_weights_are_counted_as_transformers_reads_them(model: Path) -> None:
    """Once, where they are there under a second name, and of the shards that the index names."""
    single, shard = model / "model.safetensors", model / "model-00001-of-00001.safetensors"
    shapes = shapes_in(model)
    shutil.copy(single, model / "consolidated.safetensors")
    assert shapes_in(model) == shapes
    single.rename(shard)
    index = model / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: shard.name for name, _ in shapes}}))
    assert shapes_in(model) == shapes
    shard.unlink()
    assert f"index.json names {shard.name}, which is not there" in refusal(model=str(model))
    index.write_text('{"weight_map": 5}')
    assert "its weight_map is no table of file names" in refusal(model=str(model))


def test_sizes_without_a_value_are_no_mistake(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    absent = {"intermediate_size": None, "num_hidden_layers": None}
    (model / "config.json").write_text(json.dumps({**config, **absent}))
    assert plan(sweep_request(env="word-problems", algo="ppo_clip", model=str(model))).runs


def test_an_embedding_may_be_narrower_than_the_layers(tmp_path: Path) -> None:
    """OPT-350m's is."""
    write_model(tmp_path, kind="OPT", ffn_dim=24, word_embed_proj_dim=8, do_layer_norm_before=False)
    asked: dict[str, Any] = {"env": "word-problems", "algo": "ppo_clip", "model": str(tmp_path)}
    assert plan(sweep_request(**asked)).runs
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "word_embed_proj_dim": 12}))
    assert "of shape [30, 8], where its config.json makes word_embed_proj_dim=12" in refusal(**asked)


def test_memory_is_counted_in_float32() -> None:
    spec = LanguageSpec.from_dict({"env": "e", "algorithm": "a", "capacity": 4})
    check_memory(spec, 1_000_000, 20_000_000)
    with pytest.raises(UserError, match="not even one fits"):
        check_memory(spec, 1_000_000, 4_000_000)
    with pytest.raises(UserError, match="SET=versions=lora"):
        check_memory(spec, 1_000_000, 15_000_000)


def test_actors_that_race_on_a_gpu_are_refused() -> None:
    line = refusal(k="2", lag="async", settings="device=cuda")
    assert "LAG=async" in line and "acts on the CPU, where its replay is bit-identical; use DEVICE=cpu" in line
