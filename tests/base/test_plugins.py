"""A plugin is one file (or one package) and nothing else has to be edited; what is wrong with it is one line."""

from __future__ import annotations

import json
import os
import py_compile
import runpy
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Cli
from known_plugins import loaded_plugins
from needs import hint
from places import ROOT

from staleharness.algorithm import ALGORITHMS
from staleharness.base.plugin_code_hash import meaning_hash
from staleharness.base.plugin_files import PATH_VARIABLE, add_user_path
from staleharness.base.plugins import Registry, source_hash
from staleharness.commands import new as scaffold
from staleharness.errors import UserError
from staleharness.mismatch import MISMATCHES
from staleharness.running.plan import plan
from staleharness.running.plugin_listing import as_text, catalogue
from staleharness.study import sweep_request
from staleharness.task import ENVS, find_env
from staleharness.testing import MISMATCH_CHECKS, check_algorithm
from staleharness.training.loop import simulation_of

TINY = "num_envs=2,num_steps=32,epochs=1,minibatches=2,evaluations=1,evaluation_episodes=1,final_episodes=1"

IDEA = '''
from dataclasses import dataclass
from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import PolicyLoss
from staleharness.objectives import importance_ratio

@ALGORITHMS.register("{name}")
@dataclass(frozen=True)
class Idea(Algorithm):
    """One line about {name}."""
    paper = "Nobody 2026"
    scale: float = 1.0
    def policy_loss(self, d):
        return PolicyLoss(-self.scale * importance_ratio(d.target_logp, d.behaviour_logp) * d.advantage)
'''

WORLD = '''
from staleharness.control.task import ControlTask
from staleharness.task import ENVS

@ENVS.register("{name}")
class World(ControlTask):
    """One line about {name}."""
    paper = "Nobody 2026"
    ids = {{"{id}": "one line about {id}"}}

    def make(self, env, num_envs, threads):
        import gymnasium

        return gymnasium.make_vec("CartPole-v1", num_envs)
'''
METADATA = "Metadata-Version: 2.1\nName: nobody\nVersion: 1.0\n"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Registries that look for plugins again and are put back afterwards; an empty working folder."""
    monkeypatch.setenv(PATH_VARIABLE, "")
    for registry in (ALGORITHMS, ENVS, MISMATCHES):
        list(registry)
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))
        monkeypatch.setattr(registry, "_loaded_files", dict(registry._loaded_files))
        monkeypatch.setattr(registry, "_complete", None)
        monkeypatch.setattr(registry, "_broken", [])
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


def write(path: Path, text: str, **names: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(**names) if names else text)
    return path


def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, points: str) -> Path:
    """An installed distribution `nobody` with one module and these entry points."""
    write(
        tmp_path / "site" / "nobody-1.0.dist-info" / "METADATA", "Metadata-Version: 2.1\nName: nobody\nVersion: 1.0\n"
    )
    write(tmp_path / "site" / "nobody-1.0.dist-info" / "entry_points.txt", textwrap.dedent(points))
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "nobody", raising=False)
    return write(tmp_path / "site" / "nobody.py", code)


@pytest.fixture(params=["file", "folder", "folder of both kinds", "flag", "entry point"])
def idea_and_world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The algorithm `my_idea` and the environment `Mine-v0`, brought in by each of the ways there are."""
    idea, world = IDEA.format(name="my_idea"), WORLD.format(name="mine", id="Mine-v0")
    if request.param == "entry point":
        points = "[staleharness.algorithms]\nidea = nobody:Idea\n[staleharness.envs]\nworld = nobody:World\n"
        return dict.fromkeys(("algorithms", "envs"), package(tmp_path, monkeypatch, idea + world, points))
    if request.param == "folder of both kinds":
        files = {
            "algorithms": write(tmp_path / "p" / "algorithms" / "idea.py", idea),
            "envs": write(tmp_path / "p" / "envs" / "world.py", world),
        }
    else:
        files = dict.fromkeys(("algorithms", "envs"), write(tmp_path / "p" / "both.py", idea + world))
    if request.param == "flag":
        add_user_path(str(files["envs"]))
    else:
        monkeypatch.setenv(PATH_VARIABLE, str(files["envs"] if request.param == "file" else tmp_path / "p"))
    return files


