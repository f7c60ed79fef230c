"""A user's mistake gets one clear line and exit code 2, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from staleharness.store.store import Store

Call = Callable[..., tuple[Any, str, str]]

LONG = "9" * 5000
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
    "capacity 1.5": ([*HOPPER, "--k", "1.5"], ["K='1.5'"]),
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
    "half a step": ([*HOPPER, "--steps", "1.5"], ["STEPS='1.5'"]),
    "a seed twice": ([*HOPPER, "--seeds", "0,1,0"], ["SEEDS", "different"]),
    "a closed form on tokens": (
        ["sweep", "--env", "word-problems", "--algo", "ppo_kl[estimator=analytic]"],
        ["ppo_kl", "closed form", "word-problems"],
    ),
}
ODD: dict[str, list[str]] = {
    "a NUL in an environment": ["sweep", "--env", "Hopper\0"],
    "a long environment": ["sweep", "--env", "H" * 300],
    "bytes that are no text": ["sweep", "--env", "\udcff"],
    "a module for an environment": ["sweep", "--env", "os:Hoppper-v5"],
    "an environment that gymnasium has retired": ["sweep", "--env", "Hopper-v2"],
    "an environment that lacks a library": ["sweep", "--env", "phys2d/CartPole-v1"],
    "an environment of pictures or tuples": ["sweep", "--env", "Blackjack-v1"],
    "a capacity of 5000 digits": [*HOPPER, "--k", LONG],
    "a capacity of 31 digits": [*HOPPER, "--k", "1" + "0" * 30],
    "half a capacity": [*HOPPER, "--k", "1e-1"],
    "a thousand million seeds": [*HOPPER, "--seeds", "1000000000"],
    "steps with a comma": [*HOPPER, "--steps", "1,000"],
    "steps in millions": [*HOPPER, "--steps", "1M"],
    "steps of 31 digits": [*HOPPER, "--steps", "1" + "0" * 30],
    "brackets the wrong way": [*HOPPER, "--algo", "a]b[c"],
    "brackets in brackets": [*HOPPER, "--algo", "spo[[x=1]]"],
    "a date for a number": [*HOPPER, "--algo", "vaco[delta=2020-01-01]"],
    "no number for a number": [*HOPPER, "--algo", "vaco[delta=nan]"],
    "infinity for a number": [*HOPPER, "--algo", "vaco[delta=inf]"],
    "an option twice": [*HOPPER, "--algo", "vaco[delta=0.1,delta=0.2]"],
    "one method under two names": [*HOPPER, "--algo", "ppo_clip,ppo_clip[clip=0.2]"],
    "an escape sequence": [*HOPPER, "--algo", "spo\x1b[31m]"],
    "a Cyrillic letter": [*HOPPER, "--algo", "пpo"],
    "a path for an algorithm": [*HOPPER, "--algo", "../spo"],
    "infinity for a setting": [*HOPPER, "--set", "learning_rate=inf"],
    "no layers": [*HOPPER, "--set", "hidden=[]"],
    "a number for a list": [*HOPPER, "--set", "hidden=64"],
    "a setting that has its own flag": [*HOPPER, "--set", "seed=3"],
    "a setting without a value": [*HOPPER, "--set", "epochs="],
    "a value without a setting": [*HOPPER, "--set", "=3"],
    "a setting twice": [*HOPPER, "--set", "epochs=2,epochs=3"],
    "more environments than steps": [*HOPPER, "--set", "num_envs=1000000000000"],
    "more threads than any machine": [*HOPPER, "--set", "threads=100000"],
    "a lag of 5000 digits": [*HOPPER, "--lag", f"fixed:{LONG}"],
    "a bound of 308 digits": [*HOPPER, "--lag", "areal:1e308"],
    "batches of 308 digits": [*HOPPER, "--lag", "partial:1e308"],
    "a delay of a hundred million": [*HOPPER, "--lag", "llamarl:100000000"],
    "a delay line of a thousand million rows": [*HOPPER, "--k", "4", "--lag", "delay:2", "--steps", "1e12"],
    "a setting of 4000 hexadecimal digits": [*HOPPER, "--set", f"learning_rate=0x{'f' * 4000}"],
    "a setting of a thousand brackets": [*HOPPER, "--set", f"learning_rate={'[' * 5000}{']' * 5000}"],
    "a GPU of 20 digits": [*HOPPER, "--device", "cuda:99999999999999999999"],
    "a long folder name": [*HOPPER, "--out", "x" * 300],
    "a NUL in a folder name": [*HOPPER, "--out", "a\0b"],
    "a folder of nobody": [*HOPPER, "--out", "~nobody-of-this-name/x"],
    "a device for a folder": [*HOPPER, "--out", "/dev/null"],
    "steering in a folder name": [*HOPPER, "--out", "/dev/null/\x1b[31m\n"],
    "minus three jobs": [*HOPPER, "--jobs", "-3"],
    "a million jobs": [*HOPPER, "--jobs", "1000000"],
    "a folder without plugins": [*HOPPER, "--plugin", "."],
    "a plugin of nobody": [*HOPPER, "--plugin", "~nobody-of-this-name/x.py"],
    "a plugin that is not there": [*HOPPER, "--plugin", "a b.py"],
    "a folder for a spec": [*HOPPER, "--spec", "."],
    "a long spec": [*HOPPER, "--spec", "x" * 300],
    "a word too many": [*HOPPER, "extra"],
    "one dash": [*HOPPER, "-k", "8"],
    "a flag without its value": [*HOPPER, "--k"],
    "a flag for a value": [*HOPPER, "--k", "--dry"],
    "a list with spaces": [*HOPPER, "--k", "4", "8"],
    "a flag twice": [*HOPPER, "--k=8", "--k=4"],
    "a switch with a value": [*HOPPER, "--json=yes"],
    "a switch and a word": [*HOPPER, "--json", "maybe"],
    "a switch that is no flag": [*HOPPER, "--no-json"],
    "a capital flag": [*HOPPER, "--K", "8"],
    "two dashes": [*HOPPER, "--"],
    "an empty command": [""],
    "a flag for a command": ["--json"],
    "a seed of 31 digits": ["run", "--env", "Hopper", "--algo", "spo", "--seed", "1" + "0" * 30],
    "a negative seed": ["run", "--env", "Hopper", "--algo", "spo", "--seed=-1"],
    "a cap of 308 digits": ["pipeline", "--set", "cap=1e308"],
    "a thousand million slots": ["pipeline", "--set", "slots=1000000000"],
    "no results to count": ["status", "--out", "nowhere"],
    "a word for status": ["status", "x"],
    "an unknown flag of list": ["list", "--jsn"],
    "nothing new": ["new"],
    "new without a name": ["new", "algorithm"],
    "new without a name but a folder": ["new", "algorithm", "--folder", "."],
    "new with a name too many": ["new", "algorithm", "x", "y"],
    "a keyword for a name": ["new", "algorithm", "class"],
    "a folder that cannot be made": ["new", "algorithm", "ok_name", "--folder", "/dev/null/x"],
    "a NUL in a folder": ["new", "algorithm", "ok_name", "--folder", "a\0b"],
}


@pytest.mark.parametrize("mistake", [*MISTAKES, *ODD])
def test_a_mistake_is_one_line_and_writes_nothing(mistake: str, call: Call) -> None:
    arguments, words = MISTAKES[mistake] if mistake in MISTAKES else (ODD[mistake], [])
    code, text, errors = call(*arguments)
    assert (code, text) == (2, ""), errors
    assert errors.startswith("staleharness: ") and errors.count("\n") == 1
    assert errors.rstrip("\n").isprintable()
    assert len(errors) < (500 if mistake in MISTAKES else 700)
    for word in words:
        assert word in errors
    assert list(Path.cwd().iterdir()) == []


def test_cuda_without_a_gpu_is_said(call: Call) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    code, _, err = call(*HOPPER, "--device", "cuda")
    assert code == 2 and "sees no GPU" in err and err.count("\n") == 1


def test_results_may_lie_in_the_default_folder(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "out"
    Store(out / "mine").open_for_writing()
    assert call(*HOPPER, "--out", str(out), "--dry")[0] == 0
    (out / "notes").mkdir()
    code, _, err = call(*HOPPER, "--out", str(out), "--dry")
    assert code == 2 and "holds something other" in err


def test_a_folder_that_holds_something_else_is_left_alone(call: Call) -> None:
    thesis = Path("thesis.tex")
    thesis.write_text("do not touch")
    code, _, err = call(*HOPPER, "--out", ".")
    assert code == 2 and "holds something other" in err
    assert list(Path.cwd().iterdir()) == [thesis.absolute()]
    code, _, err = call(*HOPPER, "--out", "thesis.tex")
    assert code == 2 and "is a file" in err
    code, _, err = call(*HOPPER, "--out", "thesis.tex/results")
    assert code == 2 and err.count("\n") == 1


def test_a_spec_file_with_an_unknown_key_is_refused(call: Call, tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    for text, words in {
        'env = "Hopper"\ncapcity = [1, 4]\n': ["capcity", "capacity", "spec.toml"],
        'env = "Hopper"\n[settings]\nlearning_rat = 0.1\n': ["learning_rat", "learning_rate"],
        'env = "Hopper"\nseeds = "three"\n': ["seeds", "three"],
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
