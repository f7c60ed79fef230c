"""What the command line takes: one frozen dataclass per command, and strict reading of the words into one of them."""

from __future__ import annotations

import sys
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any

import tyro

from ..errors import UserError, nearest

DESCRIPTION = """Policy lag as a controlled, reproducible variable.

`staleharness COMMAND --help` says what each takes. Exit code 0: all is well. 1: some runs failed or are missing.
2: a mistake in what was asked, one line on stderr. 130: stopped by Ctrl-C, the same command goes on.
"""


def _value(metavar: str, default: str = "") -> Any:
    """How `--help` shows an option: what to write, and what counts when it is left out."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"[{default}]" if default else "")


_SWITCH = tyro.conf.arg(help_behavior_hint="")


@dataclass(frozen=True)
class Grid:
    """What to run. Lists are separated by commas or spaces."""

    env: Annotated[str | None, _value("NAME,...")] = None
    """Environments, e.g. Hopper or Hopper,Walker2d; `staleharness list` names them."""
    k: Annotated[str | None, _value("K,...", "1")] = None
    """Capacities of the policy buffer, e.g. 8 or 1,4,8,16. K=1 is on-policy."""
    algo: Annotated[str | None, _value("NAME,...|all", "the core methods")] = None
    """Algorithms, e.g. ppo_clip,vaco[delta=0.1], or all that the task can serve; `staleharness list` names them."""
    seeds: Annotated[str | None, _value("N", "3")] = None
    """How many seeds: 0 to N-1."""
    steps: Annotated[str | None, _value("N", "the preset's")] = None
    """Environment steps per run, e.g. 100000 or 1e6, whole phases of it; optimiser steps on tokens and bits."""
    preset: Annotated[str | None, _value("quick|standard|paper|a3po", "quick")] = None
    """How big a run is: minutes, about 1M steps, or as published (VACO Tables 1 and 2; A-3PO Setup 1)."""
    lag: Annotated[str | None, _value("MODEL", "uniform")] = None
    """Lag model: uniform, oldest, fixed:L, geometric[decay=0.7] and more; uniform/sync:M adds a sync; `staleharness
    list` names them."""
    n: Annotated[str | None, _value("N,...", "the preset's")] = None
    """Forward lag of language tasks and chains: minibatches per generation round, e.g. 1,4,16."""
    model: Annotated[str | None, _value("NAME|FOLDER", "the task's")] = None
    """Language model: a hub name or a folder that transformers can load."""
    data: Annotated[str | None, _value("FOLDER", "the task's")] = None
    """Folder with train.jsonl and test.jsonl."""
    set: Annotated[str | None, _value("NAME=VALUE,...")] = None
    """Other settings, e.g. learning_rate=1e-4,num_envs=32."""
    spec: Annotated[str | None, _value("FILE.toml")] = None
    """A file that asks for a sweep; flags win over it."""
    device: Annotated[str | None, _value("cpu|cuda", "cpu")] = None
    """Where the networks live (physics stays on the CPU)."""
    out: Annotated[str, _value("FOLDER", "results")] = "results"
    """Folder for results."""
    plugin: Annotated[str | None, _value("PATH,...")] = None
    """Plugin files or folders to load besides the built-in ones."""


@dataclass(frozen=True)
class Shown:
    """How results are shown."""

    normalise: Annotated[str, _value("minmax|ppo|frozen|raw", "auto")] = "auto"
    """Scale of the scores: worst and best run of the table (control), PPO-clip at K=1, frozen constants, or none
    (language)."""
    score: Annotated[str, _value("sampled|deterministic", "auto")] = "auto"
    """Which evaluation counts: sampled actions (control), or deterministic ones (greedy, language)."""
    json: Annotated[bool, _SWITCH] = False
    """Print one JSON object last on stdout."""


@dataclass(frozen=True)
class Sweep(Shown, Grid):
    """Train every algorithm x environment x capacity x seed that is not stored yet, then show table and report."""

    jobs: Annotated[str | None, _value("N", "one per core")] = None
    """Runs at a time."""
    dry: Annotated[bool, _SWITCH] = False
    """Only say what would be run, how long and how much disk."""


@dataclass(frozen=True)
class Run(Shown, Grid):
    """Train one algorithm on one environment with one capacity and one seed."""

    seed: Annotated[str, _value("N", "0")] = "0"
    """The seed; --seeds has no meaning here."""


@dataclass(frozen=True)
class List:
    """Algorithms and environments that can be run."""

    plugin: Annotated[str | None, _value("PATH,...")] = None
    """Plugin files or folders to load besides the built-in ones."""
    json: Annotated[bool, _SWITCH] = False
    """Print one JSON object."""


@dataclass(frozen=True)
class Status:
    """What is done, running, stopped and failed in a results folder."""

    out: Annotated[str, _value("FOLDER", "results")] = "results"
    """Folder with results."""
    json: Annotated[bool, _SWITCH] = False
    """Print one JSON object."""


@dataclass(frozen=True)
class Chosen:
    """Which stored runs; filters take what matches."""

    env: Annotated[str | None, _value("NAME,...", "all")] = None
    """Only these environments."""
    k: Annotated[str | None, _value("K,...", "all")] = None
    """Only these capacities."""
    algo: Annotated[str | None, _value("NAME,...", "all")] = None
    """Only these algorithms, as the table names them."""


@dataclass(frozen=True)
class Report(Shown, Chosen):
    """Table and report again, from stored results only; filters take what matches."""

    out: Annotated[str, _value("FOLDER", "results")] = "results"
    """Folder with results."""


@dataclass(frozen=True)
class Figures:
    """Draw the figures of a paper from published results, with what it claims and what we saw. Trains nothing."""

    paper: Annotated[str, _value("NAME", "vaco")] = "vaco"
    """The paper, by its folder in experiments/."""
    fig: Annotated[str | None, _value("NAME", "all")] = None
    """One figure: its number in the paper, or the name of its file."""
    scale: Annotated[str, _value("small|paper", "small")] = "small"
    """Whose runs: at the small scale, or at the paper's own."""
    bundles: Annotated[str, _value("FOLDER", "results/reference")] = "results/reference"
    """Where the results lie, one folder per study."""
    out: Annotated[str, _value("FOLDER", "docs/gallery")] = "docs/gallery"
    """Where pictures and pages go."""
    json: Annotated[bool, _SWITCH] = False
    """Print one JSON object."""