def test_two_classes_of_one_name_in_a_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    idea = IDEA.format(name="my_idea")
    monkeypatch.setenv(PATH_VARIABLE, str(write(tmp_path / "twice.py", f"{idea}\n\n{idea}")))
    with pytest.raises(UserError, match=r"twice\.py has two classes 'my_idea' of algorithms; rename one"):
        list(ALGORITHMS)


def test_a_plugin_is_listed_and_planned_like_a_built_in_one(idea_and_world: dict[str, Path]) -> None:
    found = json.loads(json.dumps(catalogue()))
    (idea,) = [entry for entry in found["algorithms"] if entry["name"] == "my_idea"]
    assert idea == {
        "name": "my_idea",
        "summary": "One line about my_idea.",
        "paper": "Nobody 2026",
        "hyper_parameters": {"scale": 1.0},
        "file": str(idea_and_world["algorithms"].resolve()),
        "core": False,
        "family": "other",
        "does": "",
        "level": "",
        "transform": "",
        "trust_region": "",
        "anchor": "",
        "passes": "none",
        "needs": [],
    }
    (world,) = [entry for entry in found["envs"] if entry["name"] == "Mine-v0"]
    assert (world["summary"], world["paper"]) == ("one line about Mine-v0", "Nobody 2026")
    assert world["file"] == str(idea_and_world["envs"].resolve())
    for kind, entries in found.items():
        for entry in entries:
            assert {"name", "summary", "paper", "hyper_parameters", "file"} <= set(entry), kind
            assert Path(entry["file"]).is_file()
    runs = plan(sweep_request(env="Mine-v0,Hopper", algo="my_idea,my_idea[scale=2],spo", seeds="1")).runs
    assert len({run.run_id for run in runs}) == 6
    assert [run.label for run in runs][:3] == ["my_idea", "my_idea[scale=2.0]", "spo"]


def ids_of(env: str, algo: str) -> dict[str, str]:
    planned = plan(sweep_request(env=env, algo=algo, seeds="1"))
    return {f"{run.label} {run.spec.env}": run.run_id for run in planned.runs}


def test_editing_a_plugin_changes_only_the_ids_of_its_runs(idea_and_world: dict[str, Path]) -> None:
    before = ids_of("Mine-v0,Hopper", "my_idea,spo")
    file = idea_and_world["algorithms"]
    file.write_text(file.read_text() + "\nTHOUGHT = 1\n")
    after = ids_of("Mine-v0,Hopper", "my_idea,spo")
    changed = {name for name in before if before[name] != after[name]}
    both = idea_and_world["envs"] == file  # one file that holds both
    assert changed == {"my_idea Mine-v0", "my_idea Hopper-v5"} | ({"spo Mine-v0"} if both else set())


FILE = '''"""Words on the file."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import PolicyLoss

if TYPE_CHECKING:
    from torch import Tensor

LEAST = 1e-3


@ALGORITHMS.register("hashed")
@dataclass(frozen=True)
class Hashed(Algorithm):
    """Words on the class."""

    paper = "Nobody 2026"
    scale: float = 1.0  # a comment
    mode: Literal["hard", "soft"] = "hard"

    def policy_loss(self, d) -> PolicyLoss:
        """Words on the method."""
        import torch

        size = self.scale * d.advantage + LEAST
        return PolicyLoss(torch.where(d.mask > 0, size, 0.0), {f"size_{self.mode:>{4}}": size})
'''


