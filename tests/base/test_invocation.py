"""Text for people: the wording of a command line, and where a study is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from staleharness.base import text_formatting
from staleharness.study import read_study, study_file, sweep_request


def test_a_checkout_has_make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert text_formatting.invocation("figures", paper="vaco", fig="3") == "make figures PAPER=vaco FIG=3"
    assert text_formatting.invocation("reproduce", dry=True) == "make reproduce DRY=1"
    assert text_formatting.invocation("report", out="my results") == "make report OUT='my results'"
    monkeypatch.setattr(text_formatting, "MAKEFILE", tmp_path / "Makefile")
    assert text_formatting.invocation("figures", paper="vaco", fig="3") == "staleharness figures --paper vaco --fig 3"
    assert text_formatting.invocation("reproduce", dry=True) == "staleharness reproduce --dry"
    assert text_formatting.invocation("report", out="my results") == "staleharness report --out 'my results'"


def test_a_built_in_study_is_found_from_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    asked = sweep_request(spec_file="experiments/vaco_delta.toml")
    assert asked.question == read_study(study_file("experiments/vaco_delta.toml")).question
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "vaco_delta.toml").write_text('question = "Mine?"')
    assert sweep_request(spec_file="experiments/vaco_delta.toml").question == "Mine?"
