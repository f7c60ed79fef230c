"""Functions of `import staleharness as sh`, for notebooks and scripts; the command line is a thin layer over them.

Nothing here prints, and a mistake of the user is a `UserError`, raised before anything is written. Heavy modules are
imported where they are used, so that reading results loads no torch and no plugin.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import UserError
from .running import in_process_run
from .running.api_arguments import check_folder, check_types, parse_arguments, refuse_empty, text_of
from .running.api_arguments import load_plugins as load_plugins  # commands import it from here

if TYPE_CHECKING:
    from .running.plan import Plan
    from .statistics.benchmark.benchmark_table import BenchmarkTable
    from .statistics.results import Results
    from .training.phase_record import PhaseRecord

Names = str | Iterable[str]  # "Hopper,Ant" or ["Hopper", "Ant"]
Numbers = int | str | Iterable[int]  # 8, "1,8" or [1, 8]
Paths = str | Path | Iterable[str | Path]
Settings = str | Mapping[str, Any]  # "epochs=2" or {"epochs": 2}
ProgressCallback = Callable[[dict[str, Any]], None]


class RunsFailed(RuntimeError):
    """Error of a sweep in which some runs did not finish; all others did and are stored.

    failed: id of a run -> {event, class, message, log_tail, ...}. results: the runs that finished.
    """

    def __init__(self, message: str, failed: Mapping[str, Mapping[str, Any]], results: Results) -> None:
        super().__init__(message)
        self.failed, self.results = dict(failed), results


def _check_thread(noun: str) -> None:
    """Raise `UserError` outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        raise UserError(f"start a {noun} from the main thread, the only one that receives Ctrl-C")


def plan(
    *,
    env: Names | None = None,
    k: Numbers | None = None,
    algo: Names | None = None,
    seeds: Numbers | None = None,
    steps: float | str | None = None,
    preset: str | None = None,
    lag: str | None = None,
    mismatch: Names | None = None,
    n: Numbers | None = None,
    model: str | Path | None = None,
    data: str | Path | None = None,
    device: str | None = None,
    settings: Settings | None = None,
    spec: str | Path | None = None,
    scale: str = "small",
    plugin: Paths | None = None,
) -> Plan:
    """Plan the runs of a sweep, with every setting resolved. Runs and writes nothing.

    env, algo: names, as a list or separated by commas, `["vaco[delta=0.1]", "spo"]`; no algo: the core methods.
    k: capacities of the policy buffer. n: minibatches per generation round, for tasks that have such rounds.
    seeds: number of seeds (0, 1, ...), or a list of them, `[3, 4]` or "3,4".
    steps, preset, lag, mismatch, model, data, device: as in `staleharness sweep --help`.
    settings: other settings of a run by name, e.g. `{"learning_rate": 1e-4}`.
    spec: TOML file of a sweep; other arguments override it. scale: its grid, `small` or `paper`.
    plugin: files or folders with algorithms and environments to add to the built-in ones, e.g. `"my_idea.py"`.

    Raises `UserError` for anything that cannot be run.
    """
    arguments = {name: value for name, value in locals().items() if name != "plugin"}
    from .running.plan import plan as resolve

    refuse_empty(**arguments, plugin=plugin)
    load_plugins(plugin)
    return resolve(*parse_arguments(**arguments))