def hash_of(path: Path, text: str) -> str:
    """Hash of the plugin class `hashed` in a file with this text."""
    registry: Registry[Any] = Registry("algorithms")
    write(path, text.replace("ALGORITHMS.register", "REGISTRY.register"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("builtins.REGISTRY", registry, raising=False)
        registry.load_file(path)
    return source_hash(registry._classes["hashed"])


def edit(before: str, after: str, text: str = FILE) -> str:
    assert text.count(before) == 1
    return text.replace(before, after)


SAYS_THE_SAME = {
    "as it was": FILE,
    "comment": edit("# a comment", "# another\n    # and one more"),
    "no comment": edit("  # a comment", ""),
    "docstring of the file": edit("Words on the file.", "Other words."),
    "no docstring of the file": edit('"""Words on the file."""\n', ""),
    "docstring of the class": edit("Words on the class.", "One line.\n\n    Several more."),
    "no docstring of the class": edit('    """Words on the class."""\n\n', ""),
    "docstring of a method": edit("Words on the method.", "Other words."),
    "no docstring of a method": edit('        """Words on the method."""\n', ""),
    "docstring of a field": edit("    scale: float = 1.0  # a comment\n", '    scale: float = 1.0\n    """Words."""\n'),
    "layout": edit("self.scale * d.advantage + LEAST", "(\n            self.scale*d.advantage + (LEAST)\n        )"),
    "quotes": edit('"Nobody 2026"', "'Nobody ' u'2026'"),
    "number written otherwise": edit("1e-3", "0.001"),
    "line ends": FILE.replace("\n", "\r\n"),
    "import moved": edit("from staleharness.batch import PolicyLoss\n", "").replace(
        "from dataclasses", "from staleharness.batch import PolicyLoss\nfrom dataclasses"
    ),
    "import added": edit("from typing", "import math\nfrom typing"),
    "import inside a function": edit("        import torch\n\n", "").replace(
        "from typing", "import torch\nfrom typing"
    ),
    "import for type checkers": edit("    from torch import Tensor", "    from torch import Tensor, dtype"),
    "no import for type checkers": edit("if TYPE_CHECKING:\n    from torch import Tensor\n", ""),
}
SAYS_OTHERWISE = {
    "constant": edit("1e-3", "1e-4"),
    "type of a constant": edit("scale: float = 1.0", "scale: float = 1"),
    "default": edit("scale: float = 1.0", "scale: float = 2.0"),
    "formula": edit("d.advantage + LEAST", "d.advantage - LEAST"),
    "order": edit("self.scale * d.advantage + LEAST", "LEAST + self.scale * d.advantage"),
    "option": edit('"hard", "soft"', '"hard", "soft", "none"'),
    "option renamed": FILE.replace("mode", "manner"),
    "option added": edit('= "hard"\n', '= "hard"\n    more: bool = False\n'),
    "option removed": edit('    mode: Literal["hard", "soft"] = "hard"\n', "").replace("self.mode", "'x'"),
    "order of options": edit("    scale: float = 1.0  # a comment\n", "").replace(
        '= "hard"\n', '= "hard"\n    scale: float = 1.0\n'
    ),
    "text": edit("Nobody 2026", "Somebody 2026"),
    "text of an f-string": edit("size_", "sizes_"),
    "format of an f-string": edit(":>{4}", ":<{4}"),
    "statement": edit("        return", "        size = size * 2\n        return"),
    "code for type checkers": edit("    from torch import Tensor", "    Tensor = None"),
    "decorator": edit("frozen=True", "frozen=True, order=True"),
    "base class": edit("(Algorithm)", "(Algorithm, object)"),
}


@pytest.mark.parametrize("change", SAYS_THE_SAME)
def test_comments_and_layout_leave_a_plugins_hash(change: str, tmp_path: Path) -> None:
    there, moved = tmp_path / "a" / "one.py", tmp_path / "b" / "two.py"
    assert hash_of(moved, SAYS_THE_SAME[change]) == hash_of(there, FILE)


@pytest.mark.parametrize("change", SAYS_OTHERWISE)
def test_what_a_plugin_does_is_in_its_hash(change: str, tmp_path: Path) -> None:
    assert hash_of(tmp_path / "one.py", SAYS_OTHERWISE[change]) != hash_of(tmp_path / "two.py", FILE)


def test_every_change_of_what_a_plugin_does_has_a_hash_of_its_own(tmp_path: Path) -> None:
    hashes = {meaning_hash(text.encode()) for text in SAYS_OTHERWISE.values()}
    assert len(hashes) == len(SAYS_OTHERWISE)
    assert meaning_hash(FILE.encode()) == "7aa59b9614238b8b"  # for ever, under every Python


def test_a_plugin_that_is_not_python_has_a_hash(tmp_path: Path) -> None:
    broken, otherwise = (meaning_hash(text) for text in (b"def (", b"def ( "))
    assert len({broken, otherwise, meaning_hash(b"")}) == 3


@pytest.mark.parametrize("kind", ["algorithm", "env"])
def test_a_file_dropped_into_the_built_in_folder_is_found(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = scaffold.TEMPLATES[kind].folder
    template, name = (IDEA, "my_idea") if kind == "algorithm" else (WORLD, "mine")
    file = write(tmp_path / folder / "dropped.py", template, name=name, id="Mine-v0")
    from staleharness.base import plugins

    monkeypatch.setattr(plugins, "builtin_folder", lambda kind: tmp_path / kind)
    entries = catalogue()[folder]
    assert [entry["file"] for entry in entries if entry["name"] in ("my_idea", "Mine-v0")] == [str(file)]


def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    monkeypatch.setenv(PATH_VARIABLE, str(write(tmp_path / "broken.py", text)))
    with pytest.raises(UserError) as error:
        list(ALGORITHMS), catalogue()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "\nimport nothing_of_this_name",
            "ModuleNotFoundError: No module named 'nothing_of_this_name' (broken.py, line 2)",
        ),
        ("\n\ndef (", "SyntaxError: invalid syntax (broken.py, line 3)"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines (broken.py, line 1)"),
        ("\nraise SystemExit(3)", "SystemExit: 3 (broken.py, line 2)"),
        ("import json\njson.loads('?')", "Expecting value: line 1 column 1 (char 0) (broken.py, line 2)"),
        ("import gymnasium\ngymnasium.make('No-v0')", "(broken.py, line 2)"),
        ("\0", "null bytes"),
    ],
)
def test_a_plugin_that_does_not_import_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    line = broken(tmp_path, monkeypatch, text)
    assert str(tmp_path / "broken.py") in line and "does not import" in line and words in line


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("torch.set_default_dtype(torch.float64)", "default dtype from float32 to float64"),
        ("torch.set_default_device('meta')", "default device from cpu to meta"),
        ("torch.set_grad_enabled(False)", "gradient mode from True to False"),
        ("torch.set_float32_matmul_precision('medium')", "float32 matmul precision from highest to medium"),
    ],
)
def test_a_plugin_file_leaves_the_modes_of_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, words: str
) -> None:
    line = broken(tmp_path, monkeypatch, f"import torch\n{change}\n{IDEA.format(name='modal')}")
    assert line.startswith(f"plugin {tmp_path / 'broken.py'} changes torch's {words}, which would change what other ")
    assert (torch.get_default_dtype(), torch.get_default_device().type) == (torch.float32, "cpu")
    assert torch.is_grad_enabled() and torch.get_float32_matmul_precision() == "highest"
    assert "modal" not in ALGORITHMS._classes


