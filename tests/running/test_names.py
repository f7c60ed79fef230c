"""One folder per question: what is asked of another version of an environment is another question."""

from __future__ import annotations

import pytest

from staleharness.running.plan import plan
from staleharness.store.study import ask


def name(env: str, **asked: str) -> str:
    return plan(ask(env=env, algo="spo", seeds="1", **asked)).name


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ("Hopper", "Hopper-K1-quick"), ("hopper-v5", "Hopper-K1-quick"), ("Hopper-v4", "Hopper-v4-K1-quick"),
        ("CartPole", "CartPole-K1-quick"), ("CartPole-v1", "CartPole-K1-quick"),
        ("CartPole-v0", "CartPole-v0-K1-quick"), ("Ant,Hopper", "Ant+Hopper-K1-quick"),
        ("Hopper-v5,Hopper-v4", "Hopper+Hopper-v4-K1-quick"), ("bit-chain", "bit-chain-K1-quick"),
    ],
)  # fmt: skip
def test_the_usual_version_of_an_environment_is_not_named_and_any_other_is(env: str, expected: str) -> None:
    assert name(env) == expected


def test_other_settings_are_another_question() -> None:
    asked = [name("Hopper"), name("Hopper", lag="fixed:0"), name("Hopper", settings="learning_rate=1e-5")]
    assert len(set(asked)) == 3 and all(each.startswith("Hopper-K1-quick") for each in asked)
