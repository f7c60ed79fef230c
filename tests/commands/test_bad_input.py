"""A user's mistake gets one clear line and exit code 2, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Cli

from staleharness.errors import UserError
from staleharness.running.plan import plan
from staleharness.store.store import Store
from staleharness.study import sweep_request

HOPPER = ["sweep", "--env", "Hopper"]

MISTAKES: dict[str, tuple[list[str], list[str]]] = {
    "an unknown environment": (["sweep", "--env", "Hoper", "--k", "8"], ["'Hoper'", "did you mean 'Hopper'"]),
    "an unknown algorithm": ([*HOPPER, "--algo", "ppo_clap"], ["'ppo_clap'", "'ppo_clip'"]),
    "an unknown hyper-parameter": ([*HOPPER, "--algo", "vaco[dleta=1]"], ["'dleta'", "'delta'"]),
    "a hyper-parameter of the wrong type": ([*HOPPER, "--algo", "vaco[delta=big]"], ["delta", "big"]),
    "a hyper-parameter out of range": ([*HOPPER, "--algo", "ppo_clip[clip=-1]"], ["clip", "-1"]),
    "a hyper-parameter of the wrong name": ([*HOPPER, "--algo", "ppo_clip[anchor=prox]"], ["anchor", "proximal"]),
    "a broken algorithm": ([*HOPPER, "--algo", "vaco[delta"], ["vaco[delta"]),
    "an algorithm twice": ([*HOPPER, "--algo", "spo,spo"], ["spo", "more than once"]),
    "an unknown option": ([*HOPPER, "--setes", "3"], ["setes", "did you mean"]),
    "an unknown setting": ([*HOPPER, "--set", "learning_rat=1"], ["'learning_rat'", "'learning_rate'"]),
    "a setting of the wrong type": ([*HOPPER, "--set", "epochs=1.5"], ["epochs", "1.5", "whole number"]),
    "a setting of the wrong choice": ([*HOPPER, "--set", "density=mix"], ["density", "mixture"]),
    "capacity 0": ([*HOPPER, "--k", "0"], ["K=0"]),
    "capacity -1": ([*HOPPER, "--k=-1"], ["K=-1"]),
    "capacity abc": ([*HOPPER, "--k", "abc"], ["K='abc'", "whole number"]),
    "capacity 1.5": ([*HOPPER, "--k", "1.5"], ["K='1.5' is not a whole number\n"]),
    "capacities in brackets": ([*HOPPER, "--k", "[1,4]"], ["K='[1,4]'", "write several with commas, K=1,2,3"]),
    "capacities with dots": ([*HOPPER, "--k", "1..4"], ["write several with commas"]),
    "a range of seeds": ([*HOPPER, "--seeds", "1-3"], ["SEEDS='1-3'", "with commas, SEEDS=1,2,3"]),
    "capacities with 0": ([*HOPPER, "--k", "0,1"], ["K=0", "K >= 1"]),
    "a wide digit": ([*HOPPER, "--k", "１"], ["K='１' is not a whole number"]),
    "an assignment of an assignment": ([*HOPPER, "--set", "num_envs=4=5"], ["num_envs=4=5 is not a whole number"]),
    "a value without a name": ([*HOPPER, "--set", "=4"], ["'=4' is not option=value"]),
    "a method in quotes": ([*HOPPER, "--algo", "'vaco[delta=0.1]'"], ["is neither a name nor name[option=value,...]"]),
    "a method with parentheses": (
        [*HOPPER, "--algo", "vaco(delta=0.1)"],
        ["is neither a name nor name[option=value,...]"],
    ),
    "an invisible character": ([*HOPPER, "--algo", "ppo\u200b_clip"], ["ppo\\u200b_clip"]),
    "data of a control task": ([*HOPPER, "--data", "x"], ["DATA=x is for language tasks; Hopper-v5 has none"]),
    "a model of a control task": ([*HOPPER, "--model", "x"], ["MODEL=x is for language tasks; Hopper-v5 has none"]),
    "no round": (["sweep", "--env", "word-problems", "--n", "0"], ["N=0 must be at least 1"]),
    "a width for a list of widths": (
        [*HOPPER, "--set", "hidden=64"],
        ["hidden=64 is not a list in brackets, each entry a whole number"],
    ),
    "half a cap": (["pipeline", "--set", "cap=x"], ["cap=x is neither a number nor none"]),
    "a run that is not there": (["show", "results/runs/nope"], ["RUN=results/runs/nope does not exist", "no folder"]),
    "a run above": (["show", "../.."], ["RUN=../.. is not the folder of a run"]),
    "a setting of StaleBench": (
        ["benchmark", "--algo", "vaco[learning_rate=1e-3]"],
        ["learning_rate is a setting of runs, and the protocol chooses it"],
    ),
    "two methods of StaleBench": (["benchmark", "--algo", "spo,vaco"], ["a benchmark takes one method"]),
    "a track that is a path": (["benchmark", "--algo", "spo", "--track", "../tokens"], ["did you mean 'tokens'"]),
    "a bundle of another study": (
        ["benchmark", "--add", "results/reference/quick_hopper"],
        ["does not follow stalebench_v1_tokens", "env=Hopper-v5 is not one of word-problems"],
    ),
    "a share above one": (["advise", "--results", "results/reference/stress_lags", "--keep", "2"], ["KEEP=2"]),
    "an environment without runs": (
        ["verify", "results/reference/quick_hopper", "--env", "Hoper"],
        ["ENV: no run here is of 'Hoper'; did you mean 'Hopper-v5'?"],
    ),
    "a capacity without runs of the method": (
        ["verify", "results/reference/vaco_control", "--algo", "ppo_clip_window"],
        ["ALGO: no run here is of 'ppo_clip_window'"],
    ),
    "capacities twice": ([*HOPPER, "--k", "1,4,4"], ["K", "4", "more than once"]),
    "an environment twice": (["sweep", "--env", "Hopper,Hopper-v5"], ["Hopper-v5", "more than once"]),
    "no environment": (["sweep", "--k", "8"], ["ENV"]),
    "steps below one phase": ([*HOPPER, "--steps", "100"], ["STEPS=100", "2048"]),
    "no jobs": ([*HOPPER, "--jobs", "0"], ["JOBS=0"]),
    "a runner that is none": ([*HOPPER, "--runner", "locla"], ["RUNNER='locla' is unknown", "did you mean 'local'?"]),
    "no memory": ([*HOPPER, "--memory", "0"], ["MEMORY=0", "2G"]),
    "a memory that is none": ([*HOPPER, "--memory", "much"], ["MEMORY='much'", "2G"]),
    "a GPU to share, and none": ([*HOPPER, "--runs-per-gpu", "2"], ["RUNS_PER_GPU=2", "DEVICE=cuda"]),
    "a share of nothing": ([*HOPPER, "--runs-per-gpu", "0"], ["RUNS_PER_GPU=0", "at least 1"]),
    "options of sbatch for another runner": (
        [*HOPPER, "--slurm", "--partition=gpu"],
        ["SLURM='--partition=gpu' is for RUNNER=slurm; give RUNNER=slurm with it"],
    ),
    "options of sbatch that are none": (
        [*HOPPER, "--runner", "slurm", "--slurm", "--wrap=id"],
        ["SLURM: --wrap is set by the runner"],
    ),
    "a runner that is a path": ([*HOPPER, "--runner", "../local"], ["RUNNER='../local' is unknown"]),
    "no seeds": ([*HOPPER, "--seeds", "0"], ["SEEDS=0"]),
    "an unknown preset": ([*HOPPER, "--preset", "papr"], ["'papr'", "'paper'"]),
    "an unknown lag model": ([*HOPPER, "--lag", "gauss"], ["'gauss'", "uniform"]),
    "a lag that the buffer does not hold": ([*HOPPER, "--k", "4", "--lag", "fixed:4"], ["fixed:4", "K=5"]),
    "an unknown device": ([*HOPPER, "--device", "tpu"], ["'tpu'", "cuda"]),
    "an unknown normalisation": ([*HOPPER, "--normalise", "minmx"], ["'minmx'", "'minmax'"]),
    "a normalisation without its baseline": ([*HOPPER, "--k", "8", "--normalise", "ppo"], ["ppo_clip", "K=1"]),
    "a normalisation without constants": (["sweep", "--env", "Pusher", "--normalise", "frozen"], ["Pusher-v5"]),
    "an unknown score": ([*HOPPER, "--score", "best"], ["'best'"]),
    "an unknown command": (["swep"], ["'swep'", "'sweep'"]),
    "a missing spec file": ([*HOPPER, "--spec", "nowhere.toml"], ["nowhere.toml"]),
    "a missing plugin": ([*HOPPER, "--plugin", "nowhere.py"], ["nowhere.py", "does not exist"]),
    "no results": (["report", "--out", "nowhere"], ["nowhere"]),
    "rows too few for the minibatches": (
        [*HOPPER, "--algo", "impala", "--set", "num_envs=4,minibatches=8"],
        ["impala", "num_envs=4", "minibatches=8"],
    ),
    "an unknown kind of plugin": (["new", "algorthm", "x"], ["algorthm"]),
    "a plugin of all names": (["new", "algorithm", "all"], ["NAME='all' asks for all plugins"]),
    "a bad plugin name": (["new", "algorithm", "My-Idea"], ["My-Idea"]),
    "a taken plugin name": (["new", "algorithm", "spo"], ["'spo'", "exists already"]),
    "observations that are no vector": (["sweep", "--env", "FrozenLake-v1"], ["FrozenLake-v1", "Box"]),
    "more versions than phases": ([*HOPPER, "--k", "1e9"], ["K=1000000000", "1,000,000"]),
    "a line break in a folder": ([*HOPPER, "--out", "a\nb"], ["line break"]),
    "two kinds of task": (
        ["sweep", "--env", "Hopper,word-problems"],
        ["Hopper-v5 (control)", "word-problems (language)"],
    ),
    "another library's learning rate": ([*HOPPER, "--set", "lr=1e-4"], ["'learning_rate'"]),
    "another library's gamma": ([*HOPPER, "--set", "gamma=0.9"], ["'discount'"]),
    "the learning rate of one method": (
        [*HOPPER, "--algo", "ppo_clip[lr=1e-4]"],
        ["ppo_clip", "'lr'", "'learning_rate'"],
    ),
    "the first part of a name": ([*HOPPER, "--algo", "ppo"], ["'ppo'", "did you mean 'ppo_clip' or"]),
    "a clip range": ([*HOPPER, "--algo", "ppo_clip[clip_range=0.1]"], ["'clip'"]),
    "a game of pictures": (["sweep", "--env", "ALE/Pong-v5"], ["ALE/", "images"]),
    "the scale of no paper": (["reproduce", "--scale", "paper"], ["SCALE is for the runs of a paper; give PAPER=NAME"]),
    "half a step": ([*HOPPER, "--steps", "1.5"], ["STEPS='1.5'"]),
    "a seed twice": ([*HOPPER, "--seeds", "0,1,0"], ["SEEDS", "different"]),
    "a closed form on tokens": (
        ["sweep", "--env", "word-problems", "--algo", "ppo_kl[estimator=analytic]"],
        ["ppo_kl", "closed form", "word-problems"],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_writes_nothing(mistake: str, call: Cli) -> None:
    arguments, words = MISTAKES[mistake]
    code, text, errors = call(*arguments)
    assert (code, text) == (2, ""), errors
    assert errors.startswith("staleharness: ") and errors.count("\n") == 1
    assert errors.rstrip("\n").isprintable()
    assert len(errors) < 500
    for word in words:
        assert word in errors
    assert list(Path.cwd().iterdir()) == []


def test_cuda_without_a_gpu_is_said(call: Cli) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    code, _, err = call(*HOPPER, "--device", "cuda")
    assert code == 2 and "sees no GPU" in err and err.count("\n") == 1


@pytest.mark.parametrize("verb", ["run", "sweep"])
def test_what_this_machine_lacks_is_said_before_anything(verb: str, call: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    code, _, err = call(verb, "--env", "Hopper", "--algo", "spo", "--set", "learner=native")
    assert code == 2 and "learner=native needs a C++ compiler" in err and err.count("\n") == 1
    assert list(Path.cwd().iterdir()) == []


def test_results_may_lie_in_the_default_folder(call: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out"
    Store(out / "mine").open_for_writing()
    assert call(*HOPPER, "--out", str(out), "--dry")[0] == 0
    (out / "notes").mkdir()
    code, _, err = call(*HOPPER, "--out", str(out), "--dry")
    assert code == 2 and "holds something other" in err


def test_a_folder_that_holds_something_else_is_left_alone(call: Cli) -> None:
    thesis = Path("thesis.tex")
    thesis.write_text("do not touch")
    code, _, err = call(*HOPPER, "--out", ".")
    assert code == 2 and "holds something other" in err
    assert list(Path.cwd().iterdir()) == [thesis.absolute()]
    code, _, err = call(*HOPPER, "--out", "thesis.tex")
    assert code == 2 and "is a file" in err
    code, _, err = call(*HOPPER, "--out", "thesis.tex/results")
    assert code == 2 and err.count("\n") == 1


def test_a_spec_file_with_an_unknown_key_is_refused(call: Cli, tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    for text, words in {
        'env = "Hopper"\ncapcity = [1, 4]\n': ["capcity", "capacity", "spec.toml"],
        'env = "Hopper"\n[settings]\nlearning_rat = 0.1\n': ["learning_rat", "learning_rate"],
        'env = "Hopper"\nseeds = "three"\n': ["seeds=three is neither a whole number nor a list of whole numbers"],
        'env = "Hopper"\nseeds = "3"\n': ['seeds="3" is a string, not a number; leave out the quotation marks'],
        'env = "Hopper"\nseeds = true\n': ["seeds=true is neither a whole number nor a list"],
        'env = "Hopper"\ncapacity = ["4"]\n': ['capacity="4" is a string, not a number; leave out the quotation marks'],
        'env = "Hopper"\nk = [1, 4]\n': ["unknown option 'k'; did you mean 'capacity'?"],
        'env = "Hopper"\nsettings = 3\n': ["settings=3 is not of type table"],
        "env = \n": ["not TOML"],
    }.items():
        spec.write_text(text)
        code, _, err = call("sweep", "--spec", str(spec), "--out", str(tmp_path / "out"))
        assert code == 2 and err.count("\n") == 1, err
        for word in words:
            assert word in err
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "method"), [("grpo", "ppo_clip"), ("DAPO", "ppo_clip"), ("v-trace", "impala")])
def test_a_method_by_its_name_elsewhere_is_found(name: str, method: str) -> None:
    with pytest.raises(UserError, match=f"did you mean '{method}'"):
        plan(sweep_request(env="word-problems", algo=name))
