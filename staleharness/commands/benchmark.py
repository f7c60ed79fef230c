"""`staleharness benchmark`: the verdict of StaleBench on one method."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from shlex import quote
from typing import Annotated

from .shared.arguments import SWITCH, Help, JsonOption, PluginOption, Resources


@dataclass(frozen=True)
class Command(JsonOption, PluginOption, Resources):
    """Make the missing runs of one method in a track of StaleBench, and compare it with all other methods."""

    algo: Annotated[str | None, Help("NAME")] = None
    """The method, e.g. my_idea or vaco[delta=0.1]."""
    track: Annotated[str, Help("tokens|tokens_uniform|control|paper", "tokens")] = "tokens"
    """tokens and tokens_uniform take minutes, control hours, paper days."""
    quick: Annotated[bool, SWITCH] = False
    """Run two seeds at the learning rates of PPO-clip: a preview, not a result."""
    one_rate: Annotated[bool, SWITCH] = False
    """Run all seeds at the learning rates of PPO-clip, without tuning: half of the runs, no leaderboard row."""
    add: Annotated[str | None, Help("BUNDLE")] = None
    """Bundle made elsewhere; its rows are checked and shown beside the others."""
    out: Annotated[str, Help("FOLDER", "results/stalebench")] = "results/stalebench"
    """Folder for the runs and the page."""
    dry: Annotated[bool, SWITCH] = False
    """Only print what would run and how long it would take."""


def handle(command: Command) -> int:
    from .. import api
    from ..base.parsing import user_path
    from ..base.text_formatting import plural
    from ..errors import UserError
    from ..pages.leaderboard_page import write_page
    from ..running.benchmark_runs import benchmark_method, missing_runs_of, run_method, table_of
    from ..running.forecast import estimate
    from ..running.leaderboard_submission import third_party_runs
    from ..running.plan import Plan, plan_as_data
    from ..statistics.benchmark.benchmark_row import REFERENCE, USER
    from ..statistics.benchmark.benchmark_table import remarks, verdict
    from ..statistics.benchmark.protocol import method_of, preview_seeds, read_protocol
    from ..store.store import Store
    from .shared.progress_display import listener_for
    from .shared.train_and_report import print_failure, runner_of

    protocol = read_protocol(command.track)
    if command.algo is None and command.add is None:
        raise UserError("ALGO is missing; give a method, e.g. ALGO=my_idea, or ADD=bundle for a row made elsewhere")
    api.load_plugins(command.plugin)
    others = third_party_runs(protocol, None if command.add is None else user_path(command.add))
    store = Store(user_path(command.out) / protocol.track)
    store.check()
    look = preview_seeds(protocol, command.quick, command.one_rate, command.algo)
    name, result = None, None
    missing, guess = Plan((), protocol.name, protocol.name), estimate((), store, 1)
    if command.algo is not None:
        name = benchmark_method(protocol, command.algo)
        missing = replace(missing, runs=tuple(missing_runs_of(protocol, name, store, look, command.restart)))
        capacity = runner_of(command, missing, store).capacity if missing.runs else 1
        guess = estimate(missing.runs, store, capacity or 1)
        to_do = f"{plural(len(missing.runs), 'run')} to do; {guess.text}"
        print(f"stalebench {protocol.track}: {name}: {to_do}", file=sys.stderr)
    if command.add is not None:
        print(f"stalebench {protocol.track}: ADD={command.add} follows the protocol", file=sys.stderr)
    if command.dry:
        if command.json:
            content = {"dry": True, "plan": plan_as_data(missing), "seconds": guess.seconds, "bytes": guess.bytes}
            print(json.dumps(content | {"checkpoint_bytes": guess.checkpoints}, sort_keys=True))
        return 0
    if name is not None:
        result = run_method(
            protocol,
            name,
            store,
            lambda stage: runner_of(command, stage, store),
            lambda stage, done: listener_for(len(stage.runs), done),
            look,
            command.restart,
        )
        for run_id, failure in result.failed.items():
            print_failure(store, run_id, failure["run"], failure)
        if result.interrupted:
            print(f"stopped with {plural(result.missing, 'run')} to go; the same command resumes", file=sys.stderr)
            if command.json:
                print(json.dumps({"stopped": True, "missing": result.missing}))
            return 130
    table, sources = table_of(protocol, result, others, store, look)
    source = USER if name is not None and table.row(name, protocol.capacity[0], USER) else REFERENCE
    keys = [*([] if name is None else [(name, source)]), *(row for row in table.methods if row[1] in others)]
    hint = []
    if result is not None and not result.missing and not look and source == USER:
        code = result.runs[0].code
        codes = {run.code for run in store.read_all() if method_of(run) == name}
        option = f" --code={code}" if codes != {code} else ""
        bundle = f"{quote(command.out)}/{protocol.track} {quote(f'{name}_row')}{option}"
        hint = [f"to share this row: staleharness pack {bundle}"]
    lines = [line for row in keys for line in remarks(table, *row)]
    store.open_for_writing()  # not done yet if no run was missing
    path = write_page(store.root, table, protocol, sources, [*lines, *hint])
    if command.json:
        print(json.dumps(table.to_json(), sort_keys=True))
    else:
        print("\n\n".join(verdict(table, *row) for row in keys))
        print(*hint, f"page: {path}", sep="\n")
    return 1 if result is not None and result.missing else 0
