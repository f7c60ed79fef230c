"""`config`: settings of a run or a study, and what differs."""

from __future__ import annotations

import json

from command_line import Cli
from places import ROOT

import staleharness as sh
from staleharness.store.store import Store

BUNDLE = str(ROOT / "results" / "reference" / "vaco_delta")


def test_the_settings_of_a_study_and_what_differs_between_two(call: Cli) -> None:
    delta, rho = (str(ROOT / "experiments" / f"vaco_{name}.toml") for name in ("delta", "rho_bar"))
    code, text, _ = call("config", delta)
    assert code == 0 and "env = HalfCheetah-v5" in text and "hyper.delta = " in text
    code, text, _ = call("config", delta, "--diff", rho)
    assert code == 0 and "hyper.rho_bar: 1.0 -> 0.5" in text.splitlines() and "env" not in text
    assert call("config", delta, "--diff", delta)[1] == "nothing differs\n"


def test_the_settings_of_stored_runs(call: Cli) -> None:
    first, second, *_ = sorted(Store(BUNDLE).read_all(), key=lambda run: run.id)
    code, text, _ = call("config", first.id, "--out", BUNDLE, "--json")
    assert code == 0 and json.loads(text)["seed"] == first.seed
    code, text, _ = call("config", first.id, "--diff", second.id, "--out", BUNDLE, "--json")
    found = json.loads(text)
    assert found and all(a != b for a, b in found.values())
    some = "05b5e4385ead, 060198afea93, 076124a35088"
    for what, said in (
        ("", "config: ID|FILE.toml='' is empty; give ID|FILE.toml"),
        ("0", "begin with '0'; give more digits"),
        (
            "zzz",
            f"there is no finished run with that id in {BUNDLE}; it holds {some} and 47 more (`staleharness status`)",
        ),
    ):
        code, text, errors = call("config", what, "--out", BUNDLE)
        assert (code, text) == (2, "") and errors.count("\n") == 1 and errors.strip().endswith(said)


def test_settings_newer_than_a_run_are_no_difference(call: Cli) -> None:
    """The runs of the bundle are older than `learner`, `dual_clip` and others."""
    bundle = ROOT / "results" / "reference" / "vaco_control"
    study = str(ROOT / "experiments" / "vaco_control.toml")
    first = sh.plan(spec=study).runs[0].run_id
    assert call("config", study, "--diff", first, "--out", str(bundle))[1] == "nothing differs\n"
