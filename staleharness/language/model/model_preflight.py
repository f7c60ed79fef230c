"""Checks of a language model's files, and the size of its versions, before anything is loaded or written."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...base.files import read_json
from ...base.parsing import user_path
from ...base.system_info import memory
from ...errors import UserError, one_line, shorten
from ..spec import LanguageSpec
from .gguf_conversion import gguf_of, header

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def base_of(model: str) -> str | None:
    """Return the base model, a folder or a hub name, of `MODEL=<folder with a PEFT adapter>`; None for other models.

    Raises `UserError` for an adapter without safetensors, or whose settings name no base model.
    """
    folder = user_path(model)
    if not (folder / CONFIG).is_file() or (folder / "config.json").is_file():
        return None
    if not (folder / WEIGHTS).is_file():
        raise UserError(f"MODEL={model} is an adapter without {WEIGHTS}; other formats can run code when loaded")
    try:
        base = read_json(folder / CONFIG)["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError):
        base = None
    if not isinstance(base, str) or not base or user_path(base).resolve() == folder.resolve():
        raise UserError(f"MODEL={model} is an adapter whose {CONFIG} names no base model (base_model_name_or_path)")
    return base


CAUSAL = ("CausalLM", "LMHead")  # how transformers names the classes of causal language models
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size")
LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
SHARE = 0.8  # of a machine's memory that policy versions may take
MIXTURES = ("qwen2_moe", "qwen3_moe")  # types of models whose routers `routing` knows
NO_ADAPTER = re.compile(r"embed|lm_head|token_embd|^output")  # weights that LoRA leaves alone, by name


def check_model(spec: LanguageSpec) -> None:
    """Raise `UserError` where `spec.model` is not a causal language model with a tokenizer."""
    if (file := gguf_of(spec.model)) is not None:
        header(spec.model, file)  # raises where the file cannot be read
        return
    if (base := base_of(spec.model)) is not None:
        check_model(replace(spec, model=base))
        return
    folder = user_path(spec.model)
    if not folder.is_dir():
        _check_hub(spec.model)
        return
    config = _json(folder / "config.json", spec.model)
    architectures = config.get("architectures") or []
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise UserError(f"MODEL={spec.model} has a config.json whose architectures are no list of names")
    if not is_causal(architectures):
        raise UserError(f"MODEL={spec.model} is a {architectures[0]}, which is not a causal language model")
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise UserError(f"MODEL={spec.model} has no tokenizer (none of {', '.join(TOKENIZERS)})")
    if not any(folder.glob("*.safetensors")):
        raise UserError(f"MODEL={spec.model} has no weights in safetensors; other formats can run code when loaded")
    _check_sizes(spec.model, config, shapes_in(folder))


def is_mixture(model_type: str) -> bool:
    """Return whether a model of this type is a mixture of experts whose routing can be seen."""
    return model_type in MIXTURES


def replay_refusal(spec: LanguageSpec, model_type: str) -> str:
    """Return the message on routing replay of a model that has no routing."""
    return (
        f"routing_replay={spec.routing_replay} is for a mixture of experts ({', '.join(MIXTURES)}), but the model of "
        f"{spec.env if not spec.model else spec.model} is {model_type}; leave it out, or use ENV=word-problems-moe"
    )


def check_replay(spec: LanguageSpec, mixture: bool) -> None:
    """Raise `UserError` where routing cannot be replayed; `mixture`: the task's own model has experts. The type of a
    model on the hub is known only when it is loaded."""
    if spec.gradient_checkpointing:
        raise UserError(
            f"routing_replay={spec.routing_replay}: gradient_checkpointing computes layers again, without the "
            "recorded experts; give gradient_checkpointing=false"
        )
    if not spec.model:
        if not mixture:
            raise UserError(replay_refusal(spec, "dense"))
        return
    folder = user_path(base_of(spec.model) or spec.model)
    if (folder / "config.json").is_file():
        kind = str(_json(folder / "config.json", spec.model).get("model_type", "of no type"))
        if not is_mixture(kind):
            raise UserError(replay_refusal(spec, kind))


def check_fits(spec: LanguageSpec) -> None:
    """Raise `UserError` where the versions of `spec.model` do not fit into this machine's memory; the size of a model
    on the hub is not known before it is loaded."""
    file, folder = gguf_of(spec.model), user_path(base_of(spec.model) or spec.model)
    shapes = shapes_in(folder) if file is None else header(spec.model, file).shapes
    check_memory(spec, trainable(shapes, spec), memory())


def is_causal(architectures: list[str]) -> bool:
    """Return whether a model is causal by the names in its settings; one without names may be."""
    return not architectures or any(part in name for name in architectures for part in CAUSAL)


def shapes_in(folder: Path) -> list[tuple[str, list[int]]]:
    """Return (name, shape) of the weights in a folder, from the headers of their files."""
    return [(name, shape) for file in _weight_files(folder) for name, shape, _ in _header(file)]


def _weight_files(folder: Path) -> list[Path]:
    """Return the files of weights that transformers reads from a folder; others hold the same ones under other names,
    such as consolidated.safetensors. Raises `UserError` for an index that is none."""
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if single.is_file():
        return [single]
    if not index.is_file():
        return sorted(folder.glob("*.safetensors"))
    names = _json(index, str(folder)).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise UserError(f"{index} names no files of weights: its weight_map is no table of file names")
    files = [folder / name for name in sorted(set(names.values()))]
    if absent := [file for file in files if not file.is_file()]:
        raise UserError(f"{index} names {shorten(absent[0].name)}, which is not there; fetch it again")
    return files


def types_in(folder: Path) -> list[tuple[str, str]]:
    """Return (name, type as in safetensors, such as `F32` or `I8`) of the weights in a folder."""
    return [(name, kind) for file in _weight_files(folder) for name, _, kind in _header(file)]


def rounding(model: str) -> list[str]:
    """Return a warning where a folder's config.json says that its weights are stored in fewer bits."""
    file = user_path(model) / "config.json"
    settings = _json(file, model).get("quantization_config") if file.is_file() else None
    if not settings:
        return []
    kind = settings.get("quant_method", "unknown") if isinstance(settings, dict) else "unknown"
    return [
        f"training began from rounded weights: those of {model} are stored as {shorten(str(kind))} and were dequantised"
    ]


