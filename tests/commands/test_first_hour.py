"""Input of a first hour: taken as meant, or refused in one helpful line (most mistakes: test_bad_input.py)."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from known_plugins import loaded_plugins

from staleharness.commands.shared import train_and_report
from staleharness.store.store import Store


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """No plugin of a test outlives it."""
    with loaded_plugins():
        yield


def plan_of(call: Cli, *words: str) -> list[dict[str, Any]]:
    code, out, errors = call("sweep", "--dry", "--json", *words)
    assert code == 0, errors
    cells: list[dict[str, Any]] = json.loads(out.splitlines()[-1])["plan"]
    return cells


def test_numbers_and_lists_are_taken_as_they_are_meant(call: Cli) -> None:
    (cell,) = plan_of(call, "--env", "Pendulum", "--algo", "spo", "--seeds", "1", "--steps", "3.2e6")
    assert cell["spec"]["steps"] == 3_200_000
    cells = plan_of(call, "--env", "Pendulum", "--algo", "spo", "--seeds", "0,1,7")
    assert [cell["spec"]["seed"] for cell in cells] == [0, 1, 7]
    (cell,) = plan_of(call, "--env", "Pendulum", "--algo", "spo", "--seeds", "1", "--k", "4", "--lag", "geometric:1e-3")
    assert cell["spec"]["lag"] == "geometric:0.001"


def test_odd_but_meant_is_taken(call: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def note(command: Any, planned: Any, store: Store, *more: Any) -> int:
        seen.append((planned.runs[0].spec, store.root))
        return 0

    monkeypatch.setattr(train_and_report, "execute", note)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for words in (
        ["--env", "hopper\n", "--k", " 8 ", "--steps", "1e6", "--out", "~/a b"],
        ["--env=Hopper-v5", "--k=8", "--set", "steps=1e6", "--out", str(tmp_path / "a b")],
        ["--env", "HOPPER", "--k", "8", "--steps", "1_000_000", "--algo", "a3po[]", "--out", str(tmp_path / "link")],
    ):
        assert call("sweep", *words)[0] == 0
    assert len({spec.to_json() for spec, _ in seen}) == 1
    assert [root for _, root in seen] == [tmp_path / "a b", tmp_path / "a b", tmp_path / "link"]


def test_all_methods_and_variants_of_them(call: Cli) -> None:
    every = plan_of(call, "--env", "Pendulum", "--algo", "all", "--seeds", "1")
    same = plan_of(call, "--env", "Pendulum", "--algo", "all,ppo_clip", "--seeds", "1")
    more = plan_of(call, "--env", "Pendulum", "--algo", "all,ppo_clip[clip=0.1]", "--seeds", "1")
    assert sorted(c["id"] for c in same) == sorted(c["id"] for c in every)
    assert {c["label"] for c in more} - {c["label"] for c in every} == {"ppo_clip[clip=0.1]"}


def test_the_usual_score_has_frozen_constants(call: Cli) -> None:
    assert plan_of(call, "--env", "Hopper", "--algo", "spo", "--seeds", "1", "--normalise", "frozen")


PLUGIN = '''
from dataclasses import dataclass
from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import PolicyLoss

@ALGORITHMS.register("{name}")
@dataclass(frozen=True)
class Mine(Algorithm):
    """A method of one's own."""
    needs = frozenset({{"closed_form"}})
    def policy_loss(self, d):
        return PolicyLoss(d.analytic_kl("behaviour") - d.target_logp * d.advantage)
