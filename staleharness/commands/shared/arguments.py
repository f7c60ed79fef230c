"""What verbs take in common, and how `--help` shows an option."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple


class Help(NamedTuple):
    """How `--help` shows a field of a `Command`; what it means is the field's docstring."""

    metavar: str
    default: str = ""


def value(metavar: str, default: str = "") -> Help:
    """An option: what to write, and what counts when it is left out."""
    return Help(metavar, default)


def flag_of(name: str) -> str:
    """How a field of a `Command` is given."""
    return f"--{name.replace('_', '-')}"


def place(metavar: str) -> Help:
    """A word that is given by its place."""
    return Help(metavar)


SWITCH = Help("")


@dataclass(frozen=True)
class Grid:
    """What to run. Lists are separated by commas or spaces."""

    env: Annotated[str | None, value("NAME,...")] = None
    """Environments, e.g. Hopper or Hopper,Walker2d; `staleharness list` names them."""
    k: Annotated[str | None, value("K,...", "1")] = None
    """Capacities of the policy buffer, e.g. 8 or 1,4,8,16. K=1 is on-policy."""
    algo: Annotated[str | None, value("NAME,...|all", "the core methods")] = None
    """Algorithms, e.g. ppo_clip,vaco[delta=0.1], or all that the task can serve; `staleharness list` names them."""
    seeds: Annotated[str | None, value("N|SEED,...", "3")] = None
    """How many seeds, 0 to N-1, or which: 3,4,5."""
    steps: Annotated[str | None, value("N", "the preset's")] = None
    """Steps per run, e.g. 100000 or 1e6, in whole phases: environment steps, or optimiser steps on tokens and bits."""
    preset: Annotated[str | None, value("quick|standard|stress|paper|a3po", "quick")] = None
    """How big a run is: quick takes minutes, standard about 1M steps; stress is word-problems under lag that tells
    methods apart; paper and a3po are as published (VACO Tables 1 and 2; A-3PO Setup 1)."""
    lag: Annotated[str | None, value("MODEL", "the preset's, or uniform")] = None
    """Lag model: uniform, oldest, fixed:L, geometric[decay=0.7] and more; uniform/sync:M adds a sync every M phases;
    `staleharness list` names them."""
    n: Annotated[str | None, value("N,...", "the preset's")] = None
    """Forward lag of language tasks and chains: minibatches per generation round, e.g. 1,4,16."""
    model: Annotated[str | None, value("NAME|FOLDER", "the task's")] = None
    """Language model: a hub name or a folder that transformers can load."""
    data: Annotated[str | None, value("FOLDER", "the task's")] = None
    """Folder with train.jsonl and test.jsonl."""
    set: Annotated[str | None, value("NAME=VALUE,...")] = None
    """Other settings, e.g. learning_rate=1e-4,num_envs=32."""
    spec: Annotated[str | None, value("FILE.toml")] = None
    """TOML file of a study, which asks for a sweep; flags override it."""
    device: Annotated[str | None, value("cpu|cuda", "cpu")] = None
    """Where the networks live (physics stays on the CPU)."""
    out: Annotated[str, value("FOLDER", "results")] = "results"
    """Folder for results."""
    plugin: Annotated[str | None, value("PATH,...")] = None
    """Plugin files or folders to load besides the built-in ones."""


@dataclass(frozen=True)
class Room:
    """Where runs are carried out, and how many at a time."""

    jobs: Annotated[str | None, value("N", "as many as fit")] = None
    """Runs at a time. By default, on this machine, one per core as far as memory allows."""
    runner: Annotated[str, value("local|ray|slurm", "local")] = "local"
    """What carries out the runs: this machine, the machines of a Ray cluster ($RAY_ADDRESS), or Slurm, if started on a
    machine of its cluster."""
    runs_per_gpu: Annotated[str | None, value("N", "1 with a cluster")] = None
    """Runs that share a GPU, with --device=cuda."""
    memory: Annotated[str | None, value("SIZE", "what stored runs took")] = None
    """Main memory that each run may take, e.g. 2G; fewer run at a time where memory is the limit."""
    restart: Annotated[bool, SWITCH] = False
    """Start a run over where none of its checkpoints can be used here (made with another library or processor). They
    stay beside it. Without this flag such a run is refused."""
    slurm: Annotated[str, value("OPTIONS")] = ""
    """With --runner=slurm, options for sbatch, e.g. '--partition=gpu --time=4:00:00'."""


@dataclass(frozen=True)
class Shown:
    """How results are shown."""

    normalise: Annotated[str, value("minmax|ppo|frozen|raw", "auto")] = "auto"
    """Scale of the scores: worst and best run of the table (control), PPO-clip at K=1, frozen constants, or none
    (language)."""
    score: Annotated[str, value("sampled|deterministic", "auto")] = "auto"
    """Which evaluation counts: sampled actions (control), or deterministic ones (greedy, language)."""
    json: Annotated[bool, SWITCH] = False
    """Print one JSON object last on stdout."""


@dataclass(frozen=True)
class Chosen:
    """Which stored runs; filters take what matches."""

    env: Annotated[str | None, value("NAME,...", "all")] = None
    """Only these environments."""
    k: Annotated[str | None, value("K,...", "all")] = None
    """Only these capacities."""
    algo: Annotated[str | None, value("NAME,...", "all")] = None
    """Only these algorithms, as the table names them."""
    where: Annotated[str | None, value("NAME=VALUE,...")] = None
    """Only runs with these settings, e.g. lag=oldest,learning_rate=3e-4."""
