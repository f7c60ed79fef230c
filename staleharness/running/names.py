"""What methods and sweeps are called: one label per method however it was typed, one folder per question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from ..algorithm import Algorithm
from ..base.files import safe_name
from ..base.options import values_before
from ..base.parsing import PluginChoice
from ..errors import UserError
from ..store.study import Question


def label(algorithm: Algorithm, own: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return what a method is called in tables: its name, the options that differ from their defaults (one that was
    added `later`: from `before`), and settings of its `own`. One method has one label, however it was typed."""
    default = {**hyper(type(algorithm)()), **values_before(algorithm)}
    changed = {key: value for key, value in hyper(algorithm).items() if value != default[key]}
    return PluginChoice(algorithm.name, {**changed, **own}).label


def hyper(algorithm: Algorithm) -> dict[str, Any]:
    """All hyper-parameters of the method."""
    return {f.name: getattr(algorithm, f.name) for f in fields(algorithm)}


def folder_name(question: Question, envs: Mapping[str, str], capacities: Sequence[int], usual: str) -> str:
    """Of the report. Readable, and different for different questions (seeds and algorithms may grow in place).

    envs: id -> what it is called in short, of each. usual: the lag model of the preset.
    """
    text = f"{'+'.join(envs.values())}-K{'+'.join(map(str, capacities))}-{question.preset}"
    rest: dict[str, Any] = {"settings": dict(question.settings), "lag": question.lag or usual}
    rest |= {"forward": list(question.forward)} if question.forward else {}
    said = rest == {"settings": {}, "lag": usual}
    return safe_name(text, [list(envs), list(capacities), rest], said)


def title(question: Question, envs: Sequence[str], capacities: Sequence[int]) -> str:
    """The study's own question, or the grid in words."""
    grid = f"{', '.join(envs)}, K = {', '.join(map(str, capacities))} ({question.preset})"
    return question.question or grid


def no_duplicates(values: Sequence[str], what: str) -> None:
    """Raise `UserError` where an axis of the grid names something twice."""
    twice = sorted(value for value, count in Counter(values).items() if count > 1)
    if twice:
        raise UserError(f"{what} names {', '.join(twice)} more than once")