'''


def test_a_plugin_is_run_where_it_is_named(call: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN.format(name="named"))
    plugin = ["--plugin", str(tmp_path / "mine.py"), "--seeds", "1"]
    core = plan_of(call, "--env", "Pendulum", *plugin)
    assert "named" not in {cell["label"] for cell in core} and len(core) == 7
    assert plan_of(call, "--env", "Pendulum", "--algo", "named", *plugin)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('proximal = "loglinear"', "adrift: proximal='loglinear' is not one of behaviour, recompute, ewma"),
        ('realign_every = "minibatch"', "adrift: realign_every='minibatch' is not one of phase, epoch, step"),
        ('needs = frozenset({"group"})', "no task provides 'group', which it needs; did you mean 'groups'?"),
        ('needs = "groups"', "Mine: needs is a string; write needs = frozenset({'groups'})"),
        (
            "normalise_advantage = lambda self: False",
            "adrift: normalise_advantage is a method; write @property above it",
        ),
        ('time_order = "no"', "adrift: time_order='no' is not True or False"),
        ("optimal_baseline = 0", "adrift: optimal_baseline=0 is not True or False"),
        ("proximal, ewma_decay = 'ewma', 1.0", "adrift: ewma_decay=1.0 is not a number from 0 to below 1"),
        ("state_learning_rate = float('inf')", "adrift: state_learning_rate=inf is not a finite number or None"),
        ("optimal_baseline = True", "with optimal_baseline, define row_baseline(self, decisions, squared_norm)"),
    ],
)
def test_an_unknown_word_of_a_method_is_found_at_planning(line: str, said: str, call: Cli, tmp_path: Path) -> None:
    text = PLUGIN.format(name="adrift").replace("    def policy_loss", f"    {line}\n    def policy_loss")
    (tmp_path / "mine.py").write_text(text)
    words = ["--env", "Hopper", "--algo", "adrift", "--plugin", str(tmp_path / "mine.py"), "--dry"]
    code, _, errors = call("sweep", *words)
    assert code == 2 and errors.strip().endswith(said)


def test_what_has_a_place_may_have_its_name_too(call: Cli, tmp_path: Path) -> None:
    assert call("unpack", "--to=mine", "results/reference/quick_hopper")[0] == 0
    assert call("pack", "mine", "--to", "bundle")[0] == 0
    for words, said in (
        (["mine", "--source=mine", "bundle"], "'bundle' belongs to no option"),
        ([], "pack needs OUT and TO, see pack --help"),
        (["--source=mine"], "pack needs TO"),
        (["--source=mine", "bundle", "more"], "'more' belongs to no option"),
        (["mine", ""], "pack: TO='' is empty; give TO"),
    ):
        code, _, errors = call("pack", *words)
        assert code == 2 and said in errors and len(errors.splitlines()) == 1, errors


def test_a_need_is_found_when_the_sweep_is_planned(call: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN.format(name="needy"))
    words = ["--env", "bit-chain", "--algo", "needy", "--plugin", str(tmp_path / "mine.py"), "--dry"]
    code, out, errors = call("sweep", *words)
    assert (code, out) == (2, "") and "closed form" in errors and "bit-chain" in errors


@pytest.mark.parametrize("text", ["", "import math\n\nHALF = 0.5\n"])
def test_a_plugin_file_that_registers_nothing_is_refused(text: str, call: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text(text)
    code, out, errors = call("list", "--plugin", str(tmp_path / "empty.py"))
    assert (code, out) == (2, "") and "empty.py registers nothing" in errors


def test_a_class_registered_in_a_function_is_a_plugin(call: Cli, tmp_path: Path) -> None:
    body = textwrap.indent(PLUGIN.format(name="from_function"), "    ")
    (tmp_path / "factory.py").write_text(f"def make():\n{body}\nmake()\n")
    code, out, errors = call("list", "--plugin", str(tmp_path / "factory.py"))
    assert (code, errors) == (0, "") and "from_function" in out


def test_an_older_robot_is_planned_without_library_warnings(call: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, errors = call("sweep", "--env", "Hopper-v4", "--algo", "spo", "--seeds", "1", "--dry")
    assert code == 0 and "arn" not in errors
    seen: list[Any] = []
    monkeypatch.setattr(train_and_report, "execute", lambda *asked: seen.append(asked) or 0)
    assert call("sweep", "--env", "Hopper-v4", "--algo", "spo", "--seeds", "1")[2] == "" and seen


@pytest.mark.long
def test_a_sweep_without_k_1_is_compared_with_published_runs(call: Cli) -> None:
    """The first command of the README, its own runs being there already."""
    assert call("unpack", "--to=mine", "results/reference/quick_hopper")[0] == 0
    for run in Path("mine/runs").iterdir():
        if json.loads((run / "run.json").read_text())["spec"]["capacity"] == 1:
            shutil.rmtree(run)
    code, text, _ = call("sweep", "--env=Hopper", "--k=8", "--out=mine")
    assert code == 0 and len(list(Path("mine/runs").iterdir())) == 21
    assert text.splitlines()[-1].startswith(
        "At K = 8, 3.2 phases of lag, A-3PO retains 83 %, PPO-clip 68 %, VACO 59 %, "
    )
    assert text.splitlines()[-1].endswith("; three seeds cannot tell them apart.")
    assert text.startswith("At K = 8, 3.2 phases of lag") and "normalised: frozen" in text
    rows = [line.split()[:2] for line in text.splitlines()]
    assert ["vaco", "1*"] in rows and ["vaco", "8"] in rows
    note = " ".join(" ".join(text.splitlines()).split())
    assert (
        "*: published runs of these settings at K = 1 (quick_hopper, made on AMD EPYC), not yours; bits differ" in note
    )
    page = Path("mine/reports/Hopper-K8-quick/index.html").read_text()
    assert page.index("A-3PO retains 83 %") < page.index('id="retained_shares"') < page.index('id="scores"')
    assert "<details open>" not in page.partition("How to read it")[0][-60:] and ">published<" in page