def sweep(
    *,
    env: Names | None = None,
    k: Numbers | None = None,
    algo: Names | None = None,
    seeds: Numbers | None = None,
    steps: float | str | None = None,
    preset: str | None = None,
    lag: str | None = None,
    mismatch: Names | None = None,
    n: Numbers | None = None,
    model: str | Path | None = None,
    data: str | Path | None = None,
    device: str | None = None,
    settings: Settings | None = None,
    spec: str | Path | None = None,
    scale: str = "small",
    plugin: Paths | None = None,
    out: str | Path = "results",
    jobs: int | None = None,
    runner: str = "local",
    runs_per_gpu: int | None = None,
    memory: str | None = None,
    slurm: str | None = None,
    restart: bool = False,
    progress: ProgressCallback | None = None,
) -> Results:
    """Train every algorithm × environment × capacity × seed that is not stored in `out` yet, and return the results of
    all of them. The arguments are those of `plan`.

        sh.sweep(env="Hopper", k=[1, 8], algo=["ppo_clip", "vaco"], seeds=3, settings={"learning_rate": 1e-4})

    jobs: runs at a time, each in its own process; by default one per core, memory permitting.
    runner: where they run: `"local"` (this machine), `"ray"` (a cluster, $RAY_ADDRESS) or `"slurm"`.
    runs_per_gpu, memory: how many runs share a GPU, and the main memory of each (`"2G"`; else what stored runs took).
    slurm: with `runner="slurm"`, options of sbatch: `"--partition=gpu --time=4:00:00"`.
    restart: start a run over if none of its checkpoints can be used here (they are kept); otherwise it is refused.
    progress: called with plain data when a run starts, while it prepares (a warm start), after each of its phases and
        when it ends: {event, id, algorithm, env, capacity, seed, ...}, where event is `started`, `preparing`, `phase`,
        `done`, `failed` or `stopped`.

    Workers get names and numbers and never execute the caller's script, so that a script needs no
    `if __name__ == "__main__"`. For the same reason, your own algorithm must be in a file of its own: see `plugin`.

    Raises `UserError` for a mistake in what was asked, before anything is written; `RunsFailed` where a run failed,
    once all others have ended; `KeyboardInterrupt` when stopped, after checkpoints: the same call resumes.
    """
    arguments = {name: value for name, value in locals().items() if name in (plan.__kwdefaults__ or {})}
    from .running.plan_execution import execute_plan, runner_for
    from .running.sweep_event_loop import CallbackListener
    from .statistics.results import Results
    from .store.store import Store

    _check_thread("sweep")
    check_folder("out", out)
    refuse_empty(jobs=jobs, runner=runner, runs_per_gpu=runs_per_gpu, memory=memory, slurm=slurm)
    check_types(progress, runner=runner, slurm=slurm or "")
    grid_plan = plan(**arguments)
    store = Store(out)
    store.check()
    job_runner = runner_for(
        grid_plan, store, text_of(jobs), runner, text_of(runs_per_gpu), text_of(memory), slurm or ""
    )
    listener = CallbackListener(progress)
    outcome, runs = execute_plan(grid_plan, store, job_runner, lambda done: contextlib.nullcontext(listener), restart)
    if outcome.interrupted:
        raise KeyboardInterrupt(f"stopped with {len(grid_plan.runs) - len(runs)} runs to go")
    ids = {run.id for run in runs}
    if missing := [run for run in grid_plan.runs if run.run_id not in ids]:
        unreadable = {"class": "Damaged", "message": "the run ended, but what it stored cannot be read"}
        failed = {run.run_id: outcome.failed.get(run.run_id, unreadable) for run in missing}
        lines = [
            f"{run.text}: {event['class']}: {event['message']}"
            for run, event in zip(missing, failed.values(), strict=True)
        ]
        text = "; ".join([f"{len(missing)} of the runs failed; the others are stored", *lines])
        raise RunsFailed(text, failed, Results.of(runs))
    return Results.of(runs)


def benchmark(
    algo: str | None = None,
    *,
    track: str = "tokens",
    quick: bool = False,
    one_rate: bool = False,
    add: str | Path | None = None,
    plugin: Paths | None = None,
    out: str | Path = "results/stalebench",
    jobs: int | None = None,
    restart: bool = False,
    progress: ProgressCallback | None = None,
) -> BenchmarkTable:
    """Run what is missing of one method in a track of StaleBench, and return the table of all methods with its rows.

        table = sh.benchmark("my_idea", plugin="my_idea.py", track="tokens")
        table.row("my_idea", 16).holm

    track: `"tokens"`, `"tokens_uniform"`, minutes; `"control"`, hours; `"paper"`, days.
    No algo: the published rows, and those of `add`. Where reported runs diverged, a row has `divergences` and no score.
    quick: two seeds at the learning rates of PPO-clip (a preview, not a result). one_rate: all seeds at these rates.
    add: a third party's bundle, whose rows are checked and listed with the others. restart: as in `sweep`.

    Raises `UserError` before anything is written; `RunsFailed` where a run failed, once all others have ended;
    `KeyboardInterrupt` when stopped: the same call resumes.
    """
    from .base.parsing import user_path
    from .running.benchmark_runs import DIVERGED, benchmark_method, run_method, table_of
    from .running.leaderboard_submission import third_party_runs
    from .running.plan_execution import runner_for
    from .running.sweep_event_loop import CallbackListener
    from .statistics.benchmark.protocol import preview_seeds, read_protocol
    from .statistics.results import Results
    from .store.store import Store

    if algo is not None:
        _check_thread("benchmark")
    refuse_empty(algo=algo, track=track, add=add, jobs=jobs)
    check_folder("out", out)
    check_types(progress, algo="" if algo is None else algo, track=track)
    protocol = read_protocol(track)
    load_plugins(plugin)
    store, result = Store(Path(out) / protocol.track), None
    store.check()
    others = third_party_runs(protocol, None if add is None else user_path(str(add)))
    look = preview_seeds(protocol, quick, one_rate, algo)
    if algo is not None:
        name, listener = benchmark_method(protocol, algo), contextlib.nullcontext(CallbackListener(progress))
        make_runner = partial(runner_for, store=store, jobs=text_of(jobs))
        result = run_method(protocol, name, store, make_runner, lambda *_: listener, look, restart)
        if result.interrupted:
            raise KeyboardInterrupt(f"stopped with {result.missing} runs to go")
        lost = {key: event for key, event in result.failed.items() if event["class"] != DIVERGED}
        if lost:
            lines = [f"{event['run']}: {event['class']}: {event['message']}" for event in lost.values()]
            raise RunsFailed("; ".join([f"{len(lost)} of the runs failed", *lines]), lost, Results.of(result.runs))
    return table_of(protocol, result, others, store, look)[0]


