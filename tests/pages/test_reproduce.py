"""The commands `figures` and `reproduce`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Cli
from paper_studies import FIGURES, write_study
from results_helper import write_run
from sweeping import without_report

from staleharness.commands.reproduce import _others
from staleharness.commands.shared import train_and_report
from staleharness.running.forecast import SimilarRuns
from staleharness.store.bundle_writer import pack
from staleharness.store.store import Store


@pytest.fixture
def estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every phase takes a second, by an estimate of made-up runs."""
    monkeypatch.setattr(
        "staleharness.running.forecast.similar_runs",
        lambda spec, store: SimilarRuns("made up", frozenset({"one"}), 1000.0, 0.0, 0),
    )


def write_pendulum(file: Path) -> None:
    """Write a study of two small runs."""
    file.write_text(
        'question = "Q?"\nenv = "Pendulum"\nalgorithm = ["ppo_clip", "spo"]\nseeds = 1\n[settings]\nsteps = 128\n'
        "num_envs = 2\nnum_steps = 32\nepochs = 1\nminibatches = 2\nevaluations = 2\nevaluation_episodes = 1\n"
        "final_episodes = 2\n"
    )


@pytest.mark.long
def test_figures_come_without_torch(tmp_path: Path) -> None:
    program = (
        "import sys; from staleharness import cli\n"
        "try: cli.main()\n"
        "except SystemExit as e: code = e.code\n"
        "assert not {'torch', 'gymnasium', 'mujoco', 'matplotlib.pyplot'} & set(sys.modules), sorted(sys.modules)\n"
        "sys.exit(code)"
    )
    words = ["figures", "--paper", "vaco", "--fig", "8", "--out", str(tmp_path / "out"), "--json"]
    write_study(tmp_path / "b" / "vaco_delta", FIGURES["vaco/fig8"].request)
    done = subprocess.run(
        [sys.executable, "-c", program, *words, "--bundles", str(tmp_path / "b")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["figures"] == {"fig8": "draft"}
    assert (tmp_path / "out" / "vaco" / "fig8.png").stat().st_size > 10_000


def test_reproduce_says_what_it_would_run_and_then_writes_nothing(estimate: None, cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, told, _ = cli("reproduce", "--fig", "3", "--dry", "--json", "--out", str(out))
    (said,) = json.loads(told)["studies"]
    assert code == 0
    assert (said["study"], said["runs"], said["done"]) == ("vaco_ratio", 315, 0) and said["seconds"] > 3600
    assert not out.exists()


@pytest.mark.long
def test_reproduce_runs_and_draws_once(shelf: Path, cli: Cli, tmp_path: Path) -> None:
    write_pendulum(shelf / "s.toml")
    words = ["reproduce", "--paper", "p", "--fig", "2", "--jobs", "1", "--out", str(tmp_path / "out"), "--json"]
    for again in (False, True):
        with without_report():
            code, out, err = cli(*words)
        said = json.loads(out)
        assert code == 0 and said["figures"] == {"fig2": "drawn"} and ("2 of 2 runs to do" in err) is not again
        assert (tmp_path / "out" / "figures" / "p" / "fig2.png").stat().st_size > 10_000
    assert len(list((tmp_path / "out" / "s" / "runs").iterdir())) == 2


def test_a_run_that_two_studies_ask_for_is_made_once(shelf: Path, estimate: None, cli: Cli, tmp_path: Path) -> None:
    size = (
        "[settings]\nsteps = 64\nnum_envs = 2\nnum_steps = 32\nepochs = 1\nminibatches = 2\nevaluations = 1\n"
        "evaluation_episodes = 1\nfinal_episodes = 1\n"
    )
    for name, methods in (("s", '["ppo_clip", "spo"]'), ("t", '["spo", "vaco"]')):
        text = f'question = "Q?"\nenv = "Pendulum"\nalgorithm = {methods}\nseeds = 1\n{size}'
        (shelf / f"{name}.toml").write_text(text)
    (shelf / "p" / "fig3.toml").write_text((shelf / "p" / "fig2.toml").read_text().replace('"s"', '"t"'))
    words = ["reproduce", "--paper", "p", "--jobs", "1", "--out", str(tmp_path / "out")]
    code, said, _ = cli(*words, "--dry")
    assert code == 0
    assert "s (small): 2 of 2 runs to do" in said and "t (small): 1 of 2 runs to do" in said
    assert "  ppo_clip: K=1 on Pendulum-v1; seed 0" in said and "  vaco: K=1 on Pendulum-v1; seed 0" in said
    with without_report():
        code, _, said = cli(*words)
    assert code == 0 and "2 of 2 runs to do" in said
    assert "t: copied 1 run from other studies" in said and "1 of 2 runs to do" in said
    shared = {path.name for s in "st" for path in (tmp_path / "out" / s / "runs").iterdir()}
    assert len(shared) == 3
    code, said, _ = cli(*words, "--dry")
    assert code == 0 and "t (small): 0 of 2 runs to do" in said


def test_reproduction_that_is_stopped_prints_json(
    shelf: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli, tmp_path: Path
) -> None:
    write_pendulum(shelf / "s.toml")
    monkeypatch.setattr(train_and_report, "execute", lambda *arguments: 130)
    code, out, _ = cli("reproduce", "--paper", "p", "--fig", "2", "--out", str(tmp_path / "out"), "--json")
    assert code == 130
    assert json.loads(out) == {"paper": "p", "figures": {}, "folder": None, "stopped": True, "study": "s"}


@pytest.mark.parametrize("fig", [[], ["--fig", "all"]])
def test_a_paper_without_a_scale_of_its_own_is_refused_at_it(cli: Cli, tmp_path: Path, fig: list[str]) -> None:
    code, said, error = cli("reproduce", "--paper", "stress", "--scale", "paper", "--out", str(tmp_path / "out"), *fig)
    assert (code, said) == (2, "") and "PAPER=stress: none of its studies has a table [paper]" in error.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_no_run_is_copied_from_a_bundle_beside_the_studies(tmp_path: Path) -> None:
    """A bundle has no folders of runs to copy."""
    run = write_run(tmp_path / "t", "spo", 0, phases=2)
    pack(str(tmp_path / "t"), str(tmp_path / "packed"), None)
    shutil.rmtree(tmp_path / "t")
    study = Store(tmp_path / "s")
    study.open_for_writing()
    assert sum(study.adopt(other, {run.id: "spo"}) for other in _others(study, tmp_path)) == 0


def test_a_mistake_in_the_words_is_one_line(cli: Cli, tmp_path: Path) -> None:
    for words, said in (
        (["--paper", "vako"], "PAPER='vako' is unknown; did you mean 'vaco'?"),
        (["--fig", "99"], "FIG='99' is unknown"),
        (["--scale", "big"], "SCALE='big' is unknown; known: paper, small"),
    ):
        for command in ("figures", "reproduce"):
            code, _, error = cli(command, *words, "--out", str(tmp_path / "out"))
            assert code == 2 and said in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["figures", "figures/p.md", "figures/p.html", "figures/p_fig2.html"])
def test_what_is_in_the_place_of_the_figures_is_told_first(
    shelf: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Not after the runs, which take hours."""
    write_pendulum(shelf / "s.toml")
    monkeypatch.setattr(train_and_report, "execute", lambda *what: pytest.fail("runs have begun"))
    (tmp_path / "out" / "figures").parent.mkdir()
    (tmp_path / "out" / place).parent.mkdir(exist_ok=True)
    (tmp_path / "out" / place).write_text("mine")
    code, _, error = cli("reproduce", "--paper", "p", "--out", str(tmp_path / "out"))
    assert code == 2 and error.count("\n") == 1 and str(tmp_path / "out" / place) in error
    assert not (tmp_path / "out" / "s").exists() and (tmp_path / "out" / place).read_text() == "mine"
