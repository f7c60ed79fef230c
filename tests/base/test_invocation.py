"""How a command is named to a reader, in a checkout and where only the wheel is."""

from __future__ import annotations

from pathlib import Path

import pytest

from staleharness.base import invocation
from staleharness.store import study


def test_a_checkout_has_make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert invocation.invocation("figures", paper="vaco", fig="3") == "make figures PAPER=vaco FIG=3"
    assert invocation.invocation("reproduce", dry=True) == "make reproduce DRY=1"
    monkeypatch.setattr(invocation, "MAKEFILE", tmp_path / "Makefile")
    assert invocation.invocation("figures", paper="vaco", fig="3") == "staleharness figures --paper vaco --fig 3"
    assert invocation.invocation("reproduce", dry=True) == "staleharness reproduce --dry"


def test_a_built_in_study_is_found_from_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    asked = study.ask(spec_file="experiments/vaco_delta.toml")
    assert asked.question == study.read_study(study.study_file("experiments/vaco_delta.toml")).question
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "vaco_delta.toml").write_text('question = "Mine?"')
    assert study.ask(spec_file="experiments/vaco_delta.toml").question == "Mine?"
