"""`staleharness reproduce`: from a paper's figure to the runs it needs, to the figure."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.files import user_path
from ..pages.gallery import make, show
from ..pages.papers import chosen, experiments, read_paper
from ..store.bundle import bundle_path
from ..store.store import MARKER, Store
from ..store.study import ask, check_scale_name
from .arguments import Reproduce, Shown
from .execute import execute, jobs_for, read_planned

if TYPE_CHECKING:
    from ..running.plan import Plan


def reproduce(command: Reproduce) -> int:
    """Run every study that the wanted figures rest on, then draw them into `<out>/figures`. A run that several of
    them ask for is made once. Exit code as of a sweep."""
    from ..running.plan import plan

    check_scale_name(command.scale)
    paper, figures = read_paper(command.paper)
    wanted = chosen(figures, command.fig)
    out, code = user_path(command.out), 0
    plans = []
    for study in dict.fromkeys(f.entry.study for f in wanted):
        file = experiments() / f"{study}.toml"
        if (
            command.scale != "small"
            and command.fig is None
            and not next(f.question.paper for f in wanted if f.entry.study == study)
        ):
            print(f"{study}: has no scale of the paper's own and is left out", file=sys.stderr)
            continue
        planned = plan(ask(spec_file=str(file), scale=command.scale, device=command.device))
        plans.append((study, planned, Store(bundle_path(out, study, command.scale))))
    if command.dry:
        _say(command, plans, out)
        return 0
    for _, _, store in plans:
        store.check()
    for _, planned, store in plans:
        store.open_for_writing()
        labels = {run.run_id: run.label for run in planned.runs}
        with store.locked():
            taken = sum(store.adopt(other, labels) for other in _others(store, out))
        if taken:
            print(
                f"{store.root.name}: {taken} runs are other studies', too, and were copied", file=sys.stderr
            )
        shown = Shown(json=False)
        # On standard output there is one JSON object at most.
        with contextlib.redirect_stdout(sys.stderr) if command.json else contextlib.nullcontext():
            code = max(code, execute(shown, planned, store, jobs_for(command.jobs, planned)))
        if code == 130:
            return code
    entries = show(wanted, out, command.scale)
    pictures = make(paper, command.paper, entries, [f.name for f in wanted], out / "figures")
    if command.json:
        states: dict[str, Any] = {s.figure.name: s.state for s in entries}
        print(json.dumps({"paper": command.paper, "figures": states, "folder": str(out / "figures")}))
    else:
        print("\n".join(f"figure: {path}" for path in pictures))
    return code


def _others(store: Store, out: Path) -> list[Store]:
    """The other studies' results in the folder."""
    return [Store(marker.parent) for marker in sorted(out.glob(f"*/{MARKER}")) if marker.parent != store.root]


def _say(command: Reproduce, plans: Sequence[tuple[str, Plan, Store]], out: Path) -> None:
    """What there is to run, study by study, and how long it takes."""
    from ..running.estimate import estimate

    said = []
    shared: set[tuple[str, str]] = set()  # (id, label) of runs that an earlier study of this call makes
    for study, planned, store in plans:
        held = {(run.id, run.record["label"]) for other in _others(store, out) for run in other.read_all()}
        done = {run.id for run in read_planned(store, planned)}
        missing = [
            run
            for run in planned.runs
            if run.run_id not in done and (run.run_id, run.label) not in held | shared
        ]
        shared |= {(run.run_id, run.label) for run in planned.runs}
        guess = estimate(missing, store, jobs_for(command.jobs, planned))
        said.append({
            "study": study, "runs": len(planned.runs), "done": len(planned.runs) - len(missing),
            "seconds": guess.seconds, "bytes": guess.bytes,
        })  # fmt: skip
        line = f"{study} ({command.scale}): {len(missing)} of {len(planned.runs)} runs to do; {guess.text}"
        print(line, file=sys.stderr if command.json else sys.stdout)
    if command.json:
        print(json.dumps({"dry": True, "studies": said}, sort_keys=True))