def test_threads_that_a_plugin_file_sets_are_those_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    text = f"import torch\ntorch.set_num_threads({threads + 1})\n{IDEA.format(name='threaded')}"
    monkeypatch.setenv(PATH_VARIABLE, str(write(tmp_path / "threaded.py", text)))
    assert "threaded" in ALGORITHMS and torch.get_num_threads() == threads


@pytest.mark.parametrize(
    "code", ["import nothing_of_this_name", "{IDEA}\nraise ValueError('two\\nlines')", "World = 1/0"]
)
def test_a_broken_installed_plugin_is_listed_and_stops_nobody(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    text = code.replace("{IDEA}", IDEA.format(name="half"))
    package(tmp_path, monkeypatch, text, "[staleharness.envs]\nworld = nobody:World\n")
    add_user_path(str(write(tmp_path / "mine.py", IDEA, name="my_idea")))
    assert [run.label for run in plan(sweep_request(env="Hopper", algo="my_idea", seeds="1")).runs] == ["my_idea"]
    (line,) = ENVS.broken
    assert line.startswith("plugin world (nobody:World) of the package nobody does not import: ") and "\n" not in line
    assert caplog.messages == [line] and f"broken: {line}" in as_text(catalogue())
    assert "half" not in ALGORITHMS, "of a module that did not import nothing stays"
    with pytest.raises(UserError, match=r"no environment is called 'World-v0'.*nobody:World.*does not import"):
        find_env("World-v0")


@pytest.mark.parametrize(
    ("text", "name", "holder"),
    [(IDEA, "spo", "algorithms/spo.py"), (WORLD, "mujoco", "envs/mujoco.py"), (WORLD, "other", "envs/mujoco.py")],
    ids=["algorithm", "family", "environment id"],
)
def test_a_plugin_that_claims_a_taken_name_is_told_both_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str, holder: str
) -> None:
    line = broken(tmp_path, monkeypatch, text.format(name=name, id="hopper"))
    assert "claimed twice" in line
    assert str(tmp_path / "broken.py") in line and holder in line


