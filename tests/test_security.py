"""Promises of docs/threat_model.md that no other file tests: nothing that was read is ever executed."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from known_plugins import loaded_plugins
from places import ROOT
from results_helper import write_run
from sweeping import staleharness

from staleharness.algorithm import ALGORITHMS
from staleharness.store.store import Store
from staleharness.store.stored_run import write_manifest

NEVER = set(
    "eval exec os.system os.popen pickle.load marshal.load marshal.loads shelve.open yaml.load yaml.unsafe_load "
    "pandas.read_pickle pd.read_pickle joblib.load dill.load".split()
)
LOADS = ("from_pretrained", "from_config")  # methods of transformers' classes
PICKLES = {"staleharness/testing/lag_model_checks.py"}  # its own, a moment old: whether a model survives being sent
ASKS_THE_NETWORK = {
    "staleharness/running/ray_connection.py",  # whether the cluster answers
    "staleharness/running/slurm/node_main.py",  # what this machine is called
}


def calls() -> Iterator[tuple[str, str, dict[str, ast.expr]]]:
    """(file, what is called, by which keywords) of the package and of the built-in plugins."""
    for folder in ("staleharness", "algorithms", "envs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    words = {k.arg: k.value for k in node.keywords if k.arg}
                    yield path.relative_to(ROOT).as_posix(), ast.unparse(node.func), words


def test_nothing_that_was_read_is_executed() -> None:
    seen = 0
    for file, name, words in calls():
        seen += 1
        assert name not in NEVER, f"{file} calls {name}"
        assert name != "pickle.loads" or file in PICKLES, f"{file} calls {name}"
        for word, value in words.items():
            said = isinstance(value, ast.Constant) and value.value
            assert word != "shell" or said is False, f"{file}: {word}"
            assert word != "allow_pickle" or said is False, f"{file}: {word}"
        if name == "torch.load":
            value = words["weights_only"]
            assert isinstance(value, ast.Constant) and value.value is True, f"{file} loads what may execute"
    assert seen > 5000


def trusting(file: str, tree: ast.AST) -> list[str]:
    """Calls that have transformers load something and do not say `trust_remote_code=False`: without the word it asks on
    the terminal, and runs the model's Python on `y`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    loads = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr in LOADS]
    refusal = [("trust_remote_code", "False")]
    return [
        f"{file}:{c.lineno}"
        for c in loads
        if [(k.arg, ast.unparse(k.value)) for k in c.keywords if k.arg == "trust_remote_code"] != refusal
    ]


@pytest.mark.long
def test_transformers_never_runs_a_models_code() -> None:
    for code in (
        "AutoConfig.from_pretrained(x)",
        "t.AutoModel.from_config(c)",
        "f(a.from_pretrained(**x))",
        "a.from_pretrained(x, trust_remote_code=True)",
        "a.from_pretrained(x, trust_remote_code=y)",
    ):
        assert trusting("x.py", ast.parse(code)), code
    assert not trusting("x.py", ast.parse("a.from_pretrained(x, trust_remote_code=False)"))
    files = [p for folder in ("staleharness", "algorithms", "envs") for p in (ROOT / folder).rglob("*.py")]
    trees = {p.relative_to(ROOT).as_posix(): ast.parse(p.read_bytes()) for p in files}
    assert sum("from_pretrained" in ast.unparse(tree) for tree in trees.values()) >= 2
    assert [line for file, tree in trees.items() for line in trusting(file, tree)] == []


@pytest.mark.long
def test_nothing_serves_the_network() -> None:
    """Ray's own processes apart; whether they keep to loopback, `test_ray` looks at."""
    for path in sorted((ROOT / "staleharness").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            served = {"socketserver", "http", "xmlrpc", "asyncio"} & {n.partition(".")[0] for n in names}
            assert not served, f"{name} imports {served}"
            if "socket" in names:
                assert name in ASKS_THE_NETWORK, f"{name} imports socket"
    for file, called, _ in calls():
        if file in ASKS_THE_NETWORK:
            assert called.rpartition(".")[2] not in ("bind", "listen", "create_server"), f"{file} calls {called}"


@pytest.mark.parametrize("name", ["os.system", "algorithms.spo", "../spo", "/etc/passwd", "spo.py", "__import__"])
def test_a_method_is_a_registered_name_and_never_a_path(tmp_path: Path, name: str) -> None:
    study = tmp_path / "study.toml"
    study.write_text(f"env = 'Hopper'\nalgorithm = [{json.dumps(name)}]\nseeds = 1\n")
    for words in (["--env", "Hopper", "--algo", name], ["--spec", str(study)]):
        done = staleharness("sweep", *words, "--out", str(tmp_path / "out"))
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "out").exists()


