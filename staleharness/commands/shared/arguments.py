"""Options that several verbs share, and their form in the help."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from ...base.parsing import user_path
from ...errors import UserError

if TYPE_CHECKING:
    from ...statistics.results import Results
    from ...store.store import Store
    from ...store.stored_run import StoredRun


class Help(NamedTuple):
    """Form of a `Command` field in the help; its text there is the field's docstring. A field without a default is a
    positional argument."""

    metavar: str
    default: str = ""
    """The default as shown in the help."""


def flag_of(name: str) -> str:
    """Flag of a field of a `Command`."""
    return f"--{name.replace('_', '-')}"


SWITCH = Help("")


@dataclass(frozen=True)
class JsonOption:
    """Output for programs."""

    json: Annotated[bool, SWITCH] = False
    """Print one JSON object at the end of stdout."""


@dataclass(frozen=True)
class PluginOption:
    """Plugins of the user."""

    plugin: Annotated[str | None, Help("PATH,...")] = None
    """Plugin files or folders to load besides the built-in ones."""


@dataclass(frozen=True)
class ResultsFolder:
    """Folder that results are read from."""

    out: Annotated[str, Help("FOLDER", "results")] = "results"
    """Folder with results."""


@dataclass(frozen=True)
class GridOptions(PluginOption):
    """Grid of runs and their settings. Lists are separated by commas or spaces."""

    env: Annotated[str | None, Help("NAME,...")] = None
    """Environments, e.g. Hopper or Hopper,Walker2d; `staleharness list` names them."""
    k: Annotated[str | None, Help("K,...", "1")] = None
    """Capacities of the policy buffer, e.g. 8 or 1,4,8,16. K=1 is on-policy."""
    algo: Annotated[str | None, Help("NAME,...|all", "the core methods")] = None
    """Algorithms, e.g. ppo_clip,vaco[delta=0.1], or all that the task supports; `staleharness list` names them."""
    seeds: Annotated[str | None, Help("N|SEED,...", "3")] = None
    """Number of seeds, 0 to N-1, or a list: 3,4,5."""
    steps: Annotated[str | None, Help("N", "the preset's")] = None
    """Steps per run, e.g. 1e6, in whole phases: environment steps, or optimiser steps on tokens and chains."""
    preset: Annotated[str | None, Help("NAME", "quick")] = None
    """Size of a run: quick takes minutes, standard about 1M steps; stress is word-problems under enough lag to tell
    methods apart; smollm2 and smollm2_gsm8k train a real model; paper and a3po are as published (VACO Tables 1 and 2;
    A-3PO Setup 1)."""
    lag: Annotated[str | None, Help("MODEL", "the preset's, or uniform")] = None
    """Lag model: uniform, oldest, fixed:L, geometric[decay=0.7] and more; uniform/sync:M adds a sync every M phases;
    `staleharness list` names them."""
    mismatch: Annotated[str | None, Help("MODEL,...", "none")] = None
    """Mismatch between sampler and trainer: none, fp8, int4, noise:0.2, sampling[top_p=0.95] and more, joined by +."""
    n: Annotated[str | None, Help("N,...", "the preset's")] = None
    """Forward lag of language tasks and chains: minibatches per generation round, e.g. 1,4,16."""
    model: Annotated[str | None, Help("NAME|FOLDER", "the task's")] = None
    """Language model: a hub name or a folder that transformers can load."""
    data: Annotated[str | None, Help("FOLDER", "the task's")] = None
    """Folder with train.jsonl and test.jsonl."""
    set: Annotated[str | None, Help("NAME=VALUE,...")] = None
    """Other settings, e.g. learning_rate=1e-4,num_envs=32."""
    spec: Annotated[str | None, Help("FILE.toml")] = None
    """TOML file of a study, which defines a sweep; flags override it."""
    device: Annotated[str | None, Help("cpu|cuda", "cpu")] = None
    """Device of the networks (physics stays on the CPU)."""
    out: Annotated[str, Help("FOLDER", "results")] = "results"
    """Folder for results."""


@dataclass(frozen=True)
class Resources:
    """Resources: the runner, and how many runs at a time."""

    jobs: Annotated[str | None, Help("N", "as many as fit")] = None
    """Runs at a time. By default, on this machine, one per core, memory permitting."""
    runner: Annotated[str, Help("local|ray|slurm", "local")] = "local"
    """Executor of the runs: this machine, the machines of a Ray cluster ($RAY_ADDRESS), or Slurm, if started on a
    machine of its cluster."""
    runs_per_gpu: Annotated[str | None, Help("N", "1 with a cluster")] = None
    """Runs that share a GPU, with --device=cuda."""
    memory: Annotated[str | None, Help("SIZE", "what stored runs took")] = None
    """Main memory that each run may take, e.g. 2G; fewer runs execute at a time if memory is the limit."""
    restart: Annotated[bool, SWITCH] = False
    """Start a run over if none of its checkpoints can be used here (they were made with another library or processor).
    They are kept beside the run. Without this flag, such a run is refused."""
    slurm: Annotated[str, Help("OPTIONS")] = ""
    """With --runner=slurm, options for sbatch, e.g. '--partition=gpu --time=4:00:00'."""


@dataclass(frozen=True)
class Presentation(JsonOption):
    """Presentation of results."""

    normalise: Annotated[str, Help("minmax|ppo|frozen|raw", "auto")] = "auto"
    """Scale of the scores: worst and best run of the table, PPO-clip at K=1, frozen constants (default where there are
    any), or none (default for language)."""
    score: Annotated[str, Help("sampled|deterministic", "auto")] = "auto"
    """Evaluation to use: sampled actions (default for control), or deterministic ones (greedy; default for
    language)."""


@dataclass(frozen=True)
class RunFilters:
    """Filters on stored runs."""

    env: Annotated[str | None, Help("NAME,...", "all")] = None
    """Only these environments."""
    k: Annotated[str | None, Help("K,...", "all")] = None
    """Only these capacities."""
    algo: Annotated[str | None, Help("NAME,...", "all")] = None
    """Only these algorithms, as the table names them."""
    where: Annotated[str | None, Help("NAME=VALUE,...")] = None
    """Only runs with these settings, e.g. lag=oldest,learning_rate=3e-4."""

    def select(self, store: Store, folder: str) -> Results:
        """Select the finished runs of a folder, named `folder` in errors. Raises `UserError` if none matches, or for a
        name that no run has."""
        (runs,) = self.select_each({folder: store})
        return runs

    def select_each(self, stores: Mapping[str, Store]) -> list[Results]:
        """Select the finished runs of several folders, keyed by their names in errors. Raises `UserError` if no run of
        a folder matches, or for a name that no run in any folder has."""
        from ...statistics.results import Results
        from ...store.run_grid import Cell, cell_of
        from ...store.run_selection import cell_filter, filter_runs

        is_selected = cell_filter(self.env, self.k, self.algo)
        cells, selections, errors = list[Cell](), list[Results](), list[UserError]()
        for folder, store in stores.items():
            store.check_readable(folder)
            all_runs = Results.of(store.read_all())
            runs = Results(tuple(filter_runs(all_runs, is_selected, self.where)))
            if not runs:
                errors.append(no_run(folder, all_runs))
            cells += map(cell_of, all_runs)
            selections.append(runs)
        is_selected.check(cells)  # names the nearest name
        if errors:
            raise errors[0]
        return selections


def no_run(folder: str, runs: Iterable[StoredRun]) -> UserError:
    """Return the error for filters that select none of a folder's finished runs; it lists what there is."""
    from ...statistics.run_set_matching import holdings
    from ...store.run_grid import cell_of

    cells = [cell_of(run) for run in runs]
    return UserError(f"{folder} holds no finished run" + (f" that matches; it has {holdings(cells)}" if cells else ""))


def output_file(out: str | None, kind: str, *endings: str, option: str = "OUT") -> Path | None:
    """Return the path of a file to write (None for none), checked before anything is computed. Raises `UserError`."""
    if out is None:
        return None
    path = user_path(out)
    if path.suffix not in endings or path.is_dir():
        raise UserError(f"{option}={out!r} is not the name of a {kind}; give one that ends in {', '.join(endings)}")
    if not path.parent.is_dir():
        raise UserError(f"{option}={out}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UserError(f"{option}={out}: the folder {path.parent} cannot be written")
    return path
