"""The hooks of .pre-commit-config.yaml are the quick checks of `make`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_hooks_are_the_recipes_of_lint_and_type() -> None:
    recipes = re.findall(r"^(?:lint|type):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    lines = "".join(recipes).replace("$(PYTHON)", ".venv/bin/python").replace("$(VENV)", ".venv").splitlines()
    hooks = re.findall(r"entry: (.*)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert hooks == [line.strip().removeprefix("@") for line in lines]


def test_hooks_need_no_network() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"repo: (.*)", text) == ["local"] and set(re.findall(r"language: (.*)", text)) == {"system"}
