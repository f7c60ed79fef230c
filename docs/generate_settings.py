"""The page of all run settings, docs/settings.md, from the specs of the three kinds of task.

    python docs/generate_settings.py

A setting's meaning is the comment beside it. A test asserts that the committed page is what this writes.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fields import descriptions, option_text

from staleharness.base.parsing import PluginChoice
from staleharness.base.table_formatting import markdown_table
from staleharness.chain.spec import ChainSpec
from staleharness.control.spec import ControlSpec
from staleharness.language.spec import LanguageSpec
from staleharness.spec import COMMON, RunSpec

PAGE = Path(__file__).resolve().parent / "settings.md"
KINDS: dict[str, type[RunSpec]] = {"control": ControlSpec, "language": LanguageSpec, "chain": ChainSpec}
DIGESTS = {"model_digest", "data_digest", "decoder_digest", "start_digest", "env_digest"}  # computed, not set by users
UNITS = {
    "steps": "below",
    "epochs": "passes",
    "minibatches": "gradient steps",
    "evaluations": "points",
    "num_envs": "environments",
    "num_steps": "steps",
    "hidden": "units",
    "evaluation_episodes": "episodes",
    "final_episodes": "episodes",
    "value_clip": "value",
    "most_steps": "steps",
    "training_problems": "problems",
    "warm_start_most_steps": "steps",
    "warm_start": "optimiser steps",
    "prompts": "prompts",
    "completions": "completions",
    "prompt_tokens": "tokens",
    "completion_tokens": "tokens",
    "decode_batch": "completions",
    "micro_batch": "completions",
    "evaluation_problems": "problems",
    "evaluation_samples": "completions",
    "horizon": "decisions",
    "batch": "episodes",
    "share": "share",
    "start": "probability",
    "threads": "threads",
}
INTRO = """<!-- Made by docs/generate_settings.py from the specs: edit the comments there. -->

# Settings of a run

Everything here is set with `SET=name=value,...` (in Python `settings={"name": value}`), or for one method alone inside
its brackets: `ALGO='ppo_clip[learning_rate=1e-4]'`. `STEPS=`, `DEVICE=`, `MODEL=`, `DATA=` and, for minibatches on
tokens, `N=` have names of their own. The environment, the algorithm with [its options](methods.md), the capacity
`K=`, one lag model [`LAG=`](staleness.md) and the seeds are axes of a sweep, not settings.

Every setting is part of a run's identity: another value is another run. `PRESET=` sets several at once
([below](#presets)), some presets also the lag model or a method's options; values you give override the preset's."""


def page() -> str:
    common = [f for f in settings(RunSpec) if not f.name.startswith("_")]
    parts = [INTRO, "## Every kind of task"]
    rows = []
    for field in common:
        defaults = [default_text(default_of(kind, field.name)) for kind in KINDS.values()]
        rows.append((f"`{field.name}`", unit(field.name), *defaults, words(RunSpec, field)))
    parts.append(markdown_table(("setting", "unit", *KINDS, "meaning"), rows))
    names = {field.name for field in common}
    for name, kind in KINDS.items():
        parts.append(f"## {name.capitalize()}")
        parts.append(f"`steps` counts {kind.unit}.")
        fields_of_kind = [f for f in settings(kind) if f.name not in names | DIGESTS]
        cells = [
            (f"`{f.name}`", "–" if f.default == "" else unit(f.name), default_text(f.default), words(kind, f))
            for f in fields_of_kind
        ]
        parts.append(markdown_table(("setting", "unit", "default", "meaning"), cells))
    parts += ["## Presets", presets()]
    return "\n\n".join(parts) + "\n"


def settings(kind: type[RunSpec]) -> list[Field[Any]]:
    """Fields that are no axis of a sweep."""
    return [f for f in fields(kind) if f.name not in COMMON]


def default_of(kind: type[RunSpec], name: str) -> Any:
    return next(f.default for f in fields(kind) if f.name == name)


def words(kind: type[RunSpec], field: Field[Any]) -> str:
    """Description of the field in the last class that has one, and its possible values."""
    text = next(c for cls in kind.__mro__ if (c := descriptions(cls).get(field.name)))
    hint = get_type_hints(kind)[field.name]
    values = " · ".join(f"`{value}`" for value in get_args(hint)) if get_origin(hint) is Literal else ""
    return f"{text}: {values}" if values else text


def unit(name: str) -> str:
    return UNITS.get(name, "–")


def presets() -> str:
    """Settings of each preset, by kind."""
    rows = []
    for name, kind in KINDS.items():
        for preset, preset_settings in kind.presets.items():
            sets = [f"{k}={option_text(v)}" for k, v in preset_settings.items() if k != "hyper"]
            sets += [
                PluginChoice(method, options).label for method, options in preset_settings.get("hyper", {}).items()
            ]
            rows.append((f"`{preset}`", name, ", ".join(f"`{setting}`" for setting in sets) or "the defaults"))
    return markdown_table(("preset", "kind", "sets"), rows)


def default_text(value: Any) -> str:
    if value is MISSING or value == "":
        return "–"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return option_text(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
