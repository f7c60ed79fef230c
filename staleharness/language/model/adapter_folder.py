"""Folder with an adapter of PEFT as a model: its base model and its file of weights."""

from __future__ import annotations

from ...base.files import read_json, user_path
from ...errors import UserError

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