def simulate(
    *,
    env: str,
    algo: str = "ppo_clip",
    k: int = 1,
    n: int | None = None,
    seed: int = 0,
    steps: float | str | None = None,
    preset: str | None = None,
    lag: str | None = None,
    mismatch: str | None = None,
    plugin: Paths | None = None,
    keep_data: bool = False,
    **settings: Any,
) -> Iterator[PhaseRecord]:
    """Simulate one run in this process, phase by phase; writes nothing.

        for phase in sh.simulate(env="Hopper", algo="vaco", k=8, learning_rate=1e-4):
            print(phase.metrics["lag_mean"], phase.seconds["learn"])

    n, seed: one number each. settings: those of a run by name, as in `sweep(settings=...)`. The other arguments are
    those of `plan`. Each record has `metrics`, bit for bit those that a sweep stores; `seconds`; `scores` where the
    policy was evaluated, as it is after the last phase; and with `keep_data` the `data` trained on, a `batch.Rollout`
    or `batch.Completions`. Between phases, your settings of torch and your global random generators are restored;
    threads that simulate take turns. Raises `UserError` at once.
    """
    arguments = {name: value for name, value in locals().items() if name not in ("seed", "keep_data")}
    if "settings" in settings:
        raise UserError("simulate takes settings by name, without settings=...: simulate(..., learning_rate=1e-4)")
    with in_process_run.TURN:  # plugins load once, and trying out an environment may draw from global generators
        grid_plan = plan(**arguments, seeds=[seed])
    if len(grid_plan.runs) != 1:
        raise UserError(
            "simulate takes one environment, one algorithm and one capacity; these arguments give "
            f"{len(grid_plan.runs)} runs (use sweep)"
        )
    return in_process_run.phases(grid_plan.runs[0].spec, keep_data)


def load(folder: str | Path = "results") -> Results:
    """The finished runs of a results folder or of a published bundle. Raises `UserError` where there is none."""
    from .statistics.results import load as read

    check_folder("folder", folder)
    return read(folder)


def list_algorithms(plugin: Paths | None = None) -> list[dict[str, Any]]:
    """The algorithms that can be run, each {name, summary, paper, hyper_parameters, file, family, core, ...}."""
    return _catalogue(plugin, "algorithms")


def list_envs(plugin: Paths | None = None) -> list[dict[str, Any]]:
    """The environments that can be run, each {name, summary, aliases, family, file, ...}."""
    return _catalogue(plugin, "envs")


def list_lags(plugin: Paths | None = None) -> list[dict[str, Any]]:
    """The lag models that can be asked for, each {name, summary, paper, hyper_parameters, file, ...}."""
    return _catalogue(plugin, "lags")


def list_mismatches(plugin: Paths | None = None) -> list[dict[str, Any]]:
    """The mismatch models that can be asked for, each {name, summary, paper, hyper_parameters, file, ...}."""
    return _catalogue(plugin, "mismatches")


def _catalogue(plugin: Paths | None, kind: str) -> list[dict[str, Any]]:
    from .running.plugin_listing import catalogue

    load_plugins(plugin)
    return catalogue()[kind]