@dataclass(frozen=True)
class Reproduce:
    """Make the runs that figures of a paper need (what is stored counts), then draw the figures from them."""

    paper: Annotated[str, _value("NAME", "vaco")] = "vaco"
    """The paper, by its folder in experiments/."""
    fig: Annotated[str | None, _value("NAME", "all")] = None
    """One figure: its number in the paper, or the name of its file."""
    scale: Annotated[str, _value("small|paper", "small")] = "small"
    """How big: hours of two cores, or what the paper ran."""
    jobs: Annotated[str | None, _value("N", "one per core")] = None
    """Runs at a time."""
    device: Annotated[str | None, _value("cpu|cuda", "cpu")] = None
    """Where the networks live."""
    out: Annotated[str, _value("FOLDER", "results/reproduced")] = "results/reproduced"
    """Folder for results, one below it per study, and for the figures."""
    dry: Annotated[bool, _SWITCH] = False
    """Only say which runs, how long and how much disk."""
    json: Annotated[bool, _SWITCH] = False
    """Print one JSON object."""


@dataclass(frozen=True, kw_only=True)
class Compare(Shown, Chosen):
    """Two results folders side by side: B − A in every cell that both have, with intervals."""

    a: Annotated[str, tyro.conf.arg(metavar="A", help_behavior_hint="")]
    """Folder with results, e.g. published ones: results/reference/staleness_halfcheetah."""
    b: Annotated[str, tyro.conf.arg(metavar="B", help_behavior_hint="")]
    """Folder with results to hold against it, e.g. yours: results."""
    out: Annotated[str | None, _value("FILE.csv")] = None
    """Write the comparison as CSV."""


@dataclass(frozen=True, kw_only=True)
class Export(Chosen):
    """Stored runs for other tools, each run under its own id: exporting again changes nothing."""

    kind: Annotated[str, tyro.conf.arg(metavar="tensorboard|wandb|csv", help_behavior_hint="")]
    """What to write: event files, W&B runs (offline; `wandb sync` sends them), or metrics.csv and runs.csv."""
    out: Annotated[str, _value("FOLDER", "results")] = "results"
    """Folder with results."""
    to: Annotated[str | None, _value("FOLDER", "OUT/exports/KIND")] = None
    """Where to write."""
    json: Annotated[bool, _SWITCH] = False
    """Print one JSON object."""