def test_two_classes_of_one_file_may_not_share_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = IDEA.format(name="my_idea")
    line = broken(tmp_path, monkeypatch, first + first.replace("class Idea", "class Better"))
    assert "by Idea in" in line and "by Better in" in line


@pytest.mark.parametrize(("path", "words"), [("nowhere.py", "does not exist"), ("empty", "holds no plugin")])
def test_a_plugin_path_without_plugins_is_said(tmp_path: Path, path: str, words: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "_private.py").touch()
    with pytest.raises(UserError, match=words):
        add_user_path(str(tmp_path / path))


@pytest.mark.parametrize("path", ["/dev/null", "notes.txt", "pipe"])
def test_a_path_of_something_else_than_a_plugin_is_said(tmp_path: Path, path: str, cli: Cli) -> None:
    (tmp_path / "notes.txt").write_text("my notes")
    os.mkfifo(tmp_path / "pipe")
    place = tmp_path / path
    line = f"plugin path {place} (from --plugin) is not a plugin; give a readable file ending in .py or a folder"
    code, out, err = cli("list", "--plugin", str(place))
    assert (code, out) == (2, "") and line in err and err.count("\n") == 1


def test_a_folder_of_a_kind_leaves_out_the_files_beside_it(tmp_path: Path) -> None:
    write(tmp_path / "mine.py", IDEA, name="mine")
    (tmp_path / "figures").mkdir()
    words = r"\*\.py files beside its folder figures/ are not loaded; move mine\.py to algorithms/, envs/, .*from --pl"
    with pytest.raises(UserError, match=words):
        add_user_path(str(tmp_path))
    (tmp_path / "algorithms").mkdir()
    (tmp_path / "mine.py").rename(tmp_path / "algorithms" / "mine.py")
    add_user_path(str(tmp_path))


def test_a_plugins_prints_stay_out_of_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "chatty.py", IDEA + "\nprint('hello from a plugin')", name="chatty")
    monkeypatch.setenv(PATH_VARIABLE, str(file))
    catalogue()
    captured = capsys.readouterr()
    assert captured.out == "" and "hello from a plugin" in captured.err


