"""The command line: `staleharness sweep | run | list | status | report | figures | reproduce | compare | export |
pack | unpack | new`.

`staleharness COMMAND --help` says what each takes. Exit code 0: all is well. 1: some runs failed or are missing.
2: a mistake in what was asked, one line on stderr. 130: stopped by Ctrl-C, the same command goes on.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import logging
import os
import re
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .commands.arguments import (
    Compare,
    Export,
    Figures,
    Grid,
    List,
    New,
    Pack,
    Report,
    Reproduce,
    Run,
    Shown,
    Status,
    Sweep,
    Unpack,
    parse,
)
from .errors import UserError, nearest

if TYPE_CHECKING:
    from .running.plan import Plan


FILE_TROUBLE = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENAMETOOLONG, errno.EIO,
)  # fmt: skip


def main() -> None:
    """Entry point; ends the process with the command's exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without our signs gets question marks
    # What the rooms below note while they read is a plain line on stderr.
    logging.getLogger("staleharness").handlers = [logging.StreamHandler(sys.stderr)]
    try:
        code = _dispatch(parse(sys.argv[1:]))
        sys.stdout.flush()
    except UserError as error:
        code = _complain(str(error))
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 0
    except OSError as error:
        if error.errno not in FILE_TROUBLE:
            raise
        code = _complain(f"{error.filename or 'standard output'}: {error.strerror}")
    sys.exit(code)


def _complain(words: str) -> int:
    """One line on stderr, whatever is in the words."""
    from .base.text import printable

    with contextlib.suppress(OSError):
        print(f"staleharness: {printable(words)}", file=sys.stderr)
    return 2


def _dispatch(command: Any) -> int:
    handlers: dict[type, Any] = {
        Sweep: _sweep, Run: _run, List: _list, Status: _status, Report: _report, Figures: _figures,
        Reproduce: _reproduce, Compare: _compare, Export: _export, Pack: _pack, Unpack: _unpack,
        New: _new,
    }  # fmt: skip
    return int(handlers[type(command)](command))


def _load_plugins(plugin: str | None) -> None:
    from .base.files import user_path
    from .base.parsing import split_list
    from .base.plugins import add_user_path

    if plugin is not None:
        whole = plugin and user_path(plugin).exists()  # a path may have commas, spaces and brackets in it
        for path in [plugin] if whole else split_list(plugin):
            add_user_path(path)


def _planned(command: Grid, seeds: Sequence[int] | None = None) -> Plan:
    from .running.plan import plan
    from .store.study import ask

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
            n=command.n,
            model=command.model,
            data=command.data,
            device=command.device,
            settings=command.set,
            spec_file=command.spec,
        ),
        seeds,
    )


def _check_shown(command: Shown) -> None:
    from .statistics.normalise import NORMALISATIONS
    from .statistics.scores import SCORES

    for what, value, known in (
        ("NORMALISE", command.normalise, ("auto", *NORMALISATIONS)),
        ("SCORE", command.score, ("auto", *SCORES)),
    ):
        if value not in known:
            raise UserError(f"{what}={value!r} is unknown; {nearest(value, known)}")


def _sweep(command: Sweep) -> int:
    from .commands.execute import dry, execute, jobs_for
    from .statistics.normalise import check_scale
    from .store.store import Store

    _check_shown(command)
    planned = _planned(command)
    check_scale(command.normalise, command.score, planned.envs, planned.labels, planned.capacities)
    jobs = jobs_for(command.jobs, planned)
    store = Store(command.out)
    store.check()
    if command.dry:
        return dry(command, planned, store, jobs)
    return execute(command, planned, store, jobs)


def _run(command: Run) -> int:
    from .base.parsing import whole_number
    from .commands.execute import execute
    from .running.plan import Plan
    from .store.store import Store

    _check_shown(command)
    seed = whole_number(command.seed, "SEED")
    if seed < 0:
        raise UserError(f"SEED={seed} must not be negative")
    if command.seeds is not None:
        raise UserError("run takes one --seed, not --seeds (use sweep)")
    planned = _planned(command, [seed])
    if len(planned.runs) != 1:
        raise UserError(
            f"run takes one environment, algorithm and capacity; this names {len(planned.runs)} (use sweep)"
        )
    store = Store(command.out)
    store.check()
    name = _folder_name(planned.name, planned.runs[0].label, f"seed{seed}")
    return execute(command, Plan(planned.runs, name, planned.title), store, jobs=1)


def _list(command: List) -> int:
    from .running.catalogue import as_text, catalogue

    _load_plugins(command.plugin)
    content = catalogue()
    print(json.dumps(content, sort_keys=True) if command.json else as_text(content))
    return 0


def _status(command: Status) -> int:
    from .store.status import as_text, status
    from .store.store import Store

    store = Store(command.out)
    store.check_readable()
    content = status(store)
    print(json.dumps(content, sort_keys=True) if command.json else as_text(content))
    return 0


def _report(command: Report) -> int:
    from .commands.present import publish
    from .store.choose import chosen
    from .store.store import Store

    _check_shown(command)
    store = Store(command.out)
    store.check_readable()
    stored = store.read_all()
    runs = chosen(stored, command.env, command.k, command.algo)
    if not runs:
        raise UserError(f"OUT={command.out} holds no finished run{' that matches' if stored else ''}")
    parts = [part for part in (command.env, command.k and f"K{command.k}", command.algo) if part]
    name = _folder_name("report", *(parts or ["all"]))
    table, page = publish(command, store, name, f"Stored runs in {command.out}", runs, [], [])
    if command.json and table is not None:
        print(json.dumps({"table": table.rows, "notes": table.notes, "report": str(page)}, sort_keys=True))
    return 0


def _figures(command: Figures) -> int:
    from .pages.gallery import publish

    return publish(command.paper, command.fig, command.scale, command.bundles, command.out, command.json)


def _reproduce(command: Reproduce) -> int:
    from .commands.reproduce import reproduce

    return reproduce(command)


def _compare(command: Compare) -> int:
    from .commands.compare import compare

    _check_shown(command)
    return compare(command)


def _export(command: Export) -> int:
    from .commands.export import export

    return export(command)


def _pack(command: Pack) -> int:
    from .store.pack import pack

    print(pack(command.source, command.to, command.spec))
    return 0


def _unpack(command: Unpack) -> int:
    from .store.pack import unpack

    print(unpack(command.source, command.to))
    return 0


def _folder_name(*parts: str) -> str:
    """One name of a folder, readable, and different for different parts."""
    import hashlib

    name = re.sub(r"[^\w+.=-]", "+", "-".join(parts))
    same = len(name) <= 100 and name == "-".join(parts)
    return name if same else f"{name[:100]}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:6]}"


def _new(command: New) -> int:
    from .base.plugins import builtin_folder
    from .commands.scaffold import TEMPLATES, write

    path = write(command.kind, command.name, command.folder)
    print(f"wrote {path}")
    found = path.resolve().parent == builtin_folder(TEMPLATES[command.kind][0]).resolve()
    plugin = "" if found else f" --plugin {shlex.quote(str(path))}"
    camel = "".join(part.capitalize() for part in command.name.split("_"))
    tried = {
        "algorithm": f"--env Hopper --algo {command.name}",
        "env": f"--algo ppo_clip --env {camel}",
        "lag": f"--env Hopper --algo ppo_clip --lag {command.name}",
    }
    print(f"try: staleharness sweep {tried[command.kind]} --k 8{plugin}")
    return 0
