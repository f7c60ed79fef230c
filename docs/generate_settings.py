"""The page of all run settings, docs/settings.md, from the specs of the three kinds of task.

    python docs/generate_settings.py

A setting's meaning is the comment beside it. A test asserts that the committed page is what this writes.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fields import comments, typed

from staleharness.base.parsing import PluginChoice
from staleharness.base.text import markdown_table
from staleharness.chain.spec import ChainSpec
from staleharness.control.spec import ControlSpec
from staleharness.language.spec import LanguageSpec
from staleharness.spec import COMMON, RunSpec

PAGE = Path(__file__).resolve().parent / "settings.md"
KINDS: dict[str, type[RunSpec]] = {"control": ControlSpec, "language": LanguageSpec, "chain": ChainSpec}
FOUND_OUT = {"model_digest", "data_digest", "decoder_digest"}  # nobody sets them
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
tokens, `N=` have names of their own. The environment, the algorithm with [its options](methods/README.md), the capacity
`K=`, the lag model [`LAG=`](staleness.md) and the seeds are axes of a sweep, not settings.

Every setting is part of a run's identity: another value is another run. `PRESET=` sets several at once
([below](#presets)), for some the lag model or a method's options, too; what is given beside it wins."""


def page() -> str:
    shared = [f for f in settings(RunSpec) if not f.name.startswith("_")]
    parts = [INTRO, "## Every kind of task"]
    rows = []
    for field in shared:
        defaults = [shown(default_of(kind, field.name)) for kind in KINDS.values()]
        rows.append((f"`{field.name}`", unit(field.name), *defaults, words(RunSpec, field)))
    parts.append(markdown_table(("setting", "unit", *KINDS, "meaning"), rows))
    known = {field.name for field in shared}
    for name, kind in KINDS.items():
        parts.append(f"## {name.capitalize()}")
        parts.append(f"`steps` counts {kind.unit}.")
        own = [f for f in settings(kind) if f.name not in known | FOUND_OUT]
        cells = [(f"`{f.name}`", unit(f.name), shown(f.default), words(kind, f)) for f in own]
        parts.append(markdown_table(("setting", "unit", "default", "meaning"), cells))
    parts += ["## Presets", presets()]
    return "\n\n".join(parts) + "\n"


def settings(kind: type[RunSpec]) -> list[Field[Any]]:
    """The fields that are no axis of a sweep."""
    return [f for f in fields(kind) if f.name not in COMMON]


def default_of(kind: type[RunSpec], name: str) -> Any:
    return next(f.default for f in fields(kind) if f.name == name)


def words(kind: type[RunSpec], field: Field[Any]) -> str:
    """The comment beside the field in the class that says it last, and the values that it takes."""
    said = next(c for cls in kind.__mro__ if (c := comments(cls).get(field.name)))
    hint = get_type_hints(kind)[field.name]
    values = " · ".join(f"`{value}`" for value in get_args(hint)) if get_origin(hint) is Literal else ""
    return f"{said}: {values}" if values else said


def unit(name: str) -> str:
    return UNITS.get(name, "–")


def presets() -> str:
    """What each preset sets, by kind."""
    rows = []
    for name, kind in KINDS.items():
        for preset, given in kind.presets.items():
            sets = [f"{k}={typed(v)}" for k, v in given.items() if k != "hyper"]
            sets += [PluginChoice(method, own).label for method, own in given.get("hyper", {}).items()]
            rows.append((f"`{preset}`", name, ", ".join(f"`{each}`" for each in sets) or "the defaults"))
    return markdown_table(("preset", "kind", "sets"), rows)


def shown(value: Any) -> str:
    if value is MISSING or value == "":
        return "–"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return typed(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
