"""Labels of methods as readers see them (`vaco[delta=0.8]` is VACO, δ = 0.8), and the options in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..base.parsing import PluginChoice, format_value, parse_choice, read_toml, without_n
from ..errors import UserError
from ..store.stored_run import StoredRun

METHODS: dict[str, str] = read_toml(Path(__file__).with_name("method_names.toml"))
OPTIONS = {"delta": "δ", "rho_bar": "ρ̄", "learning_rate": "learning rate", "kl_coef": "κ", "clip_high": "upper clip"}


def display_label(label: str, names: Mapping[str, str] | None = None) -> str:
    """Label as readers see it; `names` {label: text} take precedence."""
    names = names or {}
    if names.get(label):
        return names[label]
    if label.endswith(")"):  # of a curve, with its lag model: `vaco[delta=0.8] (oldest)`
        plain, _, model = label.rpartition(" (")
        return f"{display_label(plain, names)} ({model}"
    plain, separator, n = label.partition(" N=")
    if names.get(plain):
        text = names[plain]
    elif "[" not in plain:
        text = METHODS.get(plain, plain)
    else:
        try:
            choice = parse_choice(plain)
        except UserError:  # words, such as the title of a width control
            return label
        options = (option_text(k, v) for k, v in choice.options.items())
        text = ", ".join([METHODS.get(choice.name, choice.name), *options])
    return f"{text}, N = {n}" if separator else text


def option_text(name: str, value: object) -> str:
    """Option as readers see it: `δ = 0.8`, `trust region none`."""
    name = OPTIONS.get(name, name.replace("_", " "))
    if isinstance(value, str):
        return f"{name} {value.removeprefix('fixed:')}"
    return f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {format_value(value)}"


def option_values(runs: Iterable[StoredRun], option: str) -> dict[str, Any]:
    """Map each label to the value of an option in its runs; labels whose method lacks it are left out.

    Raises `UserError` where no run has it, or runs of one label differ in it.
    """
    values_of: dict[str, set[Any]] = {}
    for run in runs:
        spec = run.record["spec"]
        value = spec.get("hyper", {}).get(option, spec.get(option))
        if value is not None:
            values_of.setdefault(run.label, set()).add(tuple(value) if isinstance(value, list) else value)
    if not values_of:
        raise UserError(f"option={option!r}: no run here has it")
    if mixed := [label for label, values in values_of.items() if len(values) > 1]:
        raise UserError(f"option={option!r} differs among runs of {', '.join(sorted(mixed))}")
    return {label: values.pop() for label, values in values_of.items()}


def ordered_values(values: Iterable[Any]) -> list[Any]:
    """Sort distinct values of an option: numbers, then all others by their text."""
    return sorted(set(values), key=lambda v: (False, v, "") if isinstance(v, int | float) else (True, 0, str(v)))


def value_text(value: Any) -> str:
    """Write a value of an option, or several, numbers in as few digits as they need."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(value_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def without_options(label: str, *options: str) -> str:
    """Remove options, and with them the forward lag, from a label, to name a line over those options."""
    if not options:
        return label
    plain = without_n(label)
    if "[" not in plain:
        return plain
    choice = parse_choice(plain)
    return PluginChoice(choice.name, {k: v for k, v in choice.options.items() if k not in options}).label
