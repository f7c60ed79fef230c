"""One folder per question: what is asked of another version of an environment is another question."""

from __future__ import annotations

import pytest

from staleharness.base.files import safe_name
from staleharness.running.plan import plan, report_name
from staleharness.study import sweep_request


def name(env: str, **asked: str) -> str:
    return plan(sweep_request(env=env, algo="spo", seeds="1", **asked)).name


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ("Hopper", "Hopper-K1-quick"),
        ("hopper-v5", "Hopper-K1-quick"),
        ("Hopper-v4", "Hopper-v4-K1-quick"),
        ("CartPole", "CartPole-K1-quick"),
        ("CartPole-v1", "CartPole-K1-quick"),
        ("CartPole-v0", "CartPole-v0-K1-quick"),
        ("Ant,Hopper", "Ant+Hopper-K1-quick"),
        ("Hopper-v5,Hopper-v4", "Hopper+Hopper-v4-K1-quick"),
        ("bit-chain", "bit-chain-K1-quick"),
    ],
)
def test_only_unusual_versions_are_in_the_name(env: str, expected: str) -> None:
    assert name(env) == expected


def test_other_settings_are_another_question() -> None:
    asked = [name("Hopper"), name("Hopper", lag="fixed:0"), name("Hopper", settings="learning_rate=1e-5")]
    assert len(set(asked)) == 3 and all(each.startswith("Hopper-K1-quick") for each in asked)


def test_similar_environment_names_give_different_folders() -> None:
    rest = {"settings": {}, "lag": "mixture"}
    envs = ("lab/Reach-v0", "lab_Reach-v0", "lab Reach-v0")
    names = [report_name({env: env}, [1], "quick", rest, "mixture") for env in envs]
    assert names[1] == "lab_Reach-v0-K1-quick" and len(set(names)) == 3
    assert all(each.startswith(names[1]) and "/" not in each for each in names)


def test_a_folder_is_named_by_its_text_as_far_as_it_can_be() -> None:
    texts = ["report-vaco[delta=0.1]", "report-vaco[delta=0,1]", "report-../x", "a" * 300, "a" * 301]
    names = [safe_name(text, text) for text in texts]
    assert len(set(names)) == 5 and not any("/" in each or len(each) > 87 for each in names)
    assert safe_name("report-all", []) == "report-all"
    assert len({safe_name("report", exact, unambiguous=False) for exact in (1, 2)}) == 2
