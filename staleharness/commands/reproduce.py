"""`staleharness reproduce`: the runs that the figures of a paper need, and the figures drawn from them."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .shared.arguments import SWITCH, Help, JsonOption, Presentation, Resources

if TYPE_CHECKING:
    from ..running.plan import Plan, PlannedRun
    from ..store.store import Store


CORES = 2  # shared by the published runs
EXAMPLES: tuple[dict[str, str | bool], ...] = ({"fig": "3"}, {"dry": True}, {"scale": "paper"})  # examples of a command


@dataclass(frozen=True)
class Command(JsonOption, Resources):
    """Make the runs that the figures of a paper need, except those already stored, then draw the figures. Without
    --paper and --fig, list the available studies and what each takes."""

    paper: Annotated[str | None, Help("NAME", "vaco with --fig")] = None
    """The paper, by its folder in experiments/."""
    fig: Annotated[str | None, Help("NAME", "all")] = None
    """One figure: its number in the paper, or the name of its file."""
    scale: Annotated[str, Help("small|paper", "small")] = "small"
    """Scale of the runs: small takes hours on two cores, paper is as in the paper."""
    device: Annotated[str | None, Help("cpu|cuda", "cpu")] = None
    """Device of the networks."""
    out: Annotated[str, Help("FOLDER", "results/reproduced")] = "results/reproduced"
    """Folder for the figures and the results, with a subfolder per study."""
    dry: Annotated[bool, SWITCH] = False
    """Only print what would run, and how much time and disk it would take, as far as stored runs tell."""
    probe: Annotated[bool, SWITCH] = False
    """With --dry, measure the speed here for a few seconds if no stored run tells it."""


def handle(command: Command) -> int:
    """Run the study of every selected figure, then draw the figures into `<out>/figures`. A run that several studies
    ask for is made once. The exit code is that of a sweep."""
    from .. import api
    from ..base.files import make_subfolder
    from ..base.parsing import user_path
    from ..base.text_formatting import plural
    from ..errors import UserError
    from ..pages.paper_figure_data import load_figures
    from ..pages.paper_figure_specs import experiments, read_paper, select_figures
    from ..pages.paper_gallery import check_pages, make
    from ..store.store import Store
    from ..store.study_runs import bundle_path
    from ..study import check_scale_name
    from .shared.train_and_report import execute, runner_of

    check_scale_name(command.scale)
    if command.paper is None and command.fig is None:
        for field in fields(command):
            if field.name != "json" and getattr(command, field.name) != field.default:
                raise UserError(f"{field.name.upper()} is for the runs of a paper; give PAPER=NAME or FIG=NAME with it")
        return _list(command)
    name = command.paper or "vaco"
    paper, figures = read_paper(name)
    selection = select_figures(figures, command.fig)
    out, code = user_path(command.out), 0
    plans = []
    for study in dict.fromkeys(f.entry.study for f in selection):
        file = experiments() / f"{study}.toml"
        has_scale = command.scale == "small" or next(f.request.paper for f in selection if f.entry.study == study)
        if command.fig in (None, "all") and not has_scale:
            print(f"{study}: left out, as its file has no table [paper] that defines SCALE=paper", file=sys.stderr)
            continue
        plan = api.plan(spec=file, scale=command.scale, device=command.device)
        plans.append((study, plan, Store(bundle_path(out, study, command.scale))))
    if not plans:
        raise UserError(
            f"PAPER={name}: none of its studies has a table [paper] that defines SCALE=paper; leave out SCALE"
        )
    for _, plan, store in plans:
        store.check()
        runner_of(command, plan, store)  # before anything is written
    if command.dry or command.probe:
        _print_dry_run(command, plans, out)
        return 0
    figures_name = bundle_path(Path(), "figures", command.scale).name
    check_pages(paper, figures, [f.name for f in selection], out / figures_name)
    folder = make_subfolder(out, figures_name)
    for study, plan, store in plans:
        store.open_for_writing()
        labels = {run.run_id: run.label for run in plan.runs}
        with store.hold():
            copies = sum(store.adopt(other, labels) for other in _others(store, out))
        if copies:
            print(f"{store.root.name}: copied {plural(copies, 'run')} from other studies", file=sys.stderr)
        options = Presentation(json=False)
        # Standard output has at most one JSON object.
        with contextlib.redirect_stdout(sys.stderr) if command.json else contextlib.nullcontext():
            code = max(code, execute(options, plan, store, runner_of(command, plan, store), command.restart))
        if code == 130:
            if command.json:
                print(json.dumps({"paper": name, "figures": {}, "folder": None, "stopped": True, "study": study}))
            return code
    entries = load_figures(selection, out, command.scale)
    pictures = make(paper, figures, entries, [f.name for f in selection], folder)
    if command.json:
        states: dict[str, Any] = {s.figure.name: s.state for s in entries}
        print(json.dumps({"paper": name, "figures": states, "folder": str(folder)}))
    else:
        print("\n".join(f"figure: {path}" for path in pictures))
    return code


def _list(command: Command) -> int:
    """Print every study that figures rest on, with its runs, hours and disk: as published, for two cores."""
    from ..base.reference_results import PLACE
    from ..base.table_formatting import fixed_width
    from ..base.text_formatting import duration, invocation, megabytes, number
    from ..pages.paper_figure_specs import paper_names, read_paper
    from ..running.forecast import disk_bytes
    from ..store.store import Store
    from ..store.study_runs import find_bundle

    rows: list[dict[str, Any]] = []
    for name in paper_names():
        _, figures = read_paper(name)
        for study in dict.fromkeys(f.entry.study for f in figures):
            study_figures = [f for f in figures if f.entry.study == study]
            runs = len(study_figures[0].request.cells()) * len(study_figures[0].request.seed_numbers)
            path = find_bundle(Path(*PLACE), study)
            stored_runs = Store(path).read_all() if path.is_dir() else []
            seconds = sum(run.record["seconds"]["total"] for run in stored_runs) / max(1, len(stored_runs))
            space = sum(disk_bytes(run.record["phases"]) for run in stored_runs) / max(1, len(stored_runs))
            rows.append(
                {
                    "paper": name,
                    "study": study,
                    "figures": [f.number or f.name for f in study_figures],
                    "runs": runs,
                    "seconds": runs * seconds / CORES if stored_runs else None,
                    "bytes": runs * space if stored_runs else None,
                }
            )
    if command.json:
        print(json.dumps({"studies": rows}, sort_keys=True))
        return 0
    lines = []
    for row in rows:
        size = megabytes(row["bytes"]) if row["bytes"] else number(None)
        lines.append([row["paper"], row["study"], str(row["runs"]), duration(row["seconds"]), size])
    head, rule, *table = fixed_width(["PAPER", "study", "runs", f"on {CORES} cores", "disk"], lines)
    print(f"{head}  FIG\n{rule}  ---")
    for line, row in zip(table, rows, strict=True):
        print(f"{line}  {' '.join(row['figures'])}")
    single, dry, paper_scale = (invocation("reproduce", paper="vaco", **options) for options in EXAMPLES)
    print(f"{single} makes one; {dry} says what is left; {paper_scale} takes days on a large machine")
    return 0


def _others(store: Store, out: Path) -> list[Store]:
    """Results of other studies in the folder, but no bundles: they have no folders of runs to copy."""
    from ..store.bundle_reader import is_packed
    from ..store.results_folder_checks import folders_of_results
    from ..store.store import Store

    return [Store(root) for root in folders_of_results(out) if root != store.root and not is_packed(root)]


def _group_lines(runs: Sequence[PlannedRun]) -> list[str]:
    """Lines, one per algorithm and set of seeds: `  vaco: K=1 HalfCheetah-v5, K=16 HalfCheetah-v5; seeds 0, 1`."""
    seeds: dict[tuple[str, int, str], list[int]] = {}
    for run in runs:
        seeds.setdefault((run.label, run.spec.capacity, run.spec.env), []).append(run.spec.seed)
    cells: dict[tuple[str, tuple[int, ...]], dict[int, list[str]]] = {}
    for (label, k, env), numbers in seeds.items():
        cells.setdefault((label, tuple(sorted(numbers))), {}).setdefault(k, []).append(env)
    lines = []
    for (label, seed_numbers), envs_by_k in cells.items():
        places = "; ".join(f"K={k} on {', '.join(sorted(envs))}" for k, envs in sorted(envs_by_k.items()))
        if len({tuple(sorted(envs)) for envs in envs_by_k.values()}) == 1:
            shared_envs = ", ".join(sorted(next(iter(envs_by_k.values()))))
            places = f"K={','.join(map(str, sorted(envs_by_k)))} on {shared_envs}"
        noun = "seed" if len(seed_numbers) == 1 else "seeds"
        lines.append(f"  {label}: {places}; {noun} {', '.join(map(str, seed_numbers))}")
    return lines


def _print_dry_run(command: Command, plans: Sequence[tuple[str, Plan, Store]], out: Path) -> None:
    """Print the missing runs, study by study, and how long they take."""
    from ..running.forecast import estimate
    from ..running.plan_execution import stored_runs_of
    from .shared.train_and_report import runner_of

    studies = []
    earlier_runs: set[tuple[str, str]] = set()  # (id, label) of the runs of earlier studies of this call
    for study, plan, store in plans:
        copies = {(run.id, run.record["label"]) for other in _others(store, out) for run in other.read_all()}
        done = {run.id for run in stored_runs_of(plan, store)}
        missing = [
            run for run in plan.runs if run.run_id not in done and (run.run_id, run.label) not in copies | earlier_runs
        ]
        earlier_runs |= {(run.run_id, run.label) for run in plan.runs}
        jobs = runner_of(command, plan, store).capacity
        guess = estimate(missing, store, jobs or 1, command.probe)
        studies.append(
            {
                "study": study,
                "runs": len(plan.runs),
                "done": len(plan.runs) - len(missing),
                "seconds": guess.seconds,
                "bytes": guess.bytes,
                "checkpoint_bytes": guess.checkpoints,
                "missing": [
                    {
                        "id": run.run_id,
                        "algorithm": run.label,
                        "env": run.spec.env,
                        "K": run.spec.capacity,
                        "seed": run.spec.seed,
                    }
                    for run in missing
                ],
            }
        )
        line = f"{study} ({command.scale}): {len(missing)} of {len(plan.runs)} runs to do; {guess.text}"
        print(line, file=sys.stderr if command.json else sys.stdout)
        if not command.json:
            print("\n".join(_group_lines(missing)), end="\n" if missing else "")
    if command.json:
        print(json.dumps({"dry": True, "studies": studies}, sort_keys=True))
