"""`staleharness reproduce`: from a paper's figure to the runs it needs, to the figure."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

from .commands import Reproduce, Shown
from .execute import execute, jobs_for, read_planned
from .files import user_path
from .gallery import make, show
from .papers import bundle_path, chosen, experiments, read_paper
from .study import ask, check_scale_name


def reproduce(command: Reproduce) -> int:
    """Run every study that the wanted figures rest on, then draw them into `<out>/figures`. Exit code as of a sweep."""
    from .estimate import estimate
    from .plan import plan
    from .store import Store

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
        said = []
        for study, planned, store in plans:
            done = {run.id for run in read_planned(store, planned)}
            missing = [run for run in planned.runs if run.run_id not in done]
            guess = estimate(missing, store, jobs_for(command.jobs, planned))
            said.append({
                "study": study, "runs": len(planned.runs), "done": len(done), "seconds": guess.seconds,
                "bytes": guess.bytes,
            })  # fmt: skip
            line = f"{study} ({command.scale}): {len(done)} of {len(planned.runs)} runs done; {guess.text}"
            print(line, file=sys.stderr if command.json else sys.stdout)
        if command.json:
            print(json.dumps({"dry": True, "studies": said}, sort_keys=True))
        return 0
    for _, _, store in plans:
        store.check()
    for _, planned, store in plans:
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
