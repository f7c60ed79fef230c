"""Modules loaded by a verb: none that its answer does not need."""

from __future__ import annotations

import os
import subprocess
import sys

from places import ROOT

from staleharness.commands.shared import command_line_parser
from staleharness.running.plugin_listing import catalogue
from staleharness.training import method_descriptions

# Each verb in one process, from what needs least on; printed is what of these is loaded after each.
SCRIPT = """
import contextlib, io, sys
from staleharness import cli
heavy = {"torch", "pandas", "numpy", "matplotlib", "pyarrow", "scipy", "rich", "gymnasium", "mujoco", "jinja2", "yaml"}
typo = ["sweep", "--env", "Hoper"]
for words in (["--help"], ["sweep", "--help"], ["status", "--out", "nowhere"], ["list"], typo):
    sys.argv = ["staleharness", *words]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(SystemExit):
            cli.main()
    print(words[0], *sorted(heavy & set(sys.modules)))
"""


def test_help_and_status_load_no_library_and_the_list_only_numpy() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "STALEHARNESS_PLUGINS": ""}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "--help\nsweep\nstatus\nlist numpy\nsweep gymnasium numpy\n", done.stderr


def test_the_file_of_methods_is_parsed_once() -> None:
    method_descriptions._parse.cache_clear()
    assert len(catalogue()["algorithms"]) > 10
    assert method_descriptions._parse.cache_info().misses == 1


def test_what_is_given_reaches_the_command_as_it_was_written() -> None:
    verb, command = command_line_parser.parse(
        ["compare", "a=b", "b c", "--k=1,8", "--json", "--algo", "vaco[delta=-1]", "--env=A=B"]
    )
    assert (verb.name, command.a, command.b, command.k, command.json) == ("compare", "a=b", "b c", "1,8", True)
    assert (command.algo, command.env, command.out) == ("vaco[delta=-1]", "A=B", None)
    assert command_line_parser.parse(["run", "--seed", "-3"])[1].seed == "-3"