@dataclass(frozen=True, kw_only=True)
class Pack:
    """Results as a bundle of few files to publish: every number of every run, none of the folders."""

    source: Annotated[str, tyro.conf.arg(metavar="OUT", help_behavior_hint="")]
    """Folder with results."""
    to: Annotated[str, tyro.conf.arg(metavar="TO", help_behavior_hint="")]
    """Folder for the bundle; one that is there is replaced, if nothing of it gets lost."""
    spec: Annotated[str | None, _value("FILE.toml", "all runs")] = None
    """The study whose runs are taken."""


@dataclass(frozen=True, kw_only=True)
class Unpack:
    """A bundle as a folder of results that a sweep goes on from."""

    source: Annotated[str, tyro.conf.arg(metavar="BUNDLE", help_behavior_hint="")]
    """A bundle, e.g. results/reference/vaco_control."""
    to: Annotated[str, tyro.conf.arg(metavar="OUT", help_behavior_hint="")]
    """Folder for results; runs that it has stay as they are."""


@dataclass(frozen=True)
class New:
    """Write a working plugin file to start from."""

    kind: Annotated[str, tyro.conf.arg(metavar="algorithm|env|lag", help_behavior_hint="")]
    """What to write."""
    name: Annotated[str, tyro.conf.arg(metavar="NAME", help_behavior_hint="")]
    """Name of the plugin, like my_idea."""
    folder: Annotated[str | None, _value("FOLDER")] = None
    """Where to put the file; a checkout's own plugin folder by default."""


COMMANDS: dict[str, Any] = {
    "sweep": Sweep,
    "run": Run,
    "list": List,
    "status": Status,
    "report": Report,
    "figures": Figures,
    "reproduce": Reproduce,
    "compare": Compare,
    "export": Export,
    "pack": Pack,
    "unpack": Unpack,
    "new": New,
}


def parse(arguments: list[str]) -> Any:
    """The command as one of the dataclasses above. Raises `UserError` with the nearest known word."""
    first = arguments[0] if arguments else "--help"
    if first == "--version":
        from .. import __version__

        print(__version__)
        sys.exit(0)
    if first in COMMANDS:
        _check_words(first, arguments[1:])
    elif first not in ("-h", "--help"):
        raise UserError(f"no command is called {first!r}; {nearest(first, COMMANDS)}")
    union: Any = None
    for name, command in COMMANDS.items():
        choice = Annotated[(command, tyro.conf.subcommand(name))]  # type: ignore[valid-type]
        union = choice if union is None else union | choice
    config = (tyro.conf.PositionalRequiredArgs, tyro.conf.FlagCreatePairsOff)
    return tyro.cli(
        union, prog="staleharness", description=DESCRIPTION, args=arguments or ["--help"], config=config
    )


def _check_words(command: str, words: list[str]) -> None:
    """Raise `UserError` for the first word that is out of place, in one line."""
    known = {f"--{f.name}": f for f in fields(COMMANDS[command])}
    free = [f.name for f in known.values() if f.default is MISSING]
    seen: set[str] = set()
    rest = iter(words)
    for word in rest:
        flag, equals, _ = word.partition("=")
        if word in ("-h", "--help"):
            return
        if not word.startswith("-"):
            if not free:
                raise UserError(
                    f"{command}: {word!r} belongs to no option; write lists with commas, like --k=1,8"
                )
            free.pop(0)
            continue
        if flag not in known or known[flag].default is MISSING:
            raise UserError(f"{command} has no option {flag}; {nearest(flag, [*known, '--help'])}")
        if flag in seen:
            raise UserError(f"{command}: {flag} is given more than once")
        seen.add(flag)
        if isinstance(known[flag].default, bool):
            if equals:
                raise UserError(f"{command}: {flag} is a switch, it takes no value")
        elif not equals and next(rest, "--").partition("=")[0] in ("--", *known):
            raise UserError(f"{command}: {flag} needs a value")
    if free:
        raise UserError(
            f"{command} needs {' and '.join(name.upper() for name in free)}, see {command} --help"
        )
