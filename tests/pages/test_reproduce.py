"""The commands `figures` and `reproduce`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from paper_studies import FIGURES, write_study
from sweeping import without_report

from staleharness import cli
from staleharness.running.forecast import SimilarRuns


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["staleharness", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


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
    write_study(tmp_path / "b" / "vaco_delta", FIGURES["vaco/fig8"].question)
    done = subprocess.run(
        [sys.executable, "-c", program, *words, "--bundles", str(tmp_path / "b")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["figures"] == {"fig8": "draft"}
    assert (tmp_path / "out" / "vaco" / "fig8.png").stat().st_size > 10_000


def test_reproduce_says_what_it_would_run_and_then_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "staleharness.running.forecast.similar_runs", lambda spec, store: SimilarRuns("made up", 1, 1000.0, 0.0, 0)
    )
    out = tmp_path / "out"
    assert call(monkeypatch, "reproduce", "--fig", "3", "--dry", "--json", "--out", str(out)) == 0
    (said,) = json.loads(capsys.readouterr().out)["studies"]
    assert (said["study"], said["runs"], said["done"]) == ("vaco_ratio", 315, 0) and said["seconds"] > 3600
    assert not out.exists()


@pytest.mark.long
def test_reproduce_runs_and_draws_once(
    shelf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (shelf / "s.toml").write_text(
        'question = "Q?"\nenv = "Pendulum"\nalgorithm = ["ppo_clip", "spo"]\nseeds = 1\n[settings]\nsteps = 128\n'
        "num_envs = 2\nnum_steps = 32\nepochs = 1\nminibatches = 2\nevaluations = 2\nevaluation_episodes = 1\n"
        "final_episodes = 2\n"
    )
    words = ["reproduce", "--paper", "p", "--fig", "2", "--jobs", "1", "--out", str(tmp_path / "out"), "--json"]
    for again in (False, True):
        with without_report():
            assert call(monkeypatch, *words) == 0
        out, err = capsys.readouterr()
        said = json.loads(out)
        assert said["figures"] == {"fig2": "drawn"} and ("2 of 2 runs to do" in err) is not again
        assert (tmp_path / "out" / "figures" / "p" / "fig2.png").stat().st_size > 10_000
    assert len(list((tmp_path / "out" / "s" / "runs").iterdir())) == 2


def test_a_run_that_two_studies_ask_for_is_made_once(
    shelf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    size = (
        "[settings]\nsteps = 64\nnum_envs = 2\nnum_steps = 32\nepochs = 1\nminibatches = 2\nevaluations = 1\n"
        "evaluation_episodes = 1\nfinal_episodes = 1\n"
    )
    for name, methods in (("s", '["ppo_clip", "spo"]'), ("t", '["spo", "vaco"]')):
        text = f'question = "Q?"\nenv = "Pendulum"\nalgorithm = {methods}\nseeds = 1\n{size}'
        (shelf / f"{name}.toml").write_text(text)
    (shelf / "p" / "fig3.toml").write_text((shelf / "p" / "fig2.toml").read_text().replace('"s"', '"t"'))
    monkeypatch.setattr(
        "staleharness.running.forecast.similar_runs", lambda spec, store: SimilarRuns("made up", 1, 1000.0, 0.0, 0)
    )
    words = ["reproduce", "--paper", "p", "--jobs", "1", "--out", str(tmp_path / "out")]
    assert call(monkeypatch, *words, "--dry") == 0
    said = capsys.readouterr().out
    assert "s (small): 2 of 2 runs to do" in said and "t (small): 1 of 2 runs to do" in said
    assert "  ppo_clip: K=1 on Pendulum-v1; seed 0" in said and "  vaco: K=1 on Pendulum-v1; seed 0" in said
    with without_report():
        assert call(monkeypatch, *words) == 0
    said = capsys.readouterr().err
    assert "2 of 2 runs to do" in said
    assert "t: copied 1 run from other studies" in said and "1 of 2 runs to do" in said
    shared = {path.name for s in "st" for path in (tmp_path / "out" / s / "runs").iterdir()}
    assert len(shared) == 3
    assert call(monkeypatch, *words, "--dry") == 0
    assert "t (small): 0 of 2 runs to do" in capsys.readouterr().out


def test_a_mistake_in_the_words_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for words, said in (
        (["--paper", "vako"], "PAPER='vako' is unknown; did you mean 'vaco'?"),
        (["--fig", "99"], "FIG='99' is unknown"),
        (["--scale", "big"], "SCALE='big' is unknown; known: paper, small"),
    ):
        for command in ("figures", "reproduce"):
            assert call(monkeypatch, command, *words, "--out", str(tmp_path / "out")) == 2
            error = capsys.readouterr().err
            assert said in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()
