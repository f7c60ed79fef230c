"""An actor of language in its own process: what a plugin draws there is a function of the actor and of its group."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from language_fixtures import Specs

from staleharness.language import completion_sources
from staleharness.language.completion_sources import LanguageActor
from staleharness.language.spec import LanguageSpec


class NumberDrawn(Exception):
    """A number was drawn."""


def _draws(spec: LanguageSpec, number: int, nth: int) -> tuple[float, float]:
    """Return the numbers that a plugin draws at the construction of an actor and in its `nth` group."""
    feed: Any = SimpleNamespace(timing=SimpleNamespace(fetch=0))
    actor: Any = LanguageActor(spec, number)
    with pytest.raises(NumberDrawn) as caught:
        actor.make(0, nth, feed)
    return actor.sampler.number, caught.value.args[0]


def test_draws_depend_on_the_actor_and_its_group(spec: Specs, monkeypatch: pytest.MonkeyPatch) -> None:
    def problem(group: int) -> None:
        raise NumberDrawn(random.random())

    def prepare(spec: LanguageSpec, task: Any) -> Any:
        sampler = SimpleNamespace(number=random.random(), problem=problem, use_copies=lambda: None)
        return SimpleNamespace(sampler=sampler)

    monkeypatch.setattr(completion_sources, "prepare", prepare)
    before = random.getstate()
    first, again = _draws(spec(), 0, 0), _draws(spec(), 0, 0)
    other, later = _draws(spec(), 1, 0), _draws(spec(), 0, 1)
    random.setstate(before)
    assert first == again
    assert not set(first) & set(other)
    assert later[0] == first[0] and later[1] != first[1]
