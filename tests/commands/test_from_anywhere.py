"""Published bundles and built-in studies are found from an empty folder, as where only a wheel is."""

from __future__ import annotations

import json
from pathlib import Path

from command_line import Cli

BUNDLE = "results/reference/quick_hopper"


def test_a_published_bundle_is_unpacked_and_compared(call: Cli) -> None:
    code, text, _ = call("unpack", BUNDLE, "mine")
    assert code == 0 and len(list(Path("mine/runs").iterdir())) == 42, text
    code, text, _ = call("compare", BUNDLE, "mine", "--json")
    assert code == 0 and json.loads(text)
    code, text, _ = call("pack", "mine", "packed", "--spec", "experiments/quick_hopper.toml")
    assert code == 0 and text.startswith("packed 42 of 42 runs")


def test_advice_comes_from_a_published_bundle(call: Cli) -> None:
    code, text, _ = call("advise", "--results", BUNDLE)
    assert code == 0 and "vaco" in text
    code, _, error = call("advise", "--results", "results/reference/vaco_contrl")
    assert code == 2 and "vaco_contrl is not a folder of results; did you mean 'vaco_control'?" in error


def test_verify_reads_a_published_bundle(call: Cli) -> None:
    code, _, error = call("verify", BUNDLE, "--algo", "m2po")
    assert code == 2 and "ALGO: no run here is of 'm2po'; known: a3po" in error


def test_a_built_in_study_is_planned(call: Cli) -> None:
    code, text, _ = call("config", "experiments/vaco_delta.toml", "--diff", "experiments/vaco_rho_bar.toml")
    assert code == 0 and "hyper.rho_bar: 1.0 -> 0.5" in text
    code, text, _ = call("sweep", "--spec", "experiments/quick_hopper.toml", "--dry")
    assert code == 0 and "42 of 42 runs to do" in text