def trainable(shapes: Iterable[tuple[str, Sequence[int]]], spec: LanguageSpec) -> int:
    """Return how many numbers one version has, for a model whose weights have these names and shapes."""
    if spec.versions == "full":
        return sum(math.prod(shape) for _, shape in shapes)
    layers = [s for name, s in shapes if len(s) == 2 and not NO_ADAPTER.search(name)]
    return sum(spec.lora_rank * (rows + columns) for rows, columns in layers)


def is_chat(model: str) -> bool:
    """Return whether a model is tuned for chat, by its name and, where its files are here, by its chat template."""
    if (base := base_of(model)) is not None:
        return is_chat(base)
    name = (gguf_of(model) or Path(model)).name
    if not re.search(r"(?i)(^|[-_./])(instruct|chat|it)([-_./]|$)", name):
        return False
    return has_template(model) is not False


def has_template(model: str) -> bool | None:
    """Return whether a model's files hold a chat template, as those of many base models do; None: not here."""
    file = gguf_of(model)
    if file is not None:
        return header(model, file).chat
    folder = user_path(model)
    if not folder.is_dir():
        return None
    settings = folder / "tokenizer_config.json"
    return (folder / "chat_template.jinja").is_file() or (
        settings.is_file() and '"chat_template"' in settings.read_text(encoding="utf-8", errors="replace")
    )


def check_memory(spec: LanguageSpec, numbers: int, total: int) -> None:
    """Raise `UserError` where `spec.capacity` versions of `numbers` float32 do not fit into `total` bytes of memory."""
    size = 4 * numbers
    if spec.capacity * size <= SHARE * total:
        return
    max_versions = int(SHARE * total // size)
    instead = "" if spec.versions == "lora" else ", or keep adapters only: SET=versions=lora"
    fits = f"give K={max_versions} or less" if max_versions else "not even one fits"
    raise UserError(
        f"K={spec.capacity} versions of {size / 1e9:.2g} GB each need {spec.capacity * size / 1e9:.3g} GB of memory, "
        f"and this machine has {total / 1e9:.3g} GB; {fits}{instead}"
    )


def _check_sizes(model: str, config: dict[str, Any], shapes: Sequence[tuple[str, Sequence[int]]]) -> None:
    """Raise `UserError` where sizes in a model's config.json are invalid or disagree with its weights."""
    for name in SIZES:
        size = config.get(name)
        if size is not None and (type(size) is not int or size < 1):
            raise UserError(f"MODEL={model} has a config.json whose {name} is {shorten(repr(size))}, not a size")
    layers = {match[1] for name, _ in shapes if (match := LAYER.search(name))}
    if layers and (config.get("num_hidden_layers") or len(layers)) != len(layers):
        raise UserError(
            f"MODEL={model} has weights of {len(layers)} layers, where its config.json makes "
            f"num_hidden_layers={config['num_hidden_layers']}"
        )
    key = "word_embed_proj_dim" if config.get("word_embed_proj_dim") else "hidden_size"  # OPT may embed narrower
    for name, shape in shapes:
        width = config.get(key)
        if width and name.endswith("embed_tokens.weight") and list(shape[1:]) != [width]:
            raise UserError(
                f"MODEL={model} has {name} of shape {list(shape)}, where its config.json makes {key}={width}"
            )


def _check_hub(name: str) -> None:
    """Raise `UserError` where the hub's cache and the network do not have a model's smallest file."""
    try:
        hub_file(name, "config.json", "model")
    except Exception as error:  # from the hub's library, and from the one with which it reaches the network
        reason = shorten(one_line(error) or type(error).__name__, 120)
        raise UserError(
            f"MODEL={name} is not a folder here, and the hub does not give a model of that name ({reason}); "
            "without network give a folder that holds config.json, tokenizer and *.safetensors"
        ) from error


def hub_file(repo: str, name: str, repo_type: str) -> str:
    """Return the path of a file of the hub, from its local cache or fetched. Raises whatever the hub's library does."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    try:
        return hf_hub_download(repo, name, repo_type=repo_type, local_files_only=True)
    except FileNotFoundError:
        # asked once: a download asks six times, which takes half a minute without network
        get_hf_file_metadata(hf_hub_url(repo, name, repo_type=repo_type))
        return hf_hub_download(repo, name, repo_type=repo_type)


def _header(file: Path) -> list[tuple[str, list[int], str]]:
    """Return (name, shape, type) of the tensors in a safetensors file. Raises `UserError` for a file that is not one or
    is incomplete."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "np") as tensors:
            slices = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118 (no mapping)
            return [(name, part.get_shape(), part.get_dtype()) for name, part in slices.items()]
    except SafetensorError as error:
        if "incomplete metadata" in str(error):
            raise UserError(f"{file} is cut short, or longer than its header says; fetch it again") from error
        raise UserError(f"{file} is not a safetensors file") from error


def _json(path: Path, model: str) -> dict[str, Any]:
    try:
        content = read_json(path)
    except OSError as error:
        raise UserError(f"MODEL={model} has no config.json that can be read") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no settings of a model")
    return content