def test_hidden_files_of_a_plugin_folder_are_not_executed(tmp_path: Path) -> None:
    (tmp_path / "seen.py").write_text("SEEN = True\n")
    for name in (".hidden.py", "_private.py", "notes.txt", "deeper/plugin.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit('executed')\n")
    with loaded_plugins(tmp_path):
        assert "spo" in ALGORITHMS


NAMES = ["</script><img src=x onerror=alert(1)>", "../../escaped", "/etc/escaped", "CON", "x" * 300]
STEERS = "\x1b[31mred\x1b[0m"


def test_a_runs_name_neither_escapes_its_folder_nor_steers(tmp_path: Path) -> None:
    out, before = tmp_path / "work" / "results", {"work"}
    for name in NAMES:
        write_run(out, name, 0, phases=2, capacity=1)
    forged = write_run(out, "red", 0, phases=2, capacity=1).path
    record = json.loads((forged / "run.json").read_bytes())
    (forged / "run.json").write_text(json.dumps(record | {"label": STEERS}))
    write_manifest(forged)
    for verb in ("status", "export", "pack"):
        words = {
            "export": ["csv", "--to", str(tmp_path / "work/csv")],
            "pack": [str(out), str(tmp_path / "work/bundle")],
        }
        place = [] if verb == "pack" else ["--out", str(out)]
        done = staleharness(verb, *words.get(verb, []), *place)
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout + done.stderr
        assert f"run {forged.name} is damaged and does not count" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == before
    assert {run.label for run in Store(tmp_path / "work" / "bundle").read_all()} == set(NAMES)


def test_each_threat_names_tests_that_exist() -> None:
    """A row of a table of docs/threat_model.md ends with its tests, `path::name`."""
    text = (ROOT / "docs/threat_model.md").read_text(encoding="utf-8")
    rows = [line for line in text.partition("| hostile input")[2].splitlines()[2:] if line.startswith("|")]
    assert len(rows) > 15
    for row in rows:
        tests = re.findall(r"`(tests/[^`:]+)::(test_\w+)`", row.rstrip("| ").rpartition(" | ")[2])
        assert tests, row
        for path, name in tests:
            tree = ast.parse((ROOT / path).read_bytes())
            names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            assert name in names, f"{path} has no {name}"


def without_encoding(tree: ast.AST) -> list[int]:
    """Lines that open a file as text and leave its encoding to the locale."""

    def text(call: ast.Call) -> bool:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in ("read_text", "write_text"):
            return True
        place = 0 if isinstance(call.func, ast.Attribute) else 1  # of the mode: Path.open, and open
        mode = call.args[place] if len(call.args) > place else ast.Constant("r" if len(call.args) == place else 0)
        return name == "open" and isinstance(mode, ast.Constant) and mode.value in ("r", "w", "a", "x", "r+")

    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and text(node)]
    return [c.lineno for c in calls if "encoding" not in {keyword.arg for keyword in c.keywords}]


def test_no_file_is_read_or_written_in_the_encoding_of_the_locale() -> None:
    bad = ["p.read_text()", "p.write_text(x)", "open(p)", "open(p, 'w')", "p.open()", "p.open('x')"]
    good = ["p.read_text(encoding='utf-8')", "open(p, 'rb')", "p.open('wb')", "os.open(p, flags)", "a.open(e, 'w')"]
    assert all(without_encoding(ast.parse(code)) for code in bad)
    assert not any(without_encoding(ast.parse(code)) for code in good)
    files = [path for folder in ("staleharness", "algorithms", "envs") for path in (ROOT / folder).rglob("*.py")]
    found = {path.relative_to(ROOT).as_posix(): without_encoding(ast.parse(path.read_bytes())) for path in files}
    assert len(found) > 200 and {name: lines for name, lines in found.items() if lines} == {}
