"""The command line: `staleharness sweep | run | list | status | report | new`.

Exit code 0: all is well. 1: some runs failed or are missing. 2: a mistake in what was asked, one line on stderr.
130: stopped by Ctrl-C, the same command goes on.
"""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .errors import UserError, nearest

if TYPE_CHECKING:
    from .plan import Plan, PlannedRun
    from .store import Store, StoredRun
    from .sweep import Outcome
    from .tables import Table


@dataclass(frozen=True)
class Grid:
    """What to run. Lists are separated by commas or spaces."""

    env: str | None = None
    """Environments, e.g. Hopper or Hopper,Walker2d."""
    k: str | None = None
    """Capacities K of the policy buffer, e.g. 8 or 1,4,8,16. K=1 is on-policy."""
    algo: str | None = None
    """Algorithms, e.g. ppo_clip,vaco[delta=0.1]; all registered ones by default."""
    seeds: str | None = None
    """How many seeds (3)."""
    steps: str | None = None
    """Environment steps per run; the preset's by default."""
    preset: str | None = None
    """quick | standard | paper."""
    lag: str | None = None
    """Lag model: uniform | fixed:<phases>."""
    set: str | None = None
    """Other settings, e.g. learning_rate=1e-4,num_envs=32."""
    spec: str | None = None
    """A TOML file with the same content; flags win over it."""
    device: str | None = None
    """cpu | cuda: where the networks live (physics stays on the CPU)."""
    out: str = "results"
    """Folder for results."""
    plugin: str | None = None
    """Plugin files or folders to load besides the built-in ones."""


@dataclass(frozen=True)
class Shown:
    """How results are shown."""

    normalise: str = "minmax"
    """minmax over all runs of the table | ppo (PPO-clip at K=1) | frozen constants."""
    score: str = "sampled"
    """sampled | deterministic evaluation returns."""
    json: bool = False
    """Print one JSON object last on stdout."""


@dataclass(frozen=True)
class Sweep(Grid, Shown):
    """Train every algorithm x environment x capacity x seed that is not stored yet, then show table and report."""

    jobs: str | None = None
    """Runs at a time; one per core by default."""
    dry: bool = False
    """Only say what would be run, how long and how much disk."""


@dataclass(frozen=True)
class Run(Grid, Shown):
    """Train one algorithm on one environment with one capacity and one seed."""

    seed: str = "0"
    """The seed."""


@dataclass(frozen=True)
class List:
    """Algorithms and environments that can be run."""

    plugin: str | None = None
    """Plugin files or folders to load besides the built-in ones."""
    json: bool = False
    """Print one JSON object."""


@dataclass(frozen=True)
class Status:
    """What is done, running, stopped and failed in a results folder."""

    out: str = "results"
    """Folder with results."""
    json: bool = False
    """Print one JSON object."""


@dataclass(frozen=True)
class Report(Shown):
    """Table and report again, from stored results only; filters take what matches."""

    env: str | None = None
    """Only these environments."""
    k: str | None = None
    """Only these capacities."""
    algo: str | None = None
    """Only these algorithms, by the label they were run under."""
    out: str = "results"
    """Folder with results."""


@dataclass(frozen=True)
class New:
    """Write a working plugin file to start from."""

    kind: str
    """algorithm | env"""
    name: str
    """Name of the plugin, like my_idea."""
    folder: str | None = None
    """Where to put the file; the checkout's own folder by default."""


COMMANDS: dict[str, Any] = {
    "sweep": Sweep,
    "run": Run,
    "list": List,
    "status": Status,
    "report": Report,
    "new": New,
}


