"""The warm start: what is learnt from, the same bits twice, done once however many ask."""

from __future__ import annotations

import dataclasses
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from needs import hint
from tiny_model import tiny_config

pytest.importorskip("transformers", reason=hint("llm"))

from transformers import AutoModelForCausalLM, AutoTokenizer

from staleharness.language.supervised_learning import NO_LABEL, WarmStart, encode, initial, train, warm_start
from staleharness.language.word_tokenizer import word_tokenizer

pytestmark = pytest.mark.usefixtures("own_cache")

SETTINGS = WarmStart(steps=12, batch_size=8, learning_rate=2e-2)


def example(index: int) -> tuple[str, str]:
    """Counting on by one: learnt in a dozen steps by a model of a few thousand parameters."""
    return f"after {index % 5} comes\n", f"{index % 5 + 1}\n"


@pytest.fixture
def tokenizer() -> Any:
    return word_tokenizer(("".join(example(i)) for i in range(5)), range(7))


@pytest.fixture
def config(tokenizer: Any) -> Any:
    return one_layer(tokenizer)


def one_layer(tokenizer: Any) -> Any:
    sizes = {"num_hidden_layers": 1, "num_key_value_heads": 2, "max_position_embeddings": 32, "initializer_range": 0.1}
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    return tiny_config(len(tokenizer), tie_word_embeddings=True, **sizes, **ends)


def equal_tensors(a: Any, b: Any) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_only_completions_and_their_end_have_labels(tokenizer: Any) -> None:
    batch = encode([("after 1 comes\n", "2\n"), ("1", "2")], tokenizer)
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    after, one, comes, line, two = tokenizer("after 1 comes\n2").input_ids
    x = NO_LABEL
    assert batch["input_ids"].tolist() == [
        [after, one, comes, line, two, line, end],
        [one, two, end, pad, pad, pad, pad],
    ]
    assert batch["labels"].tolist() == [[x, x, x, x, two, line, end], [x, two, end, x, x, x, x]]
    assert batch["attention_mask"].tolist() == [[1] * 7, [1, 1, 1, 0, 0, 0, 0]]


def test_the_first_loss_is_the_mean_over_completion_tokens(tokenizer: Any, config: Any) -> None:
    losses: list[float] = []
    train(example, tokenizer, config, SETTINGS, lambda step, loss: losses.append(loss))
    model = initial(config, SETTINGS.seed)
    total, count = 0.0, 0
    for index in range(SETTINGS.batch_size):  # row by row, token by token, without padding
        prompt, completion = example(index)
        given = tokenizer(prompt).input_ids
        ids = [*given, *tokenizer(completion).input_ids, tokenizer.eos_token_id]
        logits = model(torch.tensor([ids])).logits[0].double()
        for t in range(len(given), len(ids)):
            total -= (logits[t - 1, ids[t]] - logits[t - 1].logsumexp(0)).item()
            count += 1
    assert math.isclose(losses[0], total / count, rel_tol=1e-5)
    assert losses[-1] < losses[0] / 2


def test_every_example_is_seen_once_in_order(tokenizer: Any, config: Any) -> None:
    seen: list[int] = []

    def count(index: int) -> tuple[str, str]:
        seen.append(index)
        return example(index)

    train(count, tokenizer, config, dataclasses.replace(SETTINGS, steps=3))
    assert seen == list(range(3 * SETTINGS.batch_size))


def test_the_same_settings_give_the_same_bits(tokenizer: Any, config: Any) -> None:
    first = train(example, tokenizer, config, SETTINGS)
    torch.manual_seed(1)  # other draws of the process do not matter, and are left alone
    before = torch.get_rng_state()
    assert equal_tensors(first, train(example, tokenizer, config, SETTINGS))
    assert torch.equal(before, torch.get_rng_state())
    assert not equal_tensors(first, train(example, tokenizer, config, dataclasses.replace(SETTINGS, seed=1)))