def test_a_path_with_spaces_commas_and_brackets_is_one_path(tmp_path: Path, cli: Cli) -> None:
    file = write(tmp_path / "my, [best] idea.py", IDEA, name="my_idea")
    code, out, _ = cli("list", "--json", "--plugin", str(file))
    assert code == 0 and "my_idea" in {entry["name"] for entry in json.loads(out)["algorithms"]}


def test_a_new_algorithm_passes_the_contract_and_its_hint_plans(tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "my plugins"
    code, out, _ = cli("new", "algorithm", "my_idea", "--folder", str(folder))
    assert code == 0
    assert out == (
        f"wrote {folder}/my_idea.py\n"
        f"try: staleharness sweep --env Hopper --algo my_idea --k 8 --plugin '{folder}/my_idea.py'\n"
    )
    add_user_path(str(folder / "my_idea.py"))
    check_algorithm(ALGORITHMS["my_idea"])
    assert [run.label for run in plan(sweep_request(env="Hopper", algo="my_idea", k="8", seeds="1")).runs] == [
        "my_idea"
    ]
    before = (folder / "my_idea.py").read_bytes()
    code, _, err = cli("new", "algorithm", "my_idea", "--folder", str(folder))
    assert code == 2 and "exists already" in err
    assert (folder / "my_idea.py").read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "folder"),
    [
        ("algorithm", "algorithms"),
        ("env", "envs"),
        ("lag", "staleharness/lags"),
        ("language", "envs"),
        ("mismatch", "staleharness/mismatches"),
        ("decoder", "decoders"),
    ],
)
def test_a_new_plugin_is_written_where_the_user_stands(
    kind: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scaffold.write(kind, "my_thing", None) == tmp_path / "cwd" / "my_thing.py"
    monkeypatch.chdir(ROOT / "tests")
    assert scaffold._home(scaffold.TEMPLATES[kind]) == ROOT / folder


def test_a_new_environment_runs(tmp_path: Path, cli: Cli) -> None:
    code, out, _ = cli("new", "env", "my_world", "--folder", str(tmp_path / "p"))
    assert code == 0 and "--env MyWorld" in out
    add_user_path(str(tmp_path / "p"))
    assert find_env("myworld")[0] == "MyWorld-v0"
    (planned,) = plan(sweep_request(env="MyWorld", algo="ppo_clip", k="2", seeds="1", steps="128", settings=TINY)).runs
    simulation = simulation_of(planned.spec)
    records = list(simulation)
    simulation.close()
    assert len(records) == 2 and records[-1].scores is not None
    assert records[-1].metrics["lag_max"] <= 1


def test_a_new_language_task_learns_and_its_test_passes(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers", reason=hint("llm"))
    monkeypatch.setenv("STALEHARNESS_CACHE", str(tmp_path / "cache"))
    code, out, _ = cli("new", "language", "my_task", "--folder", str(tmp_path / "p"))
    file = tmp_path / "p" / "my_task.py"
    assert code == 0 and f"--algo ppo_clip --env my_task --k 8 --plugin {file}" in out
    add_user_path(str(file))
    few = "prompts=8,completions=4,evaluations=1"
    (planned,) = plan(sweep_request(env="my_task", algo="ppo_clip", k="2", seeds="1", steps="2", settings=few)).runs
    simulation = simulation_of(planned.spec)
    records = list(simulation)
    simulation.close()
    assert len(records) == 2 and 0.4 < records[-1].scores.mean("deterministic") < 1
    lines = [line[6:] for line in file.read_text().splitlines() if line.startswith("#     ")]
    test = write(tmp_path / "p" / "test_my_task.py", "\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path / "p")
    runpy.run_path(str(test))["test_my_task_keeps_the_contract"]()
    sys.modules.pop("my_task")


def test_a_new_mismatch_model_runs_and_so_does_its_test(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = cli("new", "mismatch", "my_mismatch", "--folder", str(tmp_path / "p"))
    file = tmp_path / "p" / "my_mismatch.py"
    assert code == 0 and f"--env Hopper --algo ppo_clip --mismatch my_mismatch --k 8 --plugin {file}" in out
    add_user_path(str(file))
    asked = sweep_request(
        env="CartPole", algo="ppo_clip", mismatch="my_mismatch:0.5", k="2", seeds="1", steps="128", settings=TINY
    )
    records = list(simulation_of(plan(asked).runs[0].spec))
    assert len(records) == 2 and records[-1].metrics["mismatch/kl_k3"] > 0
    lines = [line[6:] for line in file.read_text().splitlines() if line.startswith("#     ")]
    test = write(tmp_path / "p" / "test_my_mismatch.py", "\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path / "p")
    function = runpy.run_path(str(test))["test_my_mismatch_keeps_the_contract"]
    cases = function.pytestmark[0].args[1]
    assert len(cases) == len(MISMATCH_CHECKS)
    for case in cases:
        function(*case)
    sys.modules.pop("my_mismatch")


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("algorithm", "spo", "spo.py"),
        ("algorithm", "none", "None"),
        ("algorithm", "policy_loss", "PolicyLoss"),
        ("algorithm", "", "not a plugin name"),
        ("algorithm", "a" * 300, "not a plugin name"),
        ("algorithm", "ünïcode", "not a plugin name"),
        ("algorithm", "../x", "not a plugin name"),
        ("env", "hopper", "mujoco.py"),
        ("env", "mujoco", "mujoco.py"),
        ("env", "lambda", "not a plugin name"),
        ("language", "gsm8k", "a language task called 'gsm8k' exists already in .*gsm8k.py"),
        ("language", "hopper", "an environment called 'hopper' exists already in .*mujoco.py"),
        ("language", "problem", "would be the class Problem"),
        ("mismatch", "noise", "a mismatch model called 'noise' exists already in .*noise.py"),
        ("mismatch", "none", "None"),
        ("mismatch", "place", "Place"),
    ],
)
def test_an_unusable_plugin_name_is_refused_and_writes_nothing(
    kind: str, name: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=words):
        scaffold.write(kind, name, str(tmp_path / "p"))
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("broken", ["raise ValueError('boom')", "raise SystemExit", "raise KeyboardInterrupt"])
def test_a_broken_plugin_is_named_each_time_and_loads_once_mended(tmp_path: Path, broken: str) -> None:
    file = write(tmp_path / "idea.py", IDEA.format(name="mended") + broken)
    add_user_path(str(file))
    for registry in (ALGORITHMS, ENVS, ALGORITHMS, ENVS):
        with pytest.raises((UserError, KeyboardInterrupt)):
            list(registry)
    assert not any("mended" in registry._classes for registry in (ALGORITHMS, ENVS))
    write(file, IDEA.format(name="mended").replace("scale: float = 1.0", "scale: float = 0.25"))
    assert ALGORITHMS["mended"]().scale == 0.25 and "mended" not in ENVS


def test_a_file_that_is_no_plugin_is_said_each_time(tmp_path: Path) -> None:
    file = write(tmp_path / "idea.txt", IDEA.format(name="unread"))
    for _ in range(2):
        with pytest.raises(UserError, match=r"a readable file ending in \.py"):
            ALGORITHMS.load_file(file)


def test_bytecode_of_an_earlier_version_is_not_executed(tmp_path: Path) -> None:
    """An edit that leaves the size, within the second of the one before: Python would take its bytecode."""
    path, found = tmp_path / "mine.py", []
    for name in ("one", "two"):
        path.write_text(PLUGIN_OF_NAME.format(name=name))
        os.utime(path, (10**9, 10**9))
        if name == "one":
            py_compile.compile(str(path))
        with loaded_plugins(path):
            found.append([kind for kind in ("one", "two") if kind in ALGORITHMS])
    assert found == [["one"], ["two"]]


PLUGIN_OF_NAME = """
from staleharness.algorithm import ALGORITHMS, Algorithm

@ALGORITHMS.register("{name}")
class Mine(Algorithm):
    "A method."
"""
