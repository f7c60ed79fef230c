"""The presets of verl's RolloutCorrectionConfig (1dda039) as methods of this harness."""

from __future__ import annotations

import pytest
from places import ROOT

from staleharness.algorithm import ALGORITHMS
from staleharness.base.options import build_choice, parse_choice_of

LINES = (ROOT / "tests" / "data" / "verl_presets.tsv").read_text(encoding="utf-8").splitlines()[1:]
PRESETS = {name: text for name, text, _ in (line.split("\t") for line in LINES) if text != "-"}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_of_verl_is_a_method(preset: str) -> None:
    choice = parse_choice_of(PRESETS[preset], ALGORITHMS, "ALGO")
    assert choice is not None
    method = build_choice(*choice, "ALGO", "ALGO")
    assert vars(method)["clip"] == (
        0.0 if preset.startswith("bypass_pg") else 0.2
    )  # bypass_pg has no clip around π_prox
    if "geo_rs" in preset:
        assert (vars(method)["low"], vars(method)["high"]) == (0.999, 1.001)