def test_the_learning_rate_rises_then_falls_linearly_to_zero(
    tokenizer: Any, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[float] = []
    step = torch.optim.AdamW.step

    def record(self: torch.optim.AdamW, *args: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return step(self, *args)

    monkeypatch.setattr(torch.optim.AdamW, "step", record)
    train(example, tokenizer, config, WarmStart(steps=40, batch_size=2, learning_rate=1.0))
    assert rates[:3] == [0.5, 1.0, pytest.approx(38 / 39)]
    assert rates[-1] == pytest.approx(1 / 39)
    assert sorted(rates[1:], reverse=True) == rates[1:]


def test_the_model_is_built_once_and_loads_as_usual(tokenizer: Any, config: Any, own_cache: Path) -> None:
    steps: list[int] = []
    first = warm_start(example, tokenizer, config, SETTINGS, [], lambda step, loss: steps.append(step))
    again = warm_start(example, tokenizer, config, SETTINGS, [], lambda step, loss: steps.append(step))
    assert first == again
    assert steps == list(range(1, SETTINGS.steps + 1))
    assert own_cache in first.parents
    loaded = AutoModelForCausalLM.from_pretrained(first)
    assert equal_tensors(loaded, train(example, tokenizer, config, SETTINGS))
    assert AutoTokenizer.from_pretrained(first).get_vocab() == tokenizer.get_vocab()
    assert (first / "model.safetensors").is_file()


def test_a_partial_folder_of_a_killed_process_is_not_used(
    tokenizer: Any, config: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    quick = dataclasses.replace(SETTINGS, steps=1)
    folder = warm_start(example, tokenizer, config, quick, [])
    folder.rename(folder.with_suffix(".unfinished"))
    (folder.with_suffix(".unfinished") / "model.safetensors").write_bytes(b"half")
    assert warm_start(example, tokenizer, config, quick, []) == folder
    assert (folder / "model.safetensors").stat().st_size > 1000
    assert sorted(path.suffix for path in folder.parent.iterdir()) == ["", ".lock"]
    assert capfd.readouterr() == ("", "")  # nothing is printed


def test_settings_architecture_and_sources_name_the_folder(tokenizer: Any, tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text("one")
    quick = dataclasses.replace(SETTINGS, steps=1)
    folders = [warm_start(example, tokenizer, one_layer(tokenizer), quick, [source])]
    other = dataclasses.replace(quick, learning_rate=1e-3)
    folders.append(warm_start(example, tokenizer, one_layer(tokenizer), other, [source]))
    wider = one_layer(tokenizer)
    wider.hidden_size = 32
    folders.append(warm_start(example, tokenizer, wider, quick, [source]))
    source.write_text("two")
    folders.append(warm_start(example, tokenizer, one_layer(tokenizer), quick, [source]))
    assert len(set(folders)) == 4


def test_the_folder_depends_on_the_meaning_of_sources_alone(tokenizer: Any, config: Any, tmp_path: Path) -> None:
    versions = {
        "first.py": "import os\n\ndef example(i):\n    return str(i), str(i + 1)\n",
        "moved.py": "from pathlib import Path\ndef example( i ):  # counts on\n\treturn (str(i),\n str(i+1))\n",
        "other.py": "def example(i):\n    return str(i), str(i + 2)\n",
    }
    quick, folders = dataclasses.replace(SETTINGS, steps=1), []
    for name, text in versions.items():
        (tmp_path / name).write_text(text)
        folders.append(warm_start(example, tokenizer, config, quick, [tmp_path / name]))
    assert folders[0] == folders[1] != folders[2]


def test_the_number_of_threads_of_the_caller_does_not_matter(tokenizer: Any, config: Any) -> None:
    seen: list[int] = []

    def progress(step: int, loss: float) -> None:
        seen.append(torch.get_num_threads())

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        folder = warm_start(example, tokenizer, config, SETTINGS, [], progress)
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        assert warm_start(example, tokenizer, config, SETTINGS, []) == folder
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}


def test_an_interrupted_warm_start_leaves_nothing_behind(tokenizer: Any, config: Any, own_cache: Path) -> None:
    def give_up(step: int, loss: float) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        warm_start(example, tokenizer, config, SETTINGS, [], give_up)
    assert [path.suffix for path in (own_cache / "warm_start").iterdir()] == [".lock"]
    assert warm_start(example, tokenizer, config, SETTINGS, []).is_dir()  # and the lock is free


def test_concurrent_callers_build_once(tokenizer: Any) -> None:
    """Threads contend for the lock as processes do: a flock belongs to whoever opened the file."""
    barrier, steps = threading.Barrier(2), []

    def ask() -> Path:
        barrier.wait(600)
        return warm_start(example, tokenizer, one_layer(tokenizer), SETTINGS, [], lambda *at: steps.append(at))

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(ask), pool.submit(ask)
        assert first.result(600) == second.result(600)
    assert len(steps) == SETTINGS.steps
