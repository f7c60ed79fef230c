"""Arguments of the functions for notebooks: checked, and converted to what would be typed on the command line."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import replace
from numbers import Integral
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any

from ..base.parsing import is_empty, split_list, user_path, whole_number
from ..base.plugin_files import add_user_path, drop_failures
from ..base.plugins import forget_changed_files
from ..base.typed_values import plain_value
from ..errors import UserError, shorten
from ..study import SweepRequest, sweep_request


def refuse_empty(**arguments: Any) -> None:
    """Raise `UserError` for an empty string, which means neither the default nor all nor none."""
    for name, value in arguments.items():
        if isinstance(value, str) and is_empty(value):
            raise UserError(f"{name}={value!r} is empty; give a value, or leave it out for the default")


def check_folder(name: str, value: Any) -> None:
    """Raise `UserError` for a value that is not a path."""
    refuse_empty(**{name: value})
    if not isinstance(value, (str, PathLike)):
        raise UserError(f"{name}={shorten(repr(value))} is not a folder; give a path, such as 'results'")


def check_types(progress: Any, **texts: Any) -> None:
    """Raise `UserError` for a text that is not a string, and for a progress callback that cannot be called."""
    for name, text in texts.items():
        if not isinstance(text, str):
            raise UserError(f"{name}={shorten(repr(text))} is not a string")
    if progress is not None and not callable(progress):
        raise UserError(f"progress={shorten(repr(progress))} is not a function that takes one event")


def text_of(value: Any) -> str | None:
    """Argument as typed on the command line."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return ",".join(map(str, value)) if isinstance(value, Iterable) else str(value)


def seed_list(values: Iterable[int]) -> list[int]:
    try:
        seeds = [operator.index(seed) for seed in values]
    except TypeError:  # not iterable, or not of whole numbers
        seeds = []
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise UserError(
            f"SEEDS={shorten(repr(seeds or values))} is neither a number of seeds nor a list of different seeds, "
            "none of them negative"
        )
    return seeds


def parse_arguments(
    *, seeds: Any, settings: Any, scale: Any, spec: Any, steps: Any, model: Any, data: Any, device: Any, **axes: Any
) -> tuple[SweepRequest, list[int] | None]:
    """Return the request in the arguments of `plan`, and its seeds where they are listed. Raises `UserError`."""
    scalars = {"steps": text_of(steps), "model": text_of(model), "data": text_of(data), "device": text_of(device)}
    if isinstance(seeds, str) and ("," in seeds or len(seeds.split()) > 1):
        seeds = [whole_number(seed, "SEEDS") for seed in split_list(seeds)]
    seed_numbers = None if seeds is None or isinstance(seeds, (int, Integral, str)) else seed_list(seeds)
    named_settings = settings if isinstance(settings, Mapping) else {}
    if not isinstance(settings, (str, Mapping, NoneType)) or not all(isinstance(key, str) for key in named_settings):
        raise UserError(f"SET={shorten(repr(settings))} is neither a mapping of settings nor 'name=value,...'")
    request = sweep_request(
        **{name: text_of(value) for name, value in axes.items()},
        **scalars,
        seeds=text_of(seeds) if seed_numbers is None else None,
        spec_file=text_of(spec),
        scale=str(scale),
        settings=settings if isinstance(settings, str) else None,
    )
    others = {key: plain_value(value) for key, value in named_settings.items() if scalars.get(key) is None}
    return replace(request, settings={**request.settings, **others}), seed_numbers


def load_plugins(plugin: str | Path | Iterable[str | Path] | None) -> None:
    """Make the plugins of files or folders known to this process and its workers; forget those of earlier calls that
    could not be loaded, and what files registered that were edited since. Raises `UserError`."""
    drop_failures()
    forget_changed_files()
    if plugin is None:
        return
    refuse_empty(plugin=plugin)
    if isinstance(plugin, str):
        is_path = user_path(plugin).exists()  # a path may have commas, spaces and brackets in it
        plugin = [plugin] if is_path else split_list(plugin)
    for path in plugin if isinstance(plugin, Iterable) else [plugin]:
        add_user_path(str(path))