def main() -> None:
    """Entry point; ends the process with the command's exit code."""
    try:
        code = _dispatch(_parse(sys.argv[1:]))
    except UserError as error:
        print(f"staleharness: {error}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = 0
        sys.stderr.close()
    sys.exit(code)


def _parse(arguments: list[str]) -> Any:
    """The command as one of the dataclasses above. Unknown words get one line with the nearest known one."""
    import tyro

    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        raise UserError(f"no command is called {arguments[0]!r}; {nearest(arguments[0], COMMANDS)}")
    if arguments and arguments[0] in COMMANDS:
        flags = {f.name for f in fields(COMMANDS[arguments[0]])} | {"help"}
        for word in arguments[1:]:
            name = word.partition("=")[0].removeprefix("--")
            if word.startswith("--") and name.removeprefix("no-").replace("-", "_") not in flags:
                raise UserError(f"{arguments[0]} has no option --{name}; {nearest(name, flags)}")
    union: Any = None
    for name, command in COMMANDS.items():
        choice = Annotated[(command, tyro.conf.subcommand(name))]  # type: ignore[valid-type]
        union = choice if union is None else union | choice
    config = (tyro.conf.PositionalRequiredArgs, tyro.conf.FlagCreatePairsOff)
    return tyro.cli(union, prog="staleharness", description=__doc__, args=arguments, config=config)


def _dispatch(command: Any) -> int:
    handlers: dict[type, Any] = {
        Sweep: _sweep, Run: _run, List: _list, Status: _status, Report: _report, New: _new,
    }  # fmt: skip
    return int(handlers[type(command)](command))


def _load_plugins(plugin: str | None) -> None:
    from .plugins import add_user_path
    from .spec import split_list

    for path in split_list(plugin or ""):
        add_user_path(path)


def _planned(command: Grid) -> Plan:
    from .plan import ask, plan

    _load_plugins(command.plugin)
    return plan(
        ask(
            env=command.env,
            k=command.k,
            algo=command.algo,
            seeds=command.seeds,
            steps=command.steps,
            preset=command.preset,
            lag=command.lag,
            device=command.device,
            settings=command.set,
            spec_file=command.spec,
        )
    )


def _check_shown(command: Shown) -> None:
    for what, value, known in (
        ("NORMALISE", command.normalise, ("minmax", "ppo", "frozen")),
        ("SCORE", command.score, ("sampled", "deterministic")),
    ):
        if value not in known:
            raise UserError(f"{what}={value!r} is unknown; {nearest(value, known)}")


def _sweep(command: Sweep) -> int:
    from .plan import usable_cores, whole_number
    from .store import Store

    _check_shown(command)
    planned = _planned(command)
    threads = planned.runs[0].spec.threads
    jobs = (
        whole_number(command.jobs, "JOBS") if command.jobs is not None else max(1, usable_cores() // threads)
    )
    if jobs < 1:
        raise UserError(f"JOBS={jobs} must be at least 1")
    store = Store(command.out)
    store.check()
    if command.dry:
        return _dry(command, planned, store, jobs)
    return _execute(command, planned, store, jobs)


def _run(command: Run) -> int:
    from dataclasses import replace

    from .plan import Plan, whole_number
    from .store import Store

    _check_shown(command)
    seed = whole_number(command.seed, "SEED")
    if seed < 0:
        raise UserError(f"SEED={seed} must not be negative")
    planned = _planned(replace(command, seeds=str(seed + 1)))
    runs = tuple(run for run in planned.runs if run.spec.seed == seed)
    if len(runs) != 1:
        raise UserError(
            f"run takes one environment, algorithm and capacity; this names {len(runs)} (use sweep)"
        )
    store = Store(command.out)
    store.check()
    name = f"{planned.name}-{runs[0].label}-seed{seed}"
    return _execute(command, Plan(runs, name, planned.title), store, jobs=1)


def _execute(command: Grid | Shown, planned: Plan, store: Store, jobs: int) -> int:
    from .display import listener_for
    from .sweep import sweep

    store.open_for_writing()
    stored = store.read_all(
        run.run_id for run in planned.runs
    )  # a damaged run is found out here, and run again
    if len(stored) < len(planned.runs):
        _say_plan(planned, len(stored), jobs)
        listener: Any = listener_for(len(planned.runs), len(stored))
        try:
            outcome = sweep(planned.runs, store, jobs, listener)
        finally:
            listener.close()
        stored = store.read_all(run.run_id for run in planned.runs)
    else:
        outcome = _all_done(planned)
    return _show(command, planned, store, stored, outcome)


def _all_done(planned: Plan) -> Outcome:
    from .sweep import Outcome

    return Outcome(skipped=[run.run_id for run in planned.runs])


def _say_plan(planned: Plan, done: int, jobs: int) -> None:
    from .plan import settings_line

    grid = (
        f"{len(planned.labels)} algorithms x {len(planned.envs)} envs x {len(planned.capacities)} capacities"
    )
    waiting = f"{len(planned.runs) - done} of {len(planned.runs)} runs to do, {jobs} at a time"
    print(f"{planned.title}: {grid}; {waiting}; each {settings_line(planned.runs[0].spec)}", file=sys.stderr)


def _show(command: Any, planned: Plan, store: Store, stored: list[StoredRun], outcome: Outcome) -> int:
    """Table and report of what there is, and an exit code that says whether it is all."""
    from .display import describe
    from .tables import printable

    expected = [_expected(run, outcome) for run in planned.runs]
    failures = [
        {**event, "id": run.run_id, **_expected(run, outcome)}
        for run in planned.runs
        if (event := outcome.failed.get(run.run_id))
    ]
    table, page = _publish(command, store, planned.name, planned.title, stored, expected, failures)
    for run in planned.runs:
        if failure := outcome.failed.get(run.run_id):
            words = f"failed: {describe(run)}: {failure['class']}: {failure['message']}"
            print(printable(words), file=sys.stderr)
            print(f"        log: {store.attempt_dir(run.run_id) / 'log.txt'}", file=sys.stderr)
    if outcome.interrupted:
        left = len(planned.runs) - len(stored)
        print(f"stopped with {left} runs to go; the same command goes on: {_command_line()}", file=sys.stderr)
    if command.json:
        runs = {"done": outcome.done, "failed": sorted(outcome.failed), "skipped": outcome.skipped}
        content = {"runs": runs, "table": table.rows, "notes": table.notes, "settings": table.settings}
        print(json.dumps({**content, "report": str(page) if page else None}, sort_keys=True))
    if outcome.interrupted:
        return 130
    return 1 if len(stored) < len(planned.runs) else 0


def _expected(run: PlannedRun, outcome: Outcome) -> dict[str, Any]:
    spec, failure = run.spec, outcome.failed.get(run.run_id)
    place = {"label": run.label, "capacity": spec.capacity, "env": spec.env, "seed": spec.seed}
    return {**place, "problem": failure["class"] if failure else None}


def _publish(
    command: Any,
    store: Store,
    name: str,
    title: str,
    stored: list[StoredRun],
    expected: list[dict[str, Any]],
    failures: list[dict[str, Any]],
) -> tuple[Table, Path | None]:
    """Compute (or find) the table, print it, and write the report where something changed."""
    from . import report, stats
    from .tables import plain, render

    folder = store.root / "reports" / name
    folder.mkdir(parents=True, exist_ok=True)
    table = stats.cached_table(folder, stored, expected, score=command.score, normalise=command.normalise)
    if not stored:
        print("no run has finished yet, so there is no table", file=sys.stderr)
        return table, None
    if sys.stdout.isatty() and not command.json:
        from rich.console import Console

        console = Console()
        console.print(table.headline, style="bold", highlight=False, markup=False)
        console.print(render(table, console.width))
        for note in table.notes:
            console.print(f"note: {note}", highlight=False, markup=False)
    else:
        print(plain(table), file=sys.stderr if command.json else sys.stdout)
    page = report.write(folder, stored, table, failures, _command_line(), title)
    print(f"report: {page}", file=sys.stderr if command.json else sys.stdout)
    return table, page


def _dry(command: Sweep, planned: Plan, store: Store, jobs: int) -> int:
    from .estimate import estimate

    missing = [run for run in planned.runs if not store.is_done(run.run_id)]
    guess = estimate(missing, store, jobs)
    _say_plan(planned, len(planned.runs) - len(missing), jobs)
    for run in planned.runs:
        state = "to do" if run in missing else "done"
        line = (
            f"{run.run_id}  {state:5}  {run.label} {run.spec.env} K={run.spec.capacity} seed {run.spec.seed}"
        )
        print(line, file=sys.stderr if command.json else sys.stdout)
    print(guess.text, file=sys.stderr if command.json else sys.stdout)
    if command.json:
        from .plan import dump

        done = {run.run_id for run in planned.runs} - {run.run_id for run in missing}
        cells = [{**cell, "done": cell["id"] in done} for cell in dump(planned)]
        print(
            json.dumps(
                {"dry": True, "plan": cells, "seconds": guess.seconds, "bytes": guess.bytes}, sort_keys=True
            )
        )
    return 0


def _list(command: List) -> int:
    from .catalogue import as_text, catalogue

    _load_plugins(command.plugin)
    content = catalogue()
    print(json.dumps(content, sort_keys=True) if command.json else as_text(content))
    return 0


def _status(command: Status) -> int:
    from .status import as_text, status
    from .store import Store

    content = status(_existing(Store(command.out)))
    print(json.dumps(content, sort_keys=True) if command.json else as_text(content))
    return 0


def _report(command: Report) -> int:
    from .plan import whole_number
    from .spec import split_list
    from .store import Store
    from .task import find_env

    _check_shown(command)
    store = _existing(Store(command.out))
    stored = store.read_all()
    envs = {find_env(env)[0] for env in split_list(command.env or "")}
    capacities = {whole_number(k, "K") for k in split_list(command.k or "")}
    labels = set(split_list(command.algo or ""))
    chosen = [
        run
        for run in stored
        if (not envs or run.spec["env"] in envs)
        and (not capacities or run.spec["capacity"] in capacities)
        and (not labels or run.record["label"] in labels)
    ]
    if not chosen:
        raise UserError(f"OUT={command.out} holds no finished run{' that matches' if stored else ''}")
    parts = [part for part in (command.env, command.k and f"K{command.k}", command.algo) if part]
    name = (
        "-".join("".join(c if c.isalnum() or c in "+.=_" else "+" for c in part) for part in parts) or "all"
    )
    table, page = _publish(
        command, store, f"report-{name}"[:100], f"Stored runs in {command.out}", chosen, [], []
    )
    if command.json:
        print(json.dumps({"table": table.rows, "notes": table.notes, "report": str(page)}, sort_keys=True))
    return 0


def _existing(store: Store) -> Store:
    if not (store.root / "runs").is_dir():
        raise UserError(f"OUT={store.root} holds no results yet; `staleharness sweep` makes some")
    return store


def _new(command: New) -> int:
    from .scaffold import write

    path = write(command.kind, command.name, command.folder)
    print(f"wrote {path}")
    plugin = f" --plugin {shlex.quote(str(path))}" if command.folder is not None else ""
    flag = "--algo" if command.kind == "algorithm" else "--env"
    other = "--env Hopper" if command.kind == "algorithm" else "--algo ppo_clip"
    name = (
        command.name
        if command.kind == "algorithm"
        else "".join(p.capitalize() for p in command.name.split("_"))
    )
    print(f"try: staleharness sweep {other} {flag} {name} --k 8{plugin}")
    return 0


def _command_line() -> str:
    return shlex.join(["staleharness", *sys.argv[1:]])
